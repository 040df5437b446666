"""From a model's raw answer to a checked memory (R5, R10): what is wrong is dropped and counted.

The answer is one JSON object, keys in camelCase or snake_case. Either `{"nothing": true}`, or:

    {"summary": "…",                                         what happened, in the language of the talk
     "keyDetails": [{"type": "quote", "speaker": "user" or a character, "text": "verbatim", "context": "…"},
                    {"type": "action", "actor": "…", "text": "…", "context": "…"}],
     "importance": 1–10, "searchTerms": ["…"], "involved": ["…"],
     "plans": [{"date": "2026-03-20" or "2026-03" or "2026", "text": "…"}],
     "date": "2026-03-02", "category": "…" or null,
     "relationshipStates": [{"character": "…", "summary", "formOfAddress", "tone", "currentState",
                             "unkeptPromises": [≤ 5], "limits": [≤ 5]}]}   or an object of them by character
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime

from models.answer import BadAnswer, clean, find_answer, fold_keys
from models.dates import find_dates
from models.language import language_of
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
from models.quotes import USER, WindowText, known_speaker, squeeze
from models.requests import WindowRequest
from models.states import read_relationships
from models.voice import in_character, other_language

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


def judge(raw: str, request: WindowRequest, *, lenient: bool = False) -> Judged:
    """Read and check a provider's answer to `request`. Raises BadAnswer and nothing else.

    In a memory at least one key detail must be of the user (what they say in a scene, they say to all
    in it), and the summary is in the language of the talk. Otherwise: BadAnswer("no_user_detail") or
    BadAnswer("other_language"), which a second answer may mend. To be `lenient` is to quote the user's longest line
    instead, verbatim, and to take the other language.
    """
    data = find_answer(raw)
    if _true(data.get("nothing")):
        if data.get("summary") or data.get("keydetails"):
            raise BadAnswer("contradictory")
        return Judged()
    summary = _text(data.get("summary"))
    if not summary:
        raise BadAnswer("no_summary")
    if len(summary) > MAX_SUMMARY:
        raise BadAnswer("summary_too_long")
    if in_character(summary, request.messages):
        raise BadAnswer("in_character")
    dropped: Counter[str] = Counter()
    if other_language(summary, request.messages):
        if not lenient:
            raise BadAnswer("other_language")
        dropped["language"] += 1
    plans, undated = _plans(data.get("plans"), request, dropped)
    content = MemoryContent(
        summary=summary,
        key_details=_details(data.get("keydetails"), undated, request, lenient, dropped),
        search_terms=_names(data.get("searchterms"), "search_terms", MAX_TERM, MAX_TERMS, dropped),
        involved=_names(data.get("involved"), "involved", MAX_NAME, MAX_INVOLVED, dropped),
        plans=plans,
        category=_category(data.get("category"), dropped),
    )
    memory = ExtractedMemory(
        content=content,
        importance=_importance(data.get("importance"), dropped),
        date=_date(data.get("date"), request, dropped),
    )
    return Judged(memory, read_relationships(data, request, dropped), dropped)


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
    value: object,
    undated: Sequence[Action],
    request: WindowRequest,
    quote_user: bool,
    dropped: Counter[str],
) -> tuple[KeyDetail, ...]:
    window = WindowText(request.messages, request.character_ids)
    given = (_detail(entry, request, window) for entry in _entries(value, "details", dropped))
    details: list[KeyDetail] = []
    room = MAX_DETAILS_TOTAL
    for detail in (*given, *undated):
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
    if kind != "quote":
        return None
    return _quote(speaker, text, context, window)


def _quote(speaker: str | None, text: str, context: str, window: WindowText) -> Quote | None:
    """The quote in the window's own words, by who said them; a line that is almost it; None if nobody did."""
    words = window.find(speaker, text) if speaker else None
    if words is None and speaker and (said := window.anyone(text)):
        speaker, words = said
    if words is None and speaker:
        words = window.closest(speaker, text)
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


def _plans(
    value: object, request: WindowRequest, dropped: Counter[str]
) -> tuple[tuple[Plan, ...], list[Action]]:
    """The dated plans; and as actions those whose words leave the day open, so that they are not lost."""
    plans: dict[Plan, None] = {}
    undated: list[Action] = []
    for entry in _entries(value, "plans", dropped):
        words, text = _text(entry.get("date")), _text(entry.get("text"))
        when = _plan_date(words, request)
        try:
            if when is None and words and text and not any(letter.isdigit() for letter in words):
                undated.append(Action(actor=USER, text=text, context=words))
                continue
            plan = Plan(date=when or "", text=text)
        except ValueError:  # pydantic's ValidationError is one
            dropped["plans"] += 1
            continue
        if len(plans) < MAX_PLANS:
            plans[plan] = None
        else:
            dropped["plans"] += 1
    return tuple(plans), undated


def _plan_date(value: str, request: WindowRequest) -> str | None:
    """A day, a month or a year that exists and that one may plan for; words against the message they stand in."""
    iso = value[:10]
    try:
        day = date.fromisoformat(iso + {4: "-01-01", 7: "-01"}.get(len(iso), ""))
    except ValueError:
        language = language_of(value)
        found = find_dates(value, _said_on(value, request), language, "ahead") if language else []
        return found[0].iso if len(found) == 1 else None
    return iso if _possible(day, request) else None


def _possible(day: date, request: WindowRequest) -> bool:
    """Whether a talk of that time can be about the day: nobody alive was there before EARLIEST_YEAR."""
    return EARLIEST_YEAR <= day.year <= event_day(request).year + YEARS_AHEAD


def _said_on(words: str, request: WindowRequest) -> date:
    """The day of the message that holds the words, of the last one of the user otherwise."""
    wanted = squeeze(words).casefold()
    for message in request.messages:
        if wanted in squeeze(message.text).casefold():
            return datetime.fromisoformat(message.sent_at).date()
    return event_day(request)


def _category(value: object, dropped: Counter[str]) -> str | None:
    category = _text(value)
    if len(category) > MAX_NAME:
        dropped["category"] += 1
        return None
    return category or None


def _importance(value: object, dropped: Counter[str]) -> int:
    if isinstance(value, str) and re.fullmatch(r"\d{1,6}(?:\.\d{1,6})?", value.strip(), re.ASCII):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        if value is not None:
            dropped["importance"] += 1
        return DEFAULT_IMPORTANCE
    return round(min(10, max(1, value)))


def _date(value: object, request: WindowRequest, dropped: Counter[str]) -> date:
    """The day of the event: as given, in figures or in words; the day of the talk where that says no day."""
    day = event_day(request)
    words = _text(value)
    if value is None or value == "":
        return day
    try:
        found = date.fromisoformat(words[:10])
    except ValueError:
        language = language_of(words)
        dated = find_dates(words, _said_on(words, request), language, "past") if language else []
        days = [one.iso for one in dated if len(one.iso) == 10]
        found = date.fromisoformat(days[0]) if len(days) == 1 else date.min
    if not _possible(found, request):
        dropped["date"] += 1
        return day
    return found
