"""Which clauses of a window are kept (R8): settled ones; none weighed, taken back or said in jest."""

import re
from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from datetime import date
from typing import Literal

from infra.offline_extractor.clauses import MAX_TEXT, Clause, Label, clauses
from infra.offline_extractor.daydreams import dreamt
from infra.offline_extractor.lexicon import lexicon
from infra.offline_extractor.options import settled
from infra.offline_extractor.terms import nouns, search_terms
from models.dates import Dated, find_dates
from models.language import language_of

# Kinds that a later "no, …" can take back: what was meant to be, and what was just told.
_REVOCABLE = frozenset(
    {"plan", "meal", "purchase", "preference", "identity", "event", "training", "people", "work"}
)
_ANY = frozenset(kind.name for kind in lexicon("en").kinds)
_UNDONE = frozenset({"plan", "meal", "purchase"})
# What is left of a date at the beginning of what follows it: particles, punctuation.
_AFTER_DATE = re.compile(r"^(?:에는|에|은|는|の|に|は|,|、|\s)+")
# Only whether a text names a day is asked, not which.
_ANY_DAY = date(2000, 1, 1)
_NUMBER = re.compile("\\d|[一二三四五六七八九十百千]+[年月日時分歳才人回個本枚円杯匹台代万]")
MAX_PROMISE = 300
# So many signs in one clause make a memory of a window.
ENOUGH = 2
ENOUGH_IN_PLAY = 5
ENOUGH_TOGETHER = 4
# What is not about the one who says it ("humanity peaked") is little evidence, unless it is of a weighty kind.
IMPERSONAL, WEIGHTY = 1, 5
# Of Japanese nouns those in hiragana are not seen.
ENOUGH_NAMED = {"ko": 4, "en": 4, "ja": 3}


@dataclass(frozen=True, slots=True)
class Statement:
    """A kept clause and the dates that its words name (offsets are those of `clause.full`)."""

    clause: Clause
    dates: tuple[Dated, ...]

    def dated_text(self) -> str:
        """The clause with each day written out behind the words for it: "next Saturday (2026-02-14)"."""
        text, at = "", 0
        for dated in self.dates:
            words = self.clause.full[at : dated.end]
            text += words if dated.iso in words else f"{words} ({dated.iso})"
            at = dated.end
        return text + self.clause.full[at:]


def kept_statements(
    spoken: Sequence[Clause], answers: Set[int] = frozenset(), asked: Set[int] = frozenset()
) -> list[Clause]:
    """The statements worth keeping, in order; none if all together they say too little for a memory.

    `answers` are the indexes of messages that follow one of the character's: a no that opens such a
    message says no to the character, not to what the user said before.
    """
    standing: list[Clause] = []
    for clause in spoken:
        if clause.label == "joke":
            _take_back(standing, clause, _ANY)
        elif clause.label == "retraction":
            taken = _take_back(standing, clause, _REVOCABLE)
            # What follows is the decision; or, if nothing had been settled, a reason against.
            if clause.text and (clause.kind or taken):
                standing.append(clause)
        elif clause.label == "denial" and not (clause.opens and clause.index in answers):
            taken = _take_back(standing, clause, _UNDONE)
            if clause.text and (clause.kind or taken):
                standing.append(clause)
        elif clause.label in ("statement", "denial") and clause.text:
            standing.append(clause)
    dreams = dreamt(spoken)
    standing = [clause for clause in settled(spoken, standing) if clause not in dreams]
    return standing if _is_worth_it(spoken, standing, asked) else []


