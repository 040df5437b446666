"""An embedder whose query vectors are kept, and that is left alone for a while when it fails (R28)."""

from collections.abc import Sequence

from cachetools import LRUCache

from agents.ports import Embedder, ProviderError
from infra.breaker import CircuitBreaker, Suspended

# A vector has 6 KB as a list of 768 floats.
CACHED_QUERIES = 2_048
# What a provider says of one text, and not of itself.
_OF_THE_TEXT = frozenset({"bad_request", "refused", "wrong_norm"})


class GuardedEmbedder:
    """Embeds as the one it is made of. ProviderError("suspended"): queries are not tried at the moment.

    The same query comes again and again: from the retries of a client, `explain`, and recall before context.
    """

    def __init__(
        self, embedder: Embedder, failures: int, seconds: float, cached: int = CACHED_QUERIES
    ) -> None:
        """After `failures` in a row no query is tried for `seconds`."""
        self._embedder = embedder
        self._breaker = CircuitBreaker(failures, seconds, excused=_is_of_the_text)
        self._vectors: LRUCache[str, list[float]] = LRUCache(cached)
        self.provider = embedder.provider
        self.model = embedder.model
        self.dimensions = embedder.dimensions
        self.offline = embedder.offline

    async def embed_documents(self, texts: Sequence[str]) -> list[list[float] | None]:
        return await self._embedder.embed_documents(texts)

    async def embed_query(self, text: str) -> list[float]:
        known = self._vectors.get(text)
        if known is not None:
            return known
        try:
            with self._breaker.call():
                vector = await self._embedder.embed_query(text)
        except Suspended:
            raise ProviderError("suspended") from None
        self._vectors[text] = vector
        return vector

    async def close(self) -> None:
        await self._embedder.close()


def _is_of_the_text(error: BaseException) -> bool:
    return isinstance(error, ProviderError) and error.reason in _OF_THE_TEXT
