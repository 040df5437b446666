"""What was weighed and not chosen appears nowhere (R8): neither the weighing, nor what was said for or against it."""

import unicodedata
from collections.abc import Sequence

from infra.offline_extractor.clauses import Clause
from infra.offline_extractor.lexicon import lexicon
from infra.offline_extractor.terms import nouns


def settled(spoken: Sequence[Clause], standing: Sequence[Clause]) -> list[Clause]:
    """The standing statements without those about options that were not chosen.

    Options are what clauses of weighing name. Chosen are those that a statement of decision names; what
    was told of an option before it was weighed, stays.
    """
    standing = _without_open_questions(spoken, standing)
    options: dict[str, tuple[int, int]] = {}
    weighing = [clause for clause in spoken if _weighs(clause)]
    for clause in weighing:
        for noun in _nouns(clause):
            options.setdefault(noun, _place(clause))
    if not weighing:
        return list(standing)
    first = _place(weighing[0])
    decided = [clause for clause in standing if _decides(clause)]
    chosen = {option for clause in decided for option in _named(clause, options)}
    kept = []
    for clause in standing:
        if clause not in decided:
            named = {o for o in _named(clause, options) if _place(clause) >= options[o]}
            judged = _place(clause) >= first and _judges(clause)
            if clause in weighing or judged or not named <= chosen:
                continue
        kept.append(clause)
    return kept


def _without_open_questions(spoken: Sequence[Clause], standing: Sequence[Clause]) -> list[Clause]:
    """Without what was said between "I can't decide" and the decision: candidates, their prices, their flaws."""
    open_from = next((_place(c) for c in spoken if lexicon(c.language).undecided.search(c.text)), None)
    if open_from is None:
        return list(standing)
    closed = next((_place(c) for c in standing if _place(c) > open_from and _decides(c)), None)
    return [c for c in standing if _place(c) < open_from or (closed is not None and _place(c) >= closed)]


def _place(clause: Clause) -> tuple[int, int]:
    return clause.index, clause.start


def _weighs(clause: Clause) -> bool:
    words = lexicon(clause.language)
    if _decides(clause):
        return False
    return (
        clause.label in ("supposed", "abandoned")
        or words.choice.search(clause.text) is not None
        or (clause.label == "question" and words.deliberation.search(clause.text) is not None)
    )


def _judges(clause: Clause) -> bool:
    """Whether the clause says how good something is, rather than what is the case."""
    return not clause.kind and lexicon(clause.language).evaluation.search(clause.text) is not None


def _decides(clause: Clause) -> bool:
    return clause.label in ("statement", "retraction", "denial") and bool(
        lexicon(clause.language).decision.search(clause.full)
    )


def _nouns(clause: Clause) -> set[str]:
    return {noun.casefold() for noun in nouns(unicodedata.normalize("NFC", clause.text)) if len(noun) > 1}


def _named(clause: Clause, options: dict[str, tuple[int, int]]) -> set[str]:
    """The options that a clause names: the noun itself, or in a compound (냉면, 냉면집)."""
    said = _nouns(clause)
    return {
        option
        for option in options
        if any(noun == option or (not noun.isascii() and (option in noun or noun in option)) for noun in said)
    }
