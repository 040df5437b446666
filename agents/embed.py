"""The embed step: `memory.created` to `memory.embedded` (R14). What stays without a vector is the sweep's."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from agents.codec import DestroyedKey
from agents.embedding import MemoryEmbedding, OpenedMemory
from agents.patience import when_known
from agents.ports import CannotOpen, Counters, DeadLetters, Fault, ProviderError
from agents.published import parse_created
from models.index_rows import SealedMemory
from models.messages import InvalidEvent
from models.records import Record

log = logging.getLogger(__name__)

KEY_SECONDS = 30.0
# A provider that asks for a longer pause gets it from the sweep: the log behind must not wait.
MAX_RETRY_AFTER = 30.0
# So many memories are embedded before their tokens are sent, and so long these wait.
TOGETHER = 8
TOKENS_WAIT_SECONDS = 2.0


class Progress(Protocol):
    """How far this step has come, by partition: of its own, so that a rebuilt index is not embedded again."""

    def next_offset(self, partition: int) -> int: ...

    def advance(self, partition: int, next_offset: int) -> None: ...


class Embed:
    """Handles batches of `memory.created`: tokens and vectors.

    A provider that fails is tried again after each of `retry_seconds`; then the memories stay without a
    vector until a sweep, and what comes next is tried once, until the provider is back. Tokens wait for a
    vector `tokens_wait` seconds at most.
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
        retry_seconds: Sequence[float],
        tokens_wait: float = TOKENS_WAIT_SECONDS,
    ) -> None:
        self._embedding = embedding
        self._progress = progress
        self._dead = dead
        self._counters = counters
        self._fault = fault
        self._key_seconds = key_seconds
        self._retry_seconds = tuple(retry_seconds)
        self._tokens_wait = tokens_wait
        self._provider_is_away = False
        self._retry_after = 0.0

    async def handle_batch(self, records: Sequence[Record]) -> None:
        partition = records[0].partition
        start = self._progress.next_offset(partition)
        fresh = [record for record in records if record.offset >= start and record.value is not None]
        found = await asyncio.gather(*(self._open(record) for record in fresh))
        memories = [memory for memory in found if memory is not None]
        self._fault("indexer.before_embedded")
        missing: list[OpenedMemory] = []
        for at in range(0, len(memories), TOGETHER):
            missing += await self._send(memories[at : at + TOGETHER])
        if missing:
            await self._try_again(missing)
        self._progress.advance(partition, records[-1].offset + 1)

    async def _send(self, memories: Sequence[OpenedMemory]) -> Sequence[OpenedMemory]:
        """Tokens and vectors of a few memories; those whose provider failed.

        The tokens make a memory covered (I11). They wait a little for the vector, so that what is covered is
        also found by its meaning; but for no provider that is slow or away.
        """
        vectors = asyncio.create_task(self._vectors(memories))
        try:
            if not self._provider_is_away:
                await asyncio.wait([vectors], timeout=self._tokens_wait)
            await asyncio.gather(*(self._embedding.send_tokens(memory) for memory in memories))
            return [] if await vectors else memories
        finally:
            vectors.cancel()

    async def _vectors(self, memories: Sequence[OpenedMemory]) -> bool:
        """Whether the provider answered. Texts that it cannot embed are left to the sweep."""
        try:
            await self._embedding.send_vectors(memories)
        except ProviderError as error:
            self._counters.count(f"embedding_{error.reason}")
            log.warning("The embedding provider failed (%s)", error.reason)
            self._retry_after = error.retry_after or 0
            return False
        self._provider_is_away = False
        return True

    async def _try_again(self, memories: Sequence[OpenedMemory]) -> None:
        """After each wait (R14), and not before the provider said; at last leave them to the sweep."""
        for wait in () if self._provider_is_away else self._retry_seconds:
            await asyncio.sleep(max(wait, min(self._retry_after, MAX_RETRY_AFTER)))
            if await self._vectors(memories):
                return
        self._provider_is_away = True

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
