"""Reports of degraded recalls to Sentry or GlitchTip (R28): a fixed reason and the name of an error's type, no text."""

import time
from collections.abc import Callable

import sentry_sdk

# An outage degrades every recall: one report of a reason a minute says as much.
QUIET_SECONDS = 60.0


class NoReports:
    """Where no DSN is set."""

    def report(self, reason: str, error: BaseException | None = None) -> None:
        pass

    def close(self) -> None:
        pass


class SentryReports:
    """Sends a message for a reason, at most one a minute. Nothing is collected by itself: no breadcrumbs, no local
    variables, no request, no trace, since all of these can hold what people said."""

    def __init__(self, dsn: str, release: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = sentry_sdk.Client(
            dsn=dsn,
            release=release,
            default_integrations=False,
            auto_enabling_integrations=False,
            include_local_variables=False,
            attach_stacktrace=False,
            max_breadcrumbs=0,
        )
        self._clock = clock
        self._last: dict[str, float] = {}

    def report(self, reason: str, error: BaseException | None = None) -> None:
        now = self._clock()
        if now - self._last.get(reason, -QUIET_SECONDS) < QUIET_SECONDS:
            return
        self._last[reason] = now
        kind = type(error).__name__ if error else "none"
        self._client.capture_event(
            {
                "level": "warning",
                "message": f"A recall is degraded: {reason} ({kind})",
                "fingerprint": ["recall", reason],
                "tags": {"reason": reason, "error": kind},
            }
        )

    def close(self) -> None:
        """Send what waits, for a moment at most."""
        self._client.close(timeout=1.0)
