"""One recall: embed the query, search, rank, open, answer. Nothing that fails here ends a turn (R28)."""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agents.deadline import within
from agents.explanation import explain_other
from agents.found import Found, Recalled, answer_memories, any_offline
from agents.opening import CannotBeOpened, MemoryOpener
from agents.ports import Counters, Embedder, FailureReports, ProviderError, RecallIndex, Sealer
from agents.talk import Talk
from models.candidates import Candidate, Candidates, InvalidCursor, MemoryPage, Scope, ScopePage
from models.memory import MemoryContent
from models.profiles import Profiles, Ranks
from models.query import query_terms
from models.ranking import Ranked, Ranking
from models.recall import Degraded, Explained, RecallRequest, RecallResponse
from models.store_errors import StoreUnavailable
from models.tokens import query_tokens
from models.utterance import WideningRules, widened

log = logging.getLogger(__name__)

T = TypeVar("T")

# What is left of the deadline after this share is the index's, so that a slow provider still leaves time
# for the most recent memories.
EMBEDDING_SHARE = 0.75
# More of an utterance says nothing more about its subject, and takes the model longer.
SEARCHED_CHARACTERS = 1_000
# Memories in a page of what `explain` tells.
EXPLAINED_PAGE = 100


@dataclass(frozen=True, slots=True)
class RecallRules:
    """Settings of a recall: candidates of each path, terms of a keyword query, seconds in all."""

    widening: WideningRules
    profiles: Profiles = field(default_factory=Profiles)
    candidates: int = 20
    query_terms: int = 20
    deadline_seconds: float = 0.3


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The memories of an answer, the ranking they came from, and what was not to be had."""

    memories: list[Recalled]
    ranking: Ranking
    trouble: Degraded | None


class Recall:
    """Answers recalls. Everything it needs is an argument; it keeps nothing between two of them."""

    def __init__(
        self,
        *,
        index: RecallIndex,
        embedder: Embedder,
        opener: MemoryOpener,
        sealer: Sealer,
        talk: Talk,
        counters: Counters,
        reports: FailureReports,
        rules: RecallRules,
    ) -> None:
        self._index = index
        self._embedder = embedder
        self._opener = opener
        self._sealer = sealer
        self._talk = talk
        self._counters = counters
        self._reports = reports
        self._rules = rules

    async def recall(self, request: RecallRequest) -> RecallResponse:
        """The memories for a request; `degraded` says what failed. UnknownProfile and InvalidCursor are the only
        errors: the request itself is wrong."""
        found = await self.find(request)
        return RecallResponse(
            memories=answer_memories(found.memories, explain=request.explain),
            query=found.query,
            degraded=found.degraded,
            offline=found.offline,
            cursor=found.cursor,
            explained=found.explained,
        )

    async def find(self, request: RecallRequest) -> Found:
        """The same, not in its form for the wire."""
        ranks = self._rules.profiles.ranks(request.profile, request.character_ids, request.limit)
        scope = make_scope(request)
        end = asyncio.get_running_loop().time() + self._rules.deadline_seconds
        if request.mode == "exhaustive":
            found = await self._everything(request, scope, ranks.limit, end)
        else:
            found = await self._search(request, scope, ranks, end)
        if found.degraded is not None:
            self._counters.count(f"recall_degraded_{found.degraded}")
        return found

    async def _search(self, request: RecallRequest, scope: Scope, ranks: Ranks, end: float) -> Found:
        query = self._query(request)
        vector, vector_trouble = await self._embed(query, end)
        # Without a vector the most recent answer, as many as were asked for.
        terms = query_terms(query, self._rules.query_terms) if vector is not None else ()
        hashes = [self._sealer.hash_token(scope.user_id, token) for token in query_tokens(terms)]
        candidates, index_trouble = await self._asked(
            self._index.candidates(
                scope,
                query_vector=vector,
                model=self._embedder.model,
                token_hashes=hashes,
                limit=self._rules.candidates if vector is not None else ranks.limit,
                slots=ranks.rules.slots,
                slot_importance=ranks.rules.slot_importance,
            ),
            end,
        )
        chosen = self._choose(candidates or Candidates(), request, ranks, searched=vector is not None)
        explained, cursor, page_trouble = None, None, None
        if request.explain:
            explained, cursor, page_trouble = await self._explain(request, scope, chosen, vector, end)
        return Found(
            memories=chosen.memories,
            query=query,
            degraded=index_trouble or page_trouble or vector_trouble or chosen.trouble,
            offline=(vector is not None and self._embedder.offline) or any_offline(chosen.memories),
            cursor=cursor,
            explained=explained,
        )

    async def _everything(self, request: RecallRequest, scope: Scope, limit: int, end: float) -> Found:
        """A page of everything that passes the filters (R29)."""
        page, trouble = await self._asked(
            self._index.exhaustive(scope, limit=limit, cursor=request.cursor), end
        )
        page = page or MemoryPage((), request.cursor)
        memories: list[Recalled] = []
        unknown = False
        for memory in page.memories:
            content, reason = self._open(memory)
            unknown = unknown or reason == "unknown_key"
            if content is not None:
                memories.append(Recalled(memory, content))
        return Found(
            memories=memories,
            query=request.query,
            degraded=trouble or ("keys_unavailable" if unknown else None),
            offline=any_offline(memories),
            cursor=page.cursor,
        )

    def _query(self, request: RecallRequest) -> str:
        said = [text.replace("\x00", " ") for text in (*request.recent_user_messages, request.query)]
        return widened(said[-1], said[:-1], self._rules.widening)[:SEARCHED_CHARACTERS]

    async def _embed(self, query: str, end: float) -> tuple[list[float] | None, Degraded | None]:
        if not query:
            return None, None
        until = end - self._rules.deadline_seconds * (1 - EMBEDDING_SHARE)
        trouble: Degraded
        failure: Exception
        try:
            return await within(self._embedder.embed_query(query), until), None
        except TimeoutError as error:
            trouble, failure = "embedding_timeout", error
        except ProviderError as error:
            trouble = "embedding_suspended" if error.reason == "suspended" else "embedding_failed"
            failure = error
        except Exception as error:  # noqa: BLE001  # whatever a provider raises, the turn goes on
            trouble, failure = "embedding_failed", error
        self._report(trouble, failure)
        return None, trouble

    async def _asked(self, work: Coroutine[Any, Any, T], end: float) -> tuple[T | None, Degraded | None]:
        """What the index answers in time, else why not. InvalidCursor: the request's own fault."""
        trouble: Degraded
        failure: Exception
        try:
            return await within(work, end), None
        except InvalidCursor:
            raise
        except TimeoutError as error:
            trouble, failure = "index_timeout", error
        except StoreUnavailable as error:
            trouble, failure = "index_unavailable", error
        except Exception as error:  # noqa: BLE001  # an answer without memories is better than none
            trouble, failure = "index_failed", error
        self._report(trouble, failure)
        return None, trouble

    def _report(self, reason: Degraded, error: Exception) -> None:
        log.warning("A recall is degraded: %s (%s)", reason, type(error).__name__)
        self._reports.report(reason, error)

    def _choose(self, found: Candidates, request: RecallRequest, ranks: Ranks, *, searched: bool) -> _Chosen:
        """Rank, open, and rank again without what did not open, until all do."""
        opened: dict[str, MemoryContent] = {}
        closed: set[str] = set()
        unknown = False
        while True:
            ranking = Ranking(found, ranks.rules, closed)
            chosen: list[Ranked] = []
            if searched and (found.vector or found.keyword):
                # In mode latest the current value alone, unless a limit asks for the history (R20).
                is_latest = request.mode == "latest"
                chosen = ranking.latest(request.limit or 1) if is_latest else ranking.search(ranks.limit)
            # Nothing has been embedded yet: the most recent are better than nothing (R14).
            chosen = chosen or ranking.recent(ranks.limit)
            before = len(closed)
            for ranked in chosen:
                memory = ranked.memory
                if memory.memory_id in opened:
                    continue
                content, reason = self._open(memory)
                if content is not None:
                    opened[memory.memory_id] = content
                    continue
                unknown = unknown or reason == "unknown_key"
                closed.add(memory.memory_id)
            if len(closed) == before:
                return _Chosen(
                    [Recalled(ranked.memory, opened[ranked.memory.memory_id], ranked) for ranked in chosen],
                    ranking,
                    "keys_unavailable" if unknown else None,
                )

    def _open(self, memory: Candidate) -> tuple[MemoryContent | None, str | None]:
        try:
            return self._opener.open(memory), None
        except CannotBeOpened as error:
            self._counters.count(f"memory_{error.reason}")
            return None, error.reason

    async def _explain(
        self,
        request: RecallRequest,
        scope: Scope,
        chosen: _Chosen,
        vector: list[float] | None,
        end: float,
    ) -> tuple[Explained | None, str | None, Degraded | None]:
        """A page of what is in scope and not in the answer, and where the next page starts."""
        page, trouble = await self._asked(
            self._index.in_scope(
                scope,
                query_vector=vector,
                model=self._embedder.model,
                limit=EXPLAINED_PAGE,
                cursor=request.cursor,
            ),
            end,
        )
        page = page or ScopePage((), None)
        returned = {one.memory.memory_id for one in chosen.memories}
        outranked = chosen.ranking.fused_by_id() if vector is not None else {}
        others = tuple(
            explain_other(
                found,
                chosen.ranking.decay(found.memory),
                outranked,
                self._opener,
                by_meaning=vector is not None,
            )
            for found in page.memories
            if found.memory.memory_id not in returned
        )
        talk = None
        if request.cursor is None:
            talk = self._talk.states(request.user_id, request.character_ids)
        return Explained(others=others, talk=talk), page.cursor, trouble


def make_scope(request: RecallRequest) -> Scope:
    """Which memories a request looks at."""
    filters = request.filters
    return Scope(
        user_id=request.user_id,
        character_ids=tuple(dict.fromkeys(request.character_ids)),
        kinds=filters.kinds,
        categories=filters.categories,
        date_from=filters.date_from,
        date_to=filters.date_to,
        source_modes=filters.source_modes,
    )
