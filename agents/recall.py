"""One recall: embed the query, search, rank, open, answer. Nothing that fails here ends a turn (R28)."""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agents.explanation import explain_other, explain_returned
from agents.opening import CannotBeOpened, MemoryOpener, answer_memory
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
    """What an answer holds: memories with their texts, the ranking they came from, and what was not to be had."""

    memories: list[tuple[Ranked, MemoryContent]]
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
        ranks = self._rules.profiles.ranks(request.profile, request.character_ids, request.limit)
        scope = _scope(request)
        end = asyncio.get_running_loop().time() + self._rules.deadline_seconds
        if request.mode == "exhaustive":
            answer = await self._everything(request, scope, ranks.limit, end)
        else:
            answer = await self._search(request, scope, ranks, end)
        if answer.degraded is not None:
            self._counters.count(f"recall_degraded_{answer.degraded}")
        return answer

    async def _search(self, request: RecallRequest, scope: Scope, ranks: Ranks, end: float) -> RecallResponse:
        query = self._query(request)
        vector, vector_trouble = await self._embed(query, end)
        # Without a vector the most recent answer, as many as were asked for.
        terms = query_terms(query, self._rules.query_terms) if vector is not None else ()
        found, index_trouble = await self._asked(
            self._index.candidates(
                scope,
                query_vector=vector,
                model=self._embedder.model,
                token_hashes=[self._sealer.hash_token(scope.user_id, token) for token in query_tokens(terms)],
                limit=self._rules.candidates if vector is not None else ranks.limit,
                slots=ranks.rules.slots,
                slot_importance=ranks.rules.slot_importance,
            ),
            end,
        )
        chosen = self._choose(found or Candidates(), request, ranks, searched=vector is not None)
        explained, cursor, page_trouble = None, None, None
        if request.explain:
            explained, cursor, page_trouble = await self._explain(request, scope, chosen, vector, end)
        return RecallResponse(
            memories=tuple(
                answer_memory(
                    ranked.memory,
                    content,
                    ranked.score,
                    explain_returned(ranked) if request.explain else None,
                )
                for ranked, content in chosen.memories
            ),
            query=query,
            degraded=index_trouble or page_trouble or vector_trouble or chosen.trouble,
            offline=(vector is not None and self._embedder.offline)
            or any(ranked.memory.offline for ranked, _ in chosen.memories),
            cursor=cursor,
            explained=explained,
        )

    async def _everything(
        self, request: RecallRequest, scope: Scope, limit: int, end: float
    ) -> RecallResponse:
        """A page of everything that passes the filters (R29)."""
        page, trouble = await self._asked(
            self._index.exhaustive(scope, limit=limit, cursor=request.cursor), end
        )
        page = page or MemoryPage((), request.cursor)
        opened: list[tuple[Candidate, MemoryContent]] = []
        unknown = False
        for memory in page.memories:
            content, reason = self._open(memory)
            unknown = unknown or reason == "unknown_key"
            if content is not None:
                opened.append((memory, content))
        return RecallResponse(
            memories=tuple(answer_memory(memory, content) for memory, content in opened),
            query=request.query,
            degraded=trouble or ("keys_unavailable" if unknown else None),
            offline=any(memory.offline for memory, _ in opened),
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
            return await _within(self._embedder.embed_query(query), until), None
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
            return await _within(work, end), None
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
                    [(ranked, opened[ranked.memory.memory_id]) for ranked in chosen],
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
        returned = {ranked.memory.memory_id for ranked, _ in chosen.memories}
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


def _scope(request: RecallRequest) -> Scope:
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


async def _within(work: Coroutine[Any, Any, T], end: float) -> T:
    """What the work gives until `end` (the loop's time); TimeoutError then, whether it lets itself be ended or not.

    A driver that is cancelled waits for its server to agree, which one that hangs never does.
    """
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=max(0.0, end - asyncio.get_running_loop().time()))
    except asyncio.CancelledError:
        task.cancel()
        raise
    if done:
        return task.result()
    task.cancel()
    # Its end is nobody's concern any more; unread, asyncio would log it.
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    raise TimeoutError
