"""The relationship states in a model's answer (R16): whole and valid, or the old ones stay."""

from collections import Counter

from pydantic import ValidationError

from models.answer import clean, fold_keys
from models.memory import RelationshipState
from models.quotes import known_speaker
from models.requests import WindowRequest


def read_relationships(
    data: dict[str, object], request: WindowRequest, dropped: Counter[str]
) -> dict[str, RelationshipState | None]:
    """The new state of each character, None where the old one stays; what is not valid is counted."""
    given = data.get("relationshipstates")
    cast = request.character_ids
    if isinstance(given, list):
        # Structured output cannot have the characters for keys: each entry names its own.
        entries = [fold_keys(entry) for entry in given if isinstance(entry, dict)]
        given = {str(entry.get("character", "")): entry for entry in entries}
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
