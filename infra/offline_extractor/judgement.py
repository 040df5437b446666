"""Which clauses of a window are kept (R8): settled ones; none weighed, taken back or said in jest."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from infra.offline_extractor.clauses import MAX_TEXT, Clause, clauses
from infra.offline_extractor.dates import Dated
from infra.offline_extractor.lexicon import language_of, lexicon
from infra.offline_extractor.terms import search_terms

# Kinds that a later "no, …" can take back: what was meant to be, and what was just told.
_REVOCABLE = frozenset({"plan", "meal", "purchase", "preference", "identity", "event", "training"})
MAX_PROMISE = 300


@dataclass(frozen=True, slots=True)
class Statement:
    """A kept clause and the dates that its words name."""

    clause: Clause
    dates: tuple[Dated, ...]

    def dated_text(self) -> str:
        """The clause with each day written out behind the words for it: "next Saturday (2026-02-14)"."""
        text, at = "", 0
        for dated in self.dates:
            words = self.clause.text[at : dated.end]
            text += words if dated.iso in words else f"{words} ({dated.iso})"
            at = dated.end
        return text + self.clause.text[at:]


def kept_statements(spoken: Sequence[Clause]) -> list[Clause]:
    """The statements worth keeping, in order; none if all together they say too little for a memory."""
    standing: list[Clause] = []
    for clause in spoken:
        if clause.label == "joke":
            _take_back(standing, clause, any_kind=True)
        elif clause.label == "retraction":
            _take_back(standing, clause, any_kind=False)
            if clause.text:
                standing.append(clause)
        elif clause.label == "statement" and (clause.kind or _has_content(clause)):
            standing.append(clause)
    if any(clause.kind for clause in standing):
        return standing
    # Of no known kind: only where there is much in it.
    return standing if sum(_weight(clause) for clause in standing) >= 4 else []


def _take_back(standing: list[Clause], by: Clause, *, any_kind: bool) -> None:
    """Drop the last statement, if it was made just before."""
    if not standing:
        return
    last = standing[-1]
    near = last.index == by.index or by.index - last.index <= 2
    if near and (any_kind or last.kind is None or last.kind.name in _REVOCABLE):
        standing.pop()


def _weight(clause: Clause) -> int:
    return len(search_terms([clause.text], clause.language))


def _has_content(clause: Clause) -> bool:
    return len(clause.text) >= 4 and _weight(clause) >= 1


def promises_of(text: str) -> Iterable[str]:
    """The sentences of a character's line that promise something."""
    language = language_of(text)
    if language is None:
        return []
    words = lexicon(language)
    found = (
        c for c in clauses(0, text[:MAX_TEXT], language) if c.label in ("statement", "abandoned", "supposed")
    )
    return [c.text for c in found if len(c.text) <= MAX_PROMISE and words.promise.search(c.text)]