def _is_worth_it(spoken: Sequence[Clause], standing: Sequence[Clause], asked: Set[int]) -> bool:
    """Whether what stands is worth a memory.

    One clause says more than enough, or enough with the others; and where it says little more, enough is
    named in all.
    """
    playing = any(game.search(clause.text) for clause in spoken for game in lexicon(clause.language).game)
    found = [
        _evidence(clause, playing=playing) + (clause.opens and clause.index in asked and has_content(clause))
        for clause in standing
    ]
    needed = ENOUGH_IN_PLAY if playing else ENOUGH
    best = max(found, default=0)
    if not standing:
        return False
    named = {noun for clause in standing for noun in nouns(clause.text)}
    if best <= needed + 1 and len(named) < ENOUGH_NAMED[standing[0].language]:
        return False
    return best > needed or (best == needed and sum(found) >= ENOUGH_TOGETHER)


def _take_back(standing: list[Clause], by: Clause, kinds: Set[str]) -> bool:
    """Drop the last statement, if it was made just before; of a day that is corrected, drop the day alone."""
    last = standing[-1] if standing else None
    if last is None or by.index - last.index > 2:
        return False
    wrong = find_dates(last.text, _ANY_DAY, last.language)
    corrects = bool(wrong) and bool(find_dates(by.text, _ANY_DAY, by.language))
    if last.kind and not corrects and last.kind.name not in kinds:
        return False
    standing.pop()
    if corrects:
        standing.extend(_without(last, wrong))
    return True


def _without(clause: Clause, dates: Sequence[Dated]) -> list[Clause]:
    """The longest stretch of a clause that names none of the dates, if it says anything."""
    edges = [0, *(edge for dated in dates for edge in (dated.start, dated.end)), len(clause.text)]
    start, end = max(zip(edges[::2], edges[1::2], strict=True), key=lambda pair: pair[1] - pair[0])
    text = _AFTER_DATE.sub("", clause.text[start:end])
    start = end - len(text)
    rest = replace(clause, start=clause.start + start, text=text.rstrip(" ,、"), lead="")
    return [rest] if has_content(rest) else []


def _evidence(clause: Clause, *, playing: bool) -> int:
    """How much speaks for the clause being worth a memory, a point for each sign of it.

    In play a name or a trade belongs to the part: "my name is Sir Ladle".
    """
    words = lexicon(clause.language)
    known = clause.kind is not None and not (playing and clause.kind.name == "identity")
    said = set(nouns(clause.text))
    signs = (
        known,
        known,
        words.first_person.search(clause.full),
        words.past.search(clause.text),
        words.future.search(clause.text),
        _NUMBER.search(clause.text),
        len(said) >= 2,
        len(said) >= 4,
    )
    # "So hungry, raining again": true for an hour.
    found = sum(map(bool, signs)) - bool(words.passing.search(clause.text))
    told = words.first_person.search(clause.full) or words.dropped_person.search(clause.text)
    return found if told or (known and clause.importance >= WEIGHTY) else min(found, IMPERSONAL)


def has_content(clause: Clause) -> bool:
    """Whether the clause names anything; "yes, three of them" belongs in a memory, but tells nothing by itself."""
    terms = search_terms([clause.text], clause.language)
    return len(clause.text) >= 3 and any(letter.isalpha() for term in terms for letter in term)


def promises_of(text: str) -> Iterable[str]:
    """The sentences of a character's line that promise something."""
    return _sentences_that(text, "promise", ("statement", "abandoned", "supposed", "question"))


def offers_of(text: str) -> Iterable[str]:
    """The questions of a character's line that offer something: "shall I write you a list?"."""
    return _sentences_that(text, "offer", ("question", "supposed", "statement"))


def _sentences_that(text: str, what: Literal["promise", "offer"], labels: Collection[Label]) -> list[str]:
    language = language_of(text)
    if language is None:
        return []
    words = lexicon(language)
    pattern, other = (words.promise, words.offer) if what == "promise" else (words.offer, words.promise)
    found = (c.text for c in clauses(0, text[:MAX_TEXT], language) if c.label in labels)
    return [
        piece
        for piece in found
        if len(piece) <= MAX_PROMISE
        and pattern.search(piece)
        and not (what == "offer" and other.search(piece))
    ]
