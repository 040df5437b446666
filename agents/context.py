"""One context: what is recalled, where the pair stands and what was said last, as a prompt (R32–R37)."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, tzinfo
from typing import Any, Protocol, TypeVar

from agents.deadline import within
from agents.found import Found, Recalled, answer_memories
from agents.opening import CannotBeOpened, MemoryOpener
from agents.ports import LedgerView, RecallIndex
from agents.recall import Recall
from agents.talk import Talk, TalkThread
from models.candidates import Candidate, Coverage
from models.context import ContextDegraded, ContextMessage, ContextRequest, ContextResponse
from models.context_fit import Composed, ContextParts, compose, fit
from models.language import language_of
from models.memory import Plan, RelationshipState
from models.prompt_block import Reference, Remembered
from models.relative_time import Locale
from models.talk import Line, ThreadTalk, last_spoke, recent_talk, with_query

log = logging.getLogger(__name__)

T = TypeVar("T")

MARK_BYTES = 6
MOST_PLANNED = 50


class TokenEstimator(Protocol):
    """Estimates how many tokens a text takes; `name` says by which tokenizer."""

    name: str

    def count(self, text: str) -> int: ...


@dataclass(frozen=True, slots=True)
class ContextRules:
    """Settings of a context: turns of recent talk at least, how long a plan that has passed is told, the zone of days,
    and seconds for what is looked up."""

    zone: tzinfo
    turns: int = 6
    overdue: timedelta = field(default=timedelta(days=7))
    deadline_seconds: float = 0.3


@dataclass(frozen=True, slots=True)
class _RecentTalk:
    threads: list[ThreadTalk]
    relationships: tuple[tuple[str, RelationshipState], ...]
    is_known: bool


class Context:
    """Composes contexts. Nothing that fails here ends a turn, as with a recall."""

    def __init__(
        self,
        *,
        recall: Recall,
        index: RecallIndex,
        opener: MemoryOpener,
        talk: Talk,
        view: LedgerView,
        estimator: TokenEstimator,
        clock: Callable[[tzinfo], datetime],
        rules: ContextRules,
    ) -> None:
        self._recall = recall
        self._index = index
        self._opener = opener
        self._talk = talk
        self._view = view
        self._estimator = estimator
        self._clock = clock
        self._rules = rules

    async def context(self, request: ContextRequest) -> ContextResponse:
        """The context of a turn. BudgetTooSmall, UnknownProfile, InvalidCursor: the request itself is wrong."""
        now = self._now(request)
        characters = tuple(dict.fromkeys(request.character_ids))
        end = asyncio.get_running_loop().time() + self._rules.deadline_seconds
        turns = self._rules.turns if request.turns is None else request.turns
        found, talk, planned = await asyncio.gather(
            self._recall.find(request),
            self._recent(request.user_id, characters, turns, end),
            self._planned(request.user_id, characters, now.date(), end),
        )
        lines, query = with_query(talk.threads, request.recent_user_messages, request.query)
        locale = request.locale or _locale(request, lines)
        parts = ContextParts(
            persona=request.persona,
            character_ids=characters,
            locale=locale,
            mark=f"memories-{secrets.token_hex(MARK_BYTES)}",
            reference=Reference(
                now=now,
                last_spoke=last_spoke(lines, request.query),
                relationships=talk.relationships,
                due=_on(planned, now.date()),
                overdue=_before(planned, now.date()),
            ),
            memories=tuple(map(_remembered, found.memories)),
            talk=tuple(recent_talk(lines, turns)),
            query=query,
        )
        # Counting takes some milliseconds and a model's vocabulary: only where a budget asks for it.
        if request.token_budget is None:
            composed, tokens = compose(parts), None
        else:
            composed, tokens = fit(parts, request.token_budget, self._estimator.count)
        return self._response(found, composed, tokens, talk_known=talk.is_known)

    def _now(self, request: ContextRequest) -> datetime:
        if request.now is None:
            return self._clock(self._rules.zone)
        return request.now if request.now.tzinfo else request.now.replace(tzinfo=self._rules.zone)

    async def _recent(self, user: str, characters: Sequence[str], turns: int, end: float) -> _RecentTalk:
        """The last lines of every thread with any of the characters. What is covered is PostgreSQL's to say: while it
        cannot, everything that is still kept is recent talk, so that there is no hole (I11)."""
        if not self._view.complete:
            return _RecentTalk([], (), is_known=False)
        try:
            threads = self._talk.threads(user, characters)
            covered = await _in_time(self._covered(user, threads), end, {})
            # One turn more than is shown tells when they last spoke.
            found = self._talk.lines(user, threads, covered, turns + 1)
            return _RecentTalk(found, self._talk.relationships(user, characters), is_known=True)
        except Exception as error:  # noqa: BLE001  # rows that cannot be read end no turn either
            log.warning("The view cannot be read: %s", type(error).__name__)
            return _RecentTalk([], (), is_known=False)

    async def _covered(self, user: str, threads: Sequence[TalkThread]) -> Mapping[str, Coverage]:
        positions = await asyncio.gather(
            *(self._index.coverage(user, thread.character_ids, thread.row.epoch) for thread in threads)
        )
        return {thread.cast: position for thread, position in zip(threads, positions, strict=True)}

    async def _planned(self, user: str, characters: Sequence[str], today: date, end: float) -> list[Plan]:
        """The plans of today and of the days before that are still told, soonest first, each once."""
        first = today - self._rules.overdue
        work = self._index.with_plans(user, characters, first, today, MOST_PLANNED)
        plans: dict[tuple[str, str], Plan] = {}
        for memory in await _in_time(work, end, []):
            for plan in self._plans(memory):
                if first.isoformat() <= plan.date <= today.isoformat() and len(plan.date) == len(
                    "2026-03-20"
                ):
                    plans.setdefault((plan.date, plan.text), plan)
        return [plans[key] for key in sorted(plans)]

    def _plans(self, memory: Candidate) -> Sequence[Plan]:
        try:
            return self._opener.open(memory).plans
        except CannotBeOpened:
            return ()

    def _response(
        self, found: Found, composed: Composed, tokens: int | None, *, talk_known: bool
    ) -> ContextResponse:
        kept = {memory.memory_id for memory in composed.memories}
        degraded: ContextDegraded | None = found.degraded
        if degraded is None and not talk_known:
            degraded = "view_unavailable"
        if degraded is None and composed.dropped_talk:
            degraded = "talk_dropped"
        if degraded is None and composed.dropped_state:
            degraded = "state_dropped"
        return ContextResponse(
            system=composed.system,
            messages=tuple(
                ContextMessage.model_validate({"role": message.role, "content": message.content})
                for message in composed.messages
            ),
            memories=answer_memories([one for one in found.memories if one.memory.memory_id in kept]),
            degraded=degraded,
            offline=found.offline,
            tokens=tokens,
        )


async def _in_time(work: Coroutine[Any, Any, T], end: float, otherwise: T) -> T:
    """What the work gives in time, else `otherwise`. The recall beside it says what is wrong with PostgreSQL."""
    try:
        return await within(work, end)
    except Exception:  # noqa: BLE001  # whatever is away, the turn goes on without it
        return otherwise


def _remembered(one: Recalled) -> Remembered:
    memory = one.memory
    return Remembered(
        memory_id=memory.memory_id,
        date=memory.date,
        created_at=memory.created_at,
        content=one.content,
        is_kept_longest=memory.pinned or (one.ranked is not None and one.ranked.slot),
    )


def _on(plans: Sequence[Plan], day: date) -> tuple[Plan, ...]:
    return tuple(plan for plan in plans if plan.date == day.isoformat())


def _before(plans: Sequence[Plan], day: date) -> tuple[Plan, ...]:
    return tuple(plan for plan in plans if plan.date < day.isoformat())


def _locale(request: ContextRequest, lines: Sequence[Line]) -> Locale:
    """The language of what the user says, else of the persona; English where nothing tells."""
    said = [line.text for line in lines if line.role == "user"]
    texts = (request.query, *request.recent_user_messages, *reversed(said), request.persona)
    return next((locale for text in texts if (locale := language_of(text)) is not None), "en")
