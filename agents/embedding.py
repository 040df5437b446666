"""Makes the `memory.embedded` records of a memory: its token hashes, and its vector (R14, R15)."""

import asyncio
import logging
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import ValidationError

from agents.codec import MemoryCipher, PairKeys
from agents.ports import CannotOpen, Counters, Embedder, ProviderError, Sealer
from models.index_rows import SealedMemory
from models.memory import MemoryContent
from models.published import TOKENS, MemoryEmbedded, embedded_key
from models.tokens import index_tokens

log = logging.getLogger(__name__)

MAX_BATCH = 100
NORM_TOLERANCE = 1e-3


class EmbeddedTopic(Protocol):
    """Sends to `memory.embedded`; returns when the broker has it, however long that takes."""

    async def send(self, user_id: str, key: bytes, value: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class OpenedMemory:
    """A memory with its own key and its text."""

    sealed: SealedMemory
    key: bytes
    content: MemoryContent


class MemoryEmbedding:
    """Opens memories, and sends what the index needs of them."""

    def __init__(
        self,
        *,
        cipher: MemoryCipher,
        keys: PairKeys,
        sealer: Sealer,
        embedder: Embedder,
        topic: EmbeddedTopic,
        counters: Counters,
    ) -> None:
        self._cipher = cipher
        self._keys = keys
        self._sealer = sealer
        self._embedder = embedder
        self._topic = topic
        self._counters = counters

    @property
    def model(self) -> str:
        return self._embedder.model

    def open(self, memory: SealedMemory) -> OpenedMemory:
        """The memory, opened. DestroyedKey; LookupError: a key is not known yet; CannotOpen: damaged."""
        at = (memory.memory_id, memory.user_id, memory.characters, memory.payload, self._keys)
        try:
            return OpenedMemory(memory, self._cipher.open_key(*at), self._cipher.open(*at))
        except ValidationError:
            # Its message quotes the text.
            raise CannotOpen("the payload holds no memory") from None

    async def send_tokens(self, memory: OpenedMemory) -> None:
        """The hashes of the search terms' tokens; of none too, so that the memory counts as indexed (R6, I11)."""
        tokens = index_tokens(memory.content.search_terms)
        if not tokens:
            log.warning("Memory %s has no search terms: keywords cannot find it", memory.sealed.memory_id)
            self._counters.count("memory_without_terms")
        hashes = sorted({self._sealer.hash_token(memory.sealed.user_id, token) for token in tokens})
        await self._send(memory, TOKENS, tokens=tuple(hashes), offline=False)

    async def send_vectors(self, memories: Sequence[OpenedMemory]) -> list[OpenedMemory]:
        """The vectors of the summaries; those that failed by themselves. ProviderError: the rest is missing."""
        failed: list[OpenedMemory] = []
        for start in range(0, len(memories), MAX_BATCH):
            batch = memories[start : start + MAX_BATCH]
            vectors = await self._embedder.embed_documents([memory.content.summary for memory in batch])
            if len(vectors) != len(batch):
                raise ProviderError("wrong_count")
            pairs = [(m, v) for m, v in zip(batch, vectors, strict=True) if v is not None]
            for _, vector in pairs:
                self._check(vector)
            failed += [memory for memory, vector in zip(batch, vectors, strict=True) if vector is None]
            await asyncio.gather(*(self._send_vector(memory, vector) for memory, vector in pairs))
            self._counters.count("vectors", len(pairs))
        if failed:
            self._counters.count("text_not_embedded", len(failed))
        return failed

    def _check(self, vector: Sequence[float]) -> None:
        """Refuse what is not a unit vector of the model's dimensions: one such row would spoil every ranking."""
        if len(vector) != self._embedder.dimensions:
            raise ProviderError("wrong_dimension")
        # A NaN makes the comparison false, too.
        if not abs(math.hypot(*vector) - 1) <= NORM_TOLERANCE:
            raise ProviderError("wrong_norm")

    async def _send_vector(self, memory: OpenedMemory, vector: Sequence[float]) -> None:
        data = struct.pack(f"<{len(vector)}f", *vector)
        sealed = self._cipher.seal_vector(memory.key, memory.sealed.memory_id, self.model, data)
        await self._send(memory, self.model, vector=sealed, offline=self._embedder.offline)

    async def _send(
        self,
        memory: OpenedMemory,
        what: str,
        *,
        offline: bool,
        tokens: tuple[str, ...] | None = None,
        vector: bytes | None = None,
    ) -> None:
        sealed = memory.sealed
        record = MemoryEmbedded(
            memory_id=sealed.memory_id,
            user_id=sealed.user_id,
            text_version=sealed.text_version,
            what=what,
            tokens=tokens,
            vector=vector,
            offline=offline,
        )
        key = embedded_key(sealed.memory_id, sealed.text_version, what)
        await self._topic.send(sealed.user_id, key, record.model_dump_json().encode())
