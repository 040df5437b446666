"""Counts what calls of models cost, and holds calls back once the day's limit is reached.

Counts are this worker's sums, in memory first: they go to the store whenever it can be reached. The limit is on the
tokens of all workers as the store last said, and of this one as counted. It is looked at before an attempt, so
calls in flight may go past it.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Protocol
from uuid import UUID, uuid4

from agents.ports import Completion
from models.memory import Provenance
from models.store_errors import StoreUnavailable
from models.usage import UsageKey, UsageTotals

log = logging.getLogger(__name__)

SYNC_SECONDS = 5.0
# A server may say anything: what it cannot mean is cut off, below zero too.
MAX_TOKENS = 10_000_000


class UsageStore(Protocol):
    """Keeps the sums of every worker (sql/config_store.py). StoreUnavailable when it is away."""

    async def put_usage(self, worker: UUID, totals: Mapping[UsageKey, UsageTotals]) -> None: ...

    async def spent_by_others(self, worker: UUID, day: date) -> int: ...


class UsageGauges(Protocol):
    """Shows what is spent, and whether calls are held back."""

    def spent(self, key: UsageKey, input_tokens: int, output_tokens: int) -> None: ...

    def held(self, reached: bool) -> None: ...


def today() -> date:
    return datetime.now(UTC).date()


class Usage:
    """A UsageMeter. `limit` is in tokens a day (UTC), read and written, over all tasks and models; 0: none.

    `refresh` it before the first call, and `run` it beside them: every `seconds` it carries the counts to the store,
    and looks whether calls may go on.
    """

    def __init__(
        self,
        store: UsageStore | None,
        gauges: UsageGauges,
        *,
        limit: int,
        seconds: float = SYNC_SECONDS,
        today: Callable[[], date] = today,
        worker: UUID | None = None,
    ) -> None:
        self._store = store
        self._gauges = gauges
        self._limit = limit
        self._seconds = seconds
        self._today = today
        self._worker = worker or uuid4()
        self._totals: dict[UsageKey, UsageTotals] = {}
        self._unwritten: set[UsageKey] = set()
        self._others = (today(), 0)
        self._held = False
        self._away = False
        self._looked = asyncio.Event()
        gauges.held(False)

    async def admitted(self, task: str) -> None:
        while self._reached():
            self._look()
            await self._looked.wait()

    def add(self, provenance: Provenance, completion: Completion) -> None:
        key = UsageKey(self._today(), provenance.task, provenance.provider, provenance.model)
        read, written = (
            min(max(0, tokens), MAX_TOKENS) for tokens in (completion.input_tokens, completion.output_tokens)
        )
        self._totals[key] = self._totals.get(key, UsageTotals()).plus(read, written)
        self._unwritten.add(key)
        self._gauges.spent(key, read, written)
        self._look()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self._seconds)
            await self.refresh()

    async def refresh(self) -> None:
        """Synchronise once; raises nothing: what the store cannot take now, it takes later."""
        try:
            async with asyncio.timeout(SYNC_SECONDS):
                await self.sync()
        except Exception as error:  # noqa: BLE001  # counting must not stop the work that it counts
            if not self._away:
                log.warning(
                    "Usage of models is kept in memory, and the daily limit knows no other worker's: %s",
                    error if isinstance(error, StoreUnavailable) else type(error).__name__,
                )
            self._away = True
            return
        if self._away:
            log.info("Usage of models is written to PostgreSQL again")
        self._away = False

    async def sync(self) -> None:
        """Write what is counted, and see what the others have spent."""
        try:
            if self._store is not None:
                await self._write(self._store)
                if self._limit:
                    day = self._today()
                    self._others = (day, await self._store.spent_by_others(self._worker, day))
        finally:
            self._look()

    async def _write(self, store: UsageStore) -> None:
        batch = {key: self._totals[key] for key in self._unwritten}
        if batch:
            await store.put_usage(self._worker, batch)
        self._unwritten -= {key for key, sums in batch.items() if self._totals[key] == sums}
        now = self._today()
        for key in [key for key in self._totals if key.day < now and key not in self._unwritten]:
            del self._totals[key]

    def _spent(self) -> int:
        day, others = self._others
        now = self._today()
        return (others if day == now else 0) + sum(
            sums.tokens for key, sums in self._totals.items() if key.day == now
        )

    def _reached(self) -> bool:
        return 0 < self._limit <= self._spent()

    def _look(self) -> None:
        """Say so when the limit is reached, and when it is no longer; let those who wait look too."""
        reached = self._reached()
        if reached != self._held:
            self._held = reached
            self._gauges.held(reached)
            if reached:
                log.warning(
                    "The daily limit of %d tokens is reached: windows wait until the day ends (UTC), and nothing "
                    "is lost; to go on at once, raise KEEPSAKE_DAILY_TOKEN_LIMIT or assign an offline model",
                    self._limit,
                )
            else:
                log.info("The daily limit of %d tokens is no longer reached: windows go on", self._limit)
        if reached:
            self._looked.clear()
        else:
            self._looked.set()
