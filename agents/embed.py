"""The embed step: `memory.created` to `memory.embedded`, and later what had to do without a vector (R14)."""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Protocol

from agents.codec import DestroyedKey
from agents.embedding import MemoryEmbedding, OpenedMemory
from agents.patience import when_known
from agents.ports import CannotOpen, Counters, DeadLetters, Fault, ProviderError
from agents.published import parse_created
from models.index_rows import SealedMemory
from models.messages import InvalidEvent
from models.records import Record
from models.store_errors import StoreUnavailable

log = logging.getLogger(__name__)

KEY_SECONDS = 30.0
RETRY_SECONDS = (2.0, 4.0, 8.0)
SWEEP_SECONDS = 30.0
# What is younger is on its way through the log.
SWEEP_AGE = timedelta(seconds=30)


class Progress(Protocol):
    """How far this step has come, by partition: of its own, so that a rebuilt index is not embedded again."""

    def next_offset(self, partition: int) -> int: ...

    def advance(self, partition: int, next_offset: int) -> None: ...


class Embed:
    """Handles batches of `memory.created`: tokens at once, then vectors.

    A provider that fails is tried again after each of `retry_seconds`; then the memories stay without a
    vector until a sweep, and what comes next is tried once, until the provider is back.
    """

    def __init__(
        self,
        embedding: MemoryEmbedding,
        progress: Progress,
        dead: DeadLetters,
        counters: Counters,
        fault: Fault,
        *,
        key_seconds: float = KEY_SECONDS,
        retry_seconds: Sequence[float] = RETRY_SECONDS,
    ) -> None:
        self._embedding = embedding
        self._progress = progress
        self._dead = dead
        self._counters = counters
        self._fault = fault
        self._key_seconds = key_seconds
        self._retry_seconds = tuple(retry_seconds)
        self._provider_is_away = False

    async def handle_batch(self, records: Sequence[Record]) -> None:
        partition = records[0].partition
        start = self._progress.next_offset(partition)
        fresh = [record for record in records if record.offset >= start and record.value is not None]
        found = await asyncio.gather(*(self._open(record) for record in fresh))
        memories = [memory for memory in found if memory is not None]
        self._fault("indexer.before_embedded")
        await asyncio.gather(*(self._embedding.send_tokens(memory) for memory in memories))
        await self._send_vectors(memories)
        self._progress.advance(partition, records[-1].offset + 1)

    async def _open(self, record: Record) -> OpenedMemory | None:
        """The memory of a record; None where there is nothing to embed, which a dead letter may tell."""
        try:
            created = parse_created(record)
            memory = SealedMemory(created.memory_id, created.user_id, created.characters, created.payload)
            return await when_known(lambda: self._embedding.open(memory), self._key_seconds)
        except DestroyedKey:
            self._counters.count("destroyed_key")
        except InvalidEvent as invalid:
            await self._dead.send(record, invalid.reason, invalid.detail)
        except LookupError:
            await self._dead.send(record, "unknown_key", f"no key of its pairs within {self._key_seconds} s")
        except CannotOpen:
            await self._dead.send(record, "cannot_open", "the payload does not open with its pairs' keys")
        return None

    async def _send_vectors(self, memories: Sequence[OpenedMemory]) -> None:
        for wait in (*(() if self._provider_is_away else self._retry_seconds), None):
            try:
                await self._embedding.send_vectors(memories)
            except ProviderError as error:
                self._counters.count(f"embedding_{error.reason}")
                log.warning("The embedding provider failed (%s)", error.reason)
                if wait is None:
                    self._provider_is_away = True
                    return
                await asyncio.sleep(wait)
            else:
                self._provider_is_away = False
                return


class UnembeddedStore(Protocol):
    """The memories that have no vector of a model (sql/index_store.py)."""

    async def without_vector(
        self, model: str, partitions: Sequence[int], after: str = ..., age: timedelta = ..., limit: int = ...
    ) -> list[SealedMemory]: ...


class Sweep:
    """Embeds what has no vector of the current model: the provider was away, or the model is another now.

    `partitions` are those that this worker owns; nothing is done unless `quiet`, while the log still holds
    vectors that the index has not read.
    """

    def __init__(
        self,
        store: UnembeddedStore,
        embedding: MemoryEmbedding,
        partitions: Callable[[], Collection[int]],
        quiet: Callable[[], bool],
        *,
        age: timedelta = SWEEP_AGE,
    ) -> None:
        self._store = store
        self._embedding = embedding
        self._partitions = partitions
        self._quiet = quiet
        self._age = age

    async def run(self, seconds: float = SWEEP_SECONDS) -> None:
        """Sweep every `seconds` until cancelled."""
        while True:
            await asyncio.sleep(seconds)
            try:
                await self.once()
            except (StoreUnavailable, ProviderError) as error:
                log.info("Not all could be embedded (%s): again in %s s", type(error).__name__, seconds)

    async def once(self) -> int:
        """Embed all that lack a vector; how many got one. ProviderError, StoreUnavailable: not all could be read."""
        sent, after = 0, "00000000-0000-0000-0000-000000000000"
        while self._quiet() and (partitions := sorted(self._partitions())):
            page = await self._store.without_vector(self._embedding.model, partitions, after, self._age)
            if not page:
                break
            sent += await self._embedding.send_vectors([m for m in map(self._opened, page) if m is not None])
            after = page[-1].memory_id
        return sent

    def _opened(self, memory: SealedMemory) -> OpenedMemory | None:
        try:
            return self._embedding.open(memory)
        except (DestroyedKey, LookupError, CannotOpen):
            return None
