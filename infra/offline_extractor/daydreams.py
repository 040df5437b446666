"""Daydreams: what follows "if I won the lottery" is not the case, and neither is what "just dreaming" ends (R8)."""

from collections.abc import Sequence

from infra.offline_extractor.clauses import Clause
from infra.offline_extractor.lexicon import lexicon

# So many messages on, counted with the character's, a daydream may go on.
REACH = 6
AFTERWARDS = 4


def dreamt(spoken: Sequence[Clause]) -> set[Clause]:
    """The statements that belong to a daydream. What has been done is none, wherever it stands."""
    found: set[Clause] = set()
    until = onset = -1
    for place, clause in enumerate(spoken):
        words = lexicon(clause.language)
        if words.fantasy_end.search(clause.text):
            found.update(c for c in spoken[:place] if clause.index - c.index <= REACH and not _happened(c))
            found.add(clause)
            until = clause.index + AFTERWARDS
        elif clause.label in ("supposed", "question") and words.fantasy.search(clause.text):
            until = clause.index + REACH
            onset = clause.index
        elif clause.index == onset or (clause.index <= until and not _happened(clause)):
            # In one breath with its beginning even what sounds like the past is dreamt: "and opened a bakery".
            found.add(clause)
    return found


def _happened(clause: Clause) -> bool:
    """Told in the past, and for English by the one who did it: "and opened a bakery" may be dreamt."""
    words = lexicon(clause.language)
    told = words.past.search(clause.text)
    return bool(told) and (clause.language != "en" or words.first_person.search(clause.text) is not None)
