"""From a model's raw answer to a checked memory (R5, R10): what is wrong is dropped and counted.

The answer is one JSON object, keys in camelCase or snake_case. Either `{"nothing": true}`, or:

    {"summary": "…",                                         what happened, in the language of the talk
     "keyDetails": [{"type": "quote", "speaker": "user" or a character, "text": "verbatim", "context": "…"},
                    {"type": "action", "actor": "…", "text": "…", "context": "…"}],
     "importance": 1–10, "searchTerms": ["…"], "involved": ["…"],
     "plans": [{"date": "2026-03-20" or "2026-03" or "2026", "text": "…"}],
     "date": "2026-03-02", "category": "…" or null,
     "relationshipStates": {"<character>": {"summary", "formOfAddress", "tone", "currentState",
                                            "unkeptPromises": [≤ 5], "limits": [≤ 5]}}}
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime

from pydantic import ValidationError

from models.answer import BadAnswer, clean, find_answer, fold_keys
from models.memory import (
    MAX_DETAIL_TEXT,
    MAX_DETAILS,
    MAX_PLANS,
    MAX_SUMMARY,
    MAX_TERM,
    MAX_TERMS,
    Action,
    ExtractedMemory,
    KeyDetail,
    MemoryContent,
    Plan,
    Quote,
    RelationshipState,
)
from models.quotes import USER, WindowText, known_speaker
from models.requests import WindowRequest

DEFAULT_IMPORTANCE = 5
MAX_INVOLVED = 32
MAX_NAME = 100
# All key details of a memory together, in characters: a record must stay below the broker's 1 MB.
MAX_DETAILS_TOTAL = 50_000
EARLIEST_YEAR, YEARS_AHEAD = 1900, 50


@dataclass(frozen=True, slots=True)
class Judged:
    """What came of an answer. `memory` None: nothing to keep. `dropped` counts bad entries by kind.

    A relationship state of None keeps the old one.
    """

    memory: ExtractedMemory | None = None
    relationships: dict[str, RelationshipState | None] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)


def judge(raw: str, request: WindowRequest, *, quote_user: bool = False) -> Judged:
    """Read and check a provider's answer to `request`. Raises BadAnswer and nothing else.

    In a memory at least one key detail must be of the user (what they say in a scene, they say to all
    in it). Without one: BadAnswer("no_user_detail"), or with `quote_user` their longest line, verbatim.
    """
    data = find_answer(raw)
    summary = data.get("summary")
    if _true(data.get("nothing")):
        if data.get("summary") or data.get("keydetails"):
            raise BadAnswer("contradictory")
        return Judged()
    if not isinstance(summary, str) or not clean(summary):
        raise BadAnswer("no_summary")
    if len(clean(summary)) > MAX_SUMMARY:
        raise BadAnswer("summary_too_long")
    dropped: Counter[str] = Counter()
    content = MemoryContent(
        summary=clean(summary),
        key_details=_details(data.get("keydetails"), request, quote_user, dropped),
        search_terms=_names(data.get("searchterms"), "search_terms", MAX_TERM, MAX_TERMS, dropped),
        involved=_names(data.get("involved"), "involved", MAX_NAME, MAX_INVOLVED, dropped),
        plans=_plans(data.get("plans"), dropped),
        category=_category(data.get("category"), dropped),
    )
    day = event_day(request)
    memory = ExtractedMemory(
        content=content,
        importance=_importance(data.get("importance"), dropped),
        date=_date(data.get("date"), day, dropped),
    )
    return Judged(memory, _relationships(data, request, dropped), dropped)


def event_day(request: WindowRequest) -> date:
    """The day of the event: that of the last user message, in its own offset (I9)."""
    lines = [m for m in request.messages if m.role == "user"] or list(request.messages)
    return datetime.fromisoformat(lines[-1].sent_at).date() if lines else date(1970, 1, 1)


def _true(value: object) -> bool:
    return value is True or (isinstance(value, str) and value.strip().lower() == "true")


def _text(value: object) -> str:
    return clean(value) if isinstance(value, str) else ""


def _entries(value: object, kind: str, dropped: Counter[str]) -> Iterator[dict[str, object]]:
    """The objects of a list, with folded keys; what is none is counted."""
    if value is None:
        return
    for entry in value if isinstance(value, list) else [value]:
        if isinstance(entry, dict):
            yield fold_keys(entry)
        else:
            dropped[kind] += 1


def _details(
    value: object, request: WindowRequest, quote_user: bool, dropped: Counter[str]
) -> tuple[KeyDetail, ...]:
    window = WindowText(request.messages, request.character_ids)
    details: list[KeyDetail] = []
    room = MAX_DETAILS_TOTAL
    for entry in _entries(value, "details", dropped):
        detail = _detail(entry, request, window)
        size = len(detail.text) + len(detail.context) if detail else 0
        if detail is None or detail in details or len(details) >= MAX_DETAILS or size > room:
            dropped["details"] += 1
            continue
        room -= size
        details.append(detail)
    line = window.longest(USER)
    if line is not None and not any(_who(detail) == USER for detail in details):
        if not quote_user:
            raise BadAnswer("no_user_detail")
        details = [Quote(speaker=USER, text=line[:MAX_DETAIL_TEXT].strip()), *details[: MAX_DETAILS - 1]]
    return tuple(details)


def _who(detail: KeyDetail) -> str:
    return detail.speaker if isinstance(detail, Quote) else detail.actor


def _detail(entry: dict[str, object], request: WindowRequest, window: WindowText) -> KeyDetail | None:
    kind = _text(entry.get("type")).lower() or ("action" if "actor" in entry else "quote")
    name = _text(entry.get("speaker")) or _text(entry.get("actor"))
    text, context = _text(entry.get("text")), _text(entry.get("context"))
    if len(context) > MAX_DETAIL_TEXT:
        context = ""
    if not name or not text or len(name) > MAX_NAME:
        return None
    speaker = known_speaker(name, request.user_id, request.character_ids)
    if kind == "action":
        if len(text) > MAX_DETAIL_TEXT:
            return None
        return Action(actor=speaker or name, text=text, context=context)
    words = window.find(speaker, text) if kind == "quote" and speaker else None
    if speaker is None or words is None or len(words) > MAX_DETAIL_TEXT:
        return None
    return Quote(speaker=speaker, text=words, context=context)


def _names(value: object, kind: str, length: int, number: int, dropped: Counter[str]) -> tuple[str, ...]:
    """Distinct short texts of a list."""
    names: dict[str, None] = {}
    entries: Iterable[object] = value if isinstance(value, list) else () if value is None else (value,)
    for entry in entries:
        name = _text(entry)
        if not name or len(name) > length or len(names) >= number:
            dropped[kind] += 1
        else:
            names[name] = None
    return tuple(names)


def _plans(value: object, dropped: Counter[str]) -> tuple[Plan, ...]:
    plans: dict[Plan, None] = {}
    for entry in _entries(value, "plans", dropped):
        try:
            plan = Plan(date=_plan_date(_text(entry.get("date"))), text=_text(entry.get("text")))
        except ValueError:  # pydantic's ValidationError is one
            dropped["plans"] += 1
            continue
        if len(plans) < MAX_PLANS:
            plans[plan] = None
        else:
            dropped["plans"] += 1
    return tuple(plans)


def _plan_date(value: str) -> str:
    """A day, a month or a year that exists; ValueError for others."""
    value = value[:10]
    date.fromisoformat(value + {4: "-01-01", 7: "-01"}.get(len(value), ""))
    return value


def _category(value: object, dropped: Counter[str]) -> str | None:
    category = _text(value)
    if len(category) > MAX_NAME:
        dropped["category"] += 1
        return None
    return category or None


def _importance(value: object, dropped: Counter[str]) -> int:
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
        value = int(value.strip()[:6])
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        if value is not None:
            dropped["importance"] += 1
        return DEFAULT_IMPORTANCE
    return round(min(10, max(1, value)))


def _date(value: object, day: date, dropped: Counter[str]) -> date:
    if value is None:
        return day
    try:
        found = date.fromisoformat(_text(value)[:10])
    except ValueError:
        found = date.min
    if not EARLIEST_YEAR <= found.year <= day.year + YEARS_AHEAD:
        dropped["date"] += 1
        return day
    return found


def _relationships(
    data: dict[str, object], request: WindowRequest, dropped: Counter[str]
) -> dict[str, RelationshipState | None]:
    given = data.get("relationshipstates")
    cast = request.character_ids
    if not isinstance(given, dict) and len(cast) == 1:
        given = {cast[0]: data.get("relationshipstate", given)}
    states: dict[str, RelationshipState | None] = {}
    for name, value in given.items() if isinstance(given, dict) else ():
        character = known_speaker(name, request.user_id, cast)
        if value is None:
            continue
        state = _state(value, request.relationships.get(character)) if character in cast else None
        if state is None or character is None:
            dropped["relationships"] += 1
        else:
            states[character] = state
    return {character: states.get(character) for character in cast}


def _state(value: object, shown: RelationshipState | None) -> RelationshipState | None:
    """A whole valid state, None otherwise. A field left out keeps what was shown; an empty state is none."""
    if not isinstance(value, dict):
        return None
    given = fold_keys(value)
    fields: dict[str, object] = {}
    for name, default in (shown or RelationshipState()).model_dump().items():
        entry = given.get(name.replace("_", ""), default)
        if entry is None:
            entry = () if isinstance(default, tuple) else ""
        if isinstance(default, tuple):
            entry = (
                [clean(x) if isinstance(x, str) else x for x in entry]
                if isinstance(entry, list | tuple)
                else entry
            )
        fields[name] = clean(entry) if isinstance(entry, str) else entry
    try:
        state = RelationshipState.model_validate(fields)
    except ValidationError:
        return None
    return state if state != RelationshipState() else None
