"""The offline extractor as a provider: a window in, an answer in JSON out, by rules alone."""

import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date, datetime

from agents.ports import Answered
from infra.offline_extractor.clauses import MAX_TEXT, Clause, clauses
from infra.offline_extractor.judgement import Statement, has_content, kept_statements, offers_of, promises_of
from infra.offline_extractor.lexicon import lexicon
from infra.offline_extractor.relationship import updated_state
from infra.offline_extractor.terms import search_terms
from models.dates import Dated, find_dates
from models.language import Language, language_of
from models.memory import Provenance
from models.quotes import USER, speaker_of, squeeze
from models.requests import WindowMessage, WindowRequest

OFFLINE_MODEL = "keepsake-rules"
VERSION = "2"

# The bounds of the answer stay below those of the parser, so that nothing of ours is dropped there.
MAX_QUOTES = 32
MAX_SUMMARY = 1_500
MAX_PLAN = 400
# So many messages on, an offer may be what a promise is about.
OFFER_REACH = 4


class OfflineExtractor:
    """An ExtractionProvider with no key and no network; the same window always gives the same answer."""

    async def extract(self, request: WindowRequest) -> Answered:
        provenance = Provenance(
            task=request.task,
            prompt="offline-rules",
            prompt_version=VERSION,
            provider="offline",
            model=OFFLINE_MODEL,
            offline=True,
        )
        return Answered(json.dumps(answer(request), ensure_ascii=True), provenance)


def answer(request: WindowRequest) -> dict[str, object]:
    """The answer in the format of models/extraction.py."""
    request = _composed(request)
    users = [(i, m) for i, m in enumerate(request.messages) if m.role == "user"]
    language = _language(m.text for _, m in users)
    spoken = [clause for i, m in users for clause in clauses(i, m.text, language_of(m.text) or language)]
    promises = _promises(request)
    kept = kept_statements(spoken, _answers(request), _asked(request))
    days = {i: _day(m) for i, m in enumerate(request.messages)}
    if not kept:
        # "I'll suggest it" to a joke is none; by itself a promise counts where it is a vow, or has its day.
        promises = [p for p in promises if _is_binding(p[2], days[p[0]])]
        if not promises:
            return {"nothing": True}
    statements = [Statement(c, _dates(c, days[c.index])) for c in kept]
    return {
        "summary": _summary(statements, promises),
        "keyDetails": _details(statements, promises, request),
        "importance": max([c.importance for c in kept] + [7 for _ in promises]),
        "searchTerms": search_terms((*(c.full for c in kept), *(text for _, _, text in promises)), language),
        "involved": _involved(request),
        "plans": _plans(statements, days),
        "date": _event_date(statements, days, users[-1][0] if users else None),
        "category": None,
        "relationshipStates": {
            character: state.model_dump() if state else None
            for character in request.character_ids
            for state in [
                updated_state(
                    request.relationships.get(character),
                    [m.text[:MAX_TEXT] for _, m in users],
                    kept,
                    [text for _, speaker, text in promises if speaker == character],
                    lexicon(language),
                )
            ]
        },
    }


def _promises(request: WindowRequest) -> list[tuple[int, str, str]]:
    """Index, speaker and sentence of what characters promised; with it what they had offered just before."""
    found: list[tuple[int, str, str]] = []
    offered: list[tuple[int, str, str]] = []
    for index, message in enumerate(request.messages):
        speaker = speaker_of(message, request.character_ids)
        if message.role != "assistant" or speaker is None:
            continue
        promised = [(index, speaker, text) for text in promises_of(message.text)]
        if promised:
            found += [offer for offer in offered if offer[1] == speaker and index - offer[0] <= OFFER_REACH]
            offered = []
        found += promised
        offered += [(index, speaker, text) for text in offers_of(message.text)]
    return found


def _composed(request: WindowRequest) -> WindowRequest:
    """The request with composed letters, which the rules are written in; the parser finds the quotes in any form."""
    return request.model_copy(
        update={
            "messages": tuple(
                m.model_copy(update={"text": unicodedata.normalize("NFC", m.text)}) for m in request.messages
            )
        }
    )


def _language(texts: Iterable[str]) -> Language:
    """The language of most messages."""
    counts = Counter(found for text in texts if (found := language_of(text)))
    return counts.most_common(1)[0][0] if counts else "en"


def _answers(request: WindowRequest) -> set[int]:
    """The indexes of messages right after one of a character's."""
    return {i + 1 for i, m in enumerate(request.messages) if m.role == "assistant"}


