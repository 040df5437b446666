"""Looks after what a service needs, again and again, so that asking whether it is ready costs nothing."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

PROBE_SECONDS = 2.0

Probe = Callable[[], Awaitable[str | None]]


class Probes:
    """Runs each probe by itself; one gives a sentence on what is wrong, or None."""

    def __init__(
        self,
        probes: Mapping[str, Probe],
        warnings: Callable[[], list[str]] = list,
        *,
        seconds: float = PROBE_SECONDS,
    ) -> None:
        self._probes = probes
        self._warnings = warnings
        self._seconds = seconds
        self._troubles = dict.fromkeys(probes, "not looked at yet")

    @property
    def troubles(self) -> dict[str, str]:
        """What is not ready, by name, as last looked at."""
        return dict(self._troubles)

    @property
    def warnings(self) -> list[str]:
        """What to mend though everything is ready."""
        return self._warnings()

    async def refresh(self) -> None:
        names = list(self._probes)
        found = await asyncio.gather(*(self._look(self._probes[name]) for name in names))
        self._troubles = {
            name: trouble for name, trouble in zip(names, found, strict=True) if trouble is not None
        }

    async def _look(self, probe: Probe) -> str | None:
        try:
            async with asyncio.timeout(self._seconds):
                return await probe()
        except TimeoutError:
            return "did not answer in time"
        except Exception as error:  # noqa: BLE001  # a probe that fails has found trouble
            return f"failed with {type(error).__name__}"
