"""The relationship state as the talk shows it: address, tone, promises, limits. What is not shown stays."""

from collections.abc import Sequence

from infra.offline_extractor.clauses import Clause
from infra.offline_extractor.lexicon import Lexicon
from models.memory import RelationshipState

MAX_ITEMS = 5
MAX_ITEM = 100
MAX_STATE = 600
# Kinds of statement that tell where two people stand.
_TURNING = frozenset({"confession", "promise"})


def updated_state(
    shown: RelationshipState | None,
    lines: Sequence[str],
    kept: Sequence[Clause],
    promises: Sequence[str],
    words: Lexicon,
) -> RelationshipState | None:
    """The state after the user's lines and kept statements, the character's promises; None if unchanged."""
    old = shown or RelationshipState.model_validate({})
    turning = [clause for clause in kept if clause.kind and clause.kind.name in _TURNING]
    limits = [clause.text for clause in kept if words.limit.search(clause.text)]
    new = RelationshipState(
        summary=old.summary,
        form_of_address=_address(lines, words) or old.form_of_address,
        tone=_tone(lines, words) or old.tone,
        current_state=turning[-1].text[:MAX_STATE] if turning else old.current_state,
        unkept_promises=_with(old.unkept_promises, promises),
        limits=_with(old.limits, limits),
    )
    return new if new != old else None


def _address(lines: Sequence[str], words: Lexicon) -> str:
    """What the user last asked to be called."""
    for line in reversed(lines):
        for pattern in words.address:
            match = pattern.search(line.rstrip(" .!~。！")[:500])
            if match:
                return match["name"].strip()
    return ""


def _tone(lines: Sequence[str], words: Lexicon) -> str:
    """Polite or casual speech, by most of the user's lines; empty where the language does not tell."""
    ends = [line.rstrip(" .!?~…。！？ㅋㅎㅠㅜ") for line in lines]
    ends = [end for end in ends if len(end) >= 4]
    if not ends or not words.polite_tone:
        return ""
    polite = sum(bool(words.polite.search(end)) for end in ends)
    return words.polite_tone if polite * 2 >= len(ends) else words.casual_tone


def _with(old: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    """The newest few, each once."""
    items = [*old, *(item for text in new if (item := text[:MAX_ITEM].strip()) and item not in old)]
    return tuple(dict.fromkeys(items))[-MAX_ITEMS:]