def _is_binding(text: str, said: date) -> bool:
    language = language_of(text)
    return language is not None and bool(
        lexicon(language).vow.search(text) or find_dates(text, said, language, "ahead")
    )


def _asked(request: WindowRequest) -> set[int]:
    """The indexes of messages right after a question of a character's."""
    return {
        i + 1
        for i, m in enumerate(request.messages)
        if m.role == "assistant" and m.text.rstrip().endswith(("?", "？"))
    }


def _dates(clause: Clause, said: date) -> tuple[Dated, ...]:
    ahead = clause.kind is not None and clause.kind.name == "plan"
    return tuple(find_dates(clause.full, said, clause.language, "ahead" if ahead else "near"))


def _day(message: WindowMessage) -> date:
    return datetime.fromisoformat(message.sent_at).date()


def _summary(statements: Sequence[Statement], promises: Sequence[tuple[int, str, str]]) -> str:
    """What was said, in its own words, days in figures; of too much the weightiest."""
    telling = [s for s in statements if has_content(s.clause)] or statements
    parts = [(s.clause.importance, s.clause.index, s.clause.start, s.dated_text()) for s in telling]
    parts += [(7, index, 0, f"{speaker}: {text}") for index, speaker, text in promises]
    chosen: list[tuple[int, int, str]] = []
    room = MAX_SUMMARY
    for _, index, start, text in sorted(parts, key=lambda part: (-part[0], part[1], part[2])):
        if len(text) + 2 <= room:
            room -= len(text) + 2
            chosen.append((index, start, text))
    return ". ".join(dict.fromkeys(text for _, _, text in sorted(chosen)))


def _details(
    statements: Sequence[Statement], promises: Sequence[tuple[int, str, str]], request: WindowRequest
) -> list[dict[str, str]]:
    quotes = [(s.clause.importance, s.clause.index, s.clause.start, USER, s.clause.text) for s in statements]
    quotes += [(8, index, 0, speaker, text) for index, speaker, text in promises]
    if not statements:
        # A promise alone: the user's words that it answers.
        before = [m.text for m in request.messages[: promises[0][0]] if m.role == "user" and m.text.strip()]
        quotes += [(8, -1, 0, USER, text[:MAX_PLAN]) for text in before[-1:]]
    best = sorted(quotes, key=lambda quote: (-quote[0], quote[1], quote[2]))[:MAX_QUOTES]
    # What differs in white space alone is one quote to the parser.
    spoken = {
        (speaker, squeeze(text)): text
        for _, _, _, speaker, text in sorted(best, key=lambda quote: (quote[1], quote[2]))
    }
    return [
        {"type": "quote", "speaker": speaker, "text": text, "context": ""}
        for (speaker, _), text in spoken.items()
    ]


def _plans(statements: Sequence[Statement], days: dict[int, date]) -> list[dict[str, str]]:
    plans = []
    for statement in statements:
        clause = statement.clause
        today = days[clause.index]
        ahead = [d for d in statement.dates if _is_plan(d, clause, today)]
        plans += [{"date": dated.iso, "text": clause.full[:MAX_PLAN]} for dated in ahead]
    return plans[:16]


def _is_plan(dated: Dated, clause: Clause, today: date) -> bool:
    """Later than the day it was said; or that day itself, where the words look ahead."""
    if len(dated.iso) < 10:
        return dated.iso > today.isoformat()[: len(dated.iso)]
    day = date.fromisoformat(dated.iso)
    return day > today or (day == today and bool(lexicon(clause.language).future.search(clause.text)))


def _event_date(statements: Sequence[Statement], days: dict[int, date], last: int | None) -> str | None:
    """The day of the weightiest statement: the past day that it names, else the day on which it was said."""
    if not statements:
        return days[last].isoformat() if last is not None else None
    best = max(statements, key=lambda s: s.clause.importance)
    today = days[best.clause.index]
    past = [d.iso for d in best.dates if len(d.iso) == 10 and d.iso < today.isoformat()]
    return past[0] if past else today.isoformat()


def _involved(request: WindowRequest) -> list[str]:
    """In a scene, the characters that spoke or were named; the one character otherwise."""
    if len(request.character_ids) == 1:
        return list(request.character_ids)
    speakers = {m.speaker for m in request.messages if m.role == "assistant"}
    text = " ".join(m.text[:MAX_TEXT] for m in request.messages if m.role == "user").casefold()
    found = [c for c in request.character_ids if c in speakers or c.casefold() in text]
    return found or list(request.character_ids)
