"""One recall: embed the query, search, rank, open, answer. Nothing that fails here ends a turn (R28)."""

import asyncio
import logging
from dataclasses import dataclass, field

from agents.opening import CannotBeOpened, MemoryOpener, answer_memory
from agents.ports import Counters, Embedder, RecallIndex, Sealer
from models.candidates import Candidates
from models.memory import MemoryContent
from models.query import query_terms
from models.ranking import PathScore, Ranked, Ranking, RankingRules
from models.recall import Degraded, Explanation, PathReason, RecallRequest, RecallResponse
from models.store_errors import StoreUnavailable
from models.tokens import query_tokens
from models.utterance import WideningRules, widened

log = logging.getLogger(__name__)

# What is left of the deadline after this share is the index's, so that a slow provider still leaves time
# for the most recent memories.
EMBEDDING_SHARE = 0.75
# More of an utterance says nothing more about its subject, and takes the model longer.
SEARCHED_CHARACTERS = 1_000


@dataclass(frozen=True, slots=True)
class RecallRules:
    """Settings of a recall: candidates of each path, memories of an answer unless it says, seconds in all."""

    widening: WideningRules
    candidates: int = 20
    limit: int = 12
    query_terms: int = 20
    deadline_seconds: float = 0.3
    ranking: RankingRules = field(default_factory=RankingRules)


class Recall:
    """Answers recalls. Everything it needs is an argument; it keeps nothing between two of them."""

    def __init__(
        self,
        *,
        index: RecallIndex,
        embedder: Embedder,
        opener: MemoryOpener,
        sealer: Sealer,
        counters: Counters,
        rules: RecallRules,
    ) -> None:
        self._index = index
        self._embedder = embedder
        self._opener = opener
        self._sealer = sealer
        self._counters = counters
        self._rules = rules

    async def recall(self, request: RecallRequest) -> RecallResponse:
        """The memories for a request; never an error, `degraded` says what failed."""
        started = asyncio.get_running_loop().time()
        query = self._query(request)
        vector, vector_trouble = await self._embed(query, started)
        found, index_trouble = await self._search(request, query, vector, started)
        memories: list[tuple[Ranked, MemoryContent]] = []
        keys_trouble = None
        if found is not None:
            memories, keys_trouble = self._choose(found, request, searched=vector is not None)
        degraded = index_trouble or vector_trouble or keys_trouble
        if degraded is not None:
            self._counters.count(f"recall_degraded_{degraded}")
        return RecallResponse(
            memories=tuple(
                answer_memory(
                    ranked.memory, content, ranked.score, _explain(ranked) if request.explain else None
                )
                for ranked, content in memories
            ),
            query=query,
            degraded=degraded,
            offline=(vector is not None and self._embedder.offline)
            or any(ranked.memory.offline for ranked, _ in memories),
        )

    def _query(self, request: RecallRequest) -> str:
        said = [text.replace("\x00", " ") for text in (*request.recent_user_messages, request.query)]
        return widened(said[-1], said[:-1], self._rules.widening)[:SEARCHED_CHARACTERS]

    async def _embed(self, query: str, started: float) -> tuple[list[float] | None, Degraded | None]:
        if not query:
            return None, None
        try:
            async with asyncio.timeout_at(started + self._rules.deadline_seconds * EMBEDDING_SHARE):
                return await self._embedder.embed_query(query), None
        except TimeoutError:
            return None, "embedding_timeout"
        except Exception as error:  # noqa: BLE001  # whatever a provider raises, the turn goes on
            log.warning("The query was not embedded: %s", type(error).__name__)
            return None, "embedding_failed"

    async def _search(
        self, request: RecallRequest, query: str, vector: list[float] | None, started: float
    ) -> tuple[Candidates | None, Degraded | None]:
        # Without a vector the most recent answer, as many as were asked for.
        limit = self._rules.candidates if vector is not None else self._limit(request)
        terms = query_terms(query, self._rules.query_terms) if vector is not None else ()
        filters = request.filters
        try:
            async with asyncio.timeout_at(started + self._rules.deadline_seconds):
                found = await self._index.candidates(
                    request.user_id,
                    request.character_ids,
                    query_vector=vector,
                    model=self._embedder.model,
                    token_hashes=[self._sealer.hash_token(token) for token in query_tokens(terms)],
                    limit=limit,
                    slots=self._rules.ranking.slots,
                    slot_importance=self._rules.ranking.slot_importance,
                    kinds=filters.kinds or None,
                    date_from=filters.date_from,
                    date_to=filters.date_to,
                    source_modes=filters.source_modes or None,
                )
        except TimeoutError:
            return None, "index_timeout"
        except StoreUnavailable:
            return None, "index_unavailable"
        except Exception as error:  # noqa: BLE001  # an answer without memories is better than none
            log.warning("The index failed: %s", type(error).__name__)
            return None, "index_failed"
        return found, None

    def _choose(
        self, found: Candidates, request: RecallRequest, *, searched: bool
    ) -> tuple[list[tuple[Ranked, MemoryContent]], Degraded | None]:
        """Rank, open, and rank again without what did not open, until all do."""
        limit = self._limit(request)
        opened: dict[str, MemoryContent] = {}
        closed: set[str] = set()
        unknown = False
        while True:
            ranking = Ranking(found, self._rules.ranking, closed)
            chosen = self._searched(ranking, request, limit) if searched and _any(found) else []
            # Nothing has been embedded yet: the most recent are better than nothing (R14).
            chosen = chosen or ranking.recent(limit)
            before = len(closed)
            for ranked in chosen:
                memory = ranked.memory
                if memory.memory_id in opened:
                    continue
                try:
                    opened[memory.memory_id] = self._opener.open(memory)
                except CannotBeOpened as error:
                    self._counters.count(f"memory_{error.reason}")
                    unknown = unknown or error.reason == "unknown_key"
                    closed.add(memory.memory_id)
            if len(closed) == before:
                trouble: Degraded | None = "keys_unavailable" if unknown else None
                return [(ranked, opened[ranked.memory.memory_id]) for ranked in chosen], trouble

    def _searched(self, ranking: Ranking, request: RecallRequest, limit: int) -> list[Ranked]:
        if request.mode == "latest":
            # The current value alone, unless a limit asks for the history (R20).
            return ranking.latest(request.limit or 1)
        return ranking.search(limit)

    def _limit(self, request: RecallRequest) -> int:
        return request.limit or self._rules.limit


def _any(found: Candidates) -> bool:
    return bool(found.vector or found.keyword)


def _explain(ranked: Ranked) -> Explanation:
    return Explanation(
        vector=_path(ranked.vector),
        keyword=_path(ranked.keyword),
        recent_rank=ranked.recent,
        decay=ranked.decay,
        slot=ranked.slot,
    )


def _path(path: PathScore | None) -> PathReason | None:
    if path is None:
        return None
    return PathReason(rank=path.rank, raw=path.raw, score=path.score, share=path.share)
