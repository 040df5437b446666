"""The sweep: embeds what has no vector of the current model (R14)."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Protocol

from agents.codec import DestroyedKey
from agents.embedding import MemoryEmbedding, OpenedMemory
from agents.ports import CannotOpen, ProviderError
from models.index_rows import SealedMemory
from models.store_errors import StoreUnavailable

log = logging.getLogger(__name__)

# A text that fails by itself is tried again after so long, then twice as long, and so on.
RETRY_SECONDS = 300.0
MAX_RETRY_SECONDS = 86_400.0
NIL = "00000000-0000-0000-0000-000000000000"


class UnembeddedStore(Protocol):
    """The memories that have no vector of a model (sql/index_store.py)."""

    async def without_vector(
        self, model: str, partitions: Sequence[int], after: str = ..., age: timedelta = ..., limit: int = ...
    ) -> list[SealedMemory]: ...

    async def count_without_vector(self, model: str, partitions: Sequence[int]) -> int: ...


class Sweep:
    """Embeds what the provider was away for, and everything anew when the model is another now.

    `partitions` are those that this worker owns; nothing is done unless `quiet`, while the log still holds
    vectors that the index has not read. What was stored within `age` is on its way through the log. `remaining`
    is told how many memories lack a vector.
    """

    def __init__(
        self,
        store: UnembeddedStore,
        embedding: MemoryEmbedding,
        partitions: Callable[[], Collection[int]],
        quiet: Callable[[], bool],
        remaining: Callable[[int], None],
        *,
        age: timedelta,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._embedding = embedding
        self._partitions = partitions
        self._quiet = quiet
        self._remaining = remaining
        self._age = age
        self._clock = clock
        # By memory: how often its text failed by itself, and when it may be tried again.
        self._failing: dict[str, tuple[int, float]] = {}

    async def run(self, seconds: float) -> None:
        """Sweep every `seconds` until cancelled."""
        while True:
            await asyncio.sleep(seconds)
            try:
                await self.once()
            except (StoreUnavailable, ProviderError) as error:
                log.info("Not all could be embedded (%s): again in %s s", type(error).__name__, seconds)

    async def once(self) -> int:
        """Embed all that lack a vector; how many got one. ProviderError, StoreUnavailable: not all could be read."""
        sent, after = 0, NIL
        left = await self._count()
        while self._quiet() and (partitions := sorted(self._partitions())):
            page = await self._store.without_vector(self._embedding.model, partitions, after, self._age)
            if not page:
                break
            now = self._clock()
            due = [memory for memory in page if self._failing.get(memory.memory_id, (0, now))[1] <= now]
            opened = [memory for memory in map(self._opened, due) if memory is not None]
            failed = await self._embedding.send_vectors(opened)
            self._note(opened, failed, now)
            sent += len(opened) - len(failed)
            self._remaining(max(0, left - sent))
            after = page[-1].memory_id
        return sent

    async def _count(self) -> int:
        left = await self._store.count_without_vector(self._embedding.model, sorted(self._partitions()))
        self._remaining(left)
        return left

    def _note(self, tried: Sequence[OpenedMemory], failed: Sequence[OpenedMemory], now: float) -> None:
        failing = {memory.sealed.memory_id for memory in failed}
        for name in (memory.sealed.memory_id for memory in tried):
            times = self._failing.pop(name, (0, 0.0))[0]
            if name in failing:
                wait = min(RETRY_SECONDS * 2**times, MAX_RETRY_SECONDS)
                self._failing[name] = (times + 1, now + wait)

    def _opened(self, memory: SealedMemory) -> OpenedMemory | None:
        try:
            return self._embedding.open(memory)
        except (DestroyedKey, LookupError, CannotOpen):
            return None
