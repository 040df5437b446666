"""A context within its token budget (R37): what is left out, and in which order."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from models.history import HistoryMessage, repaired
from models.prompt_block import Reference, Remembered, render_system, without_memories
from models.relative_time import Locale
from models.talk import Line

# What the vendors' chat formats add to each message, and once for the system text.
MESSAGE_TOKENS = 4


class BudgetTooSmall(ValueError):
    """Persona, rules and the message to answer need more than the budget; the message says how many tokens."""


@dataclass(frozen=True, slots=True)
class ContextParts:
    """Everything that a context may hold: `reference` without memories, `memories` best first, `talk` oldest first,
    and `query`, the message that is to be answered (empty: the talk ends with it, or there is none)."""

    persona: str
    character_ids: tuple[str, ...]
    locale: Locale
    mark: str
    reference: Reference
    memories: tuple[Remembered, ...]
    talk: tuple[Line, ...]
    query: str


@dataclass(frozen=True, slots=True)
class Composed:
    """A context. `dropped_talk`: uncovered talk is missing, `dropped_state`: relationship or plans are."""

    system: str
    messages: tuple[HistoryMessage, ...]
    memories: tuple[Remembered, ...]
    dropped_talk: bool = False
    dropped_state: bool = False


def compose(parts: ContextParts) -> Composed:
    """The context with everything in it."""
    return _without(parts, 0)


def fit(parts: ContextParts, budget: int, count: Callable[[str], int]) -> tuple[Composed, int]:
    """The context that leaves out as little as makes it fit, and its tokens as `count` estimates them.

    Memories go first, lowest rank first, the pinned and those in slots last; then turns, oldest first; then all that is
    left of the reference data: relationship, plans, times. BudgetTooSmall: what is left is still too much.
    """
    most = len(parts.memories) + len(_turns(parts.talk)) + 1
    low, high = 0, most
    # More left out is never longer, so that the least can be searched for by halves.
    while low < high:
        middle = (low + high) // 2
        if tokens_of(_without(parts, middle), count) <= budget:
            high = middle
        else:
            low = middle + 1
    composed = _without(parts, low)
    tokens = tokens_of(composed, count)
    if tokens > budget:
        raise BudgetTooSmall(f"the persona and the message alone take {tokens} tokens: ask for more")
    return composed, tokens


def tokens_of(composed: Composed, count: Callable[[str], int]) -> int:
    """What system text and messages take together."""
    return count(composed.system) + sum(
        count(message.content) + MESSAGE_TOKENS for message in composed.messages
    )


def _without(parts: ContextParts, dropped: int) -> Composed:
    """The context without the first `dropped` of what can be left out."""
    memories, dropped = _fewer_memories(parts.memories, dropped)
    turns = _turns(parts.talk)
    gone, kept = turns[:dropped], turns[dropped:]
    lines = [_message(line, parts.character_ids) for turn in kept for line in turn]
    if parts.query:
        lines.append(HistoryMessage("user", parts.query))
    history = repaired(lines)
    is_bare = dropped > len(turns)
    reference = replace(parts.reference, memories=memories, before=history.before, after=history.after)
    characters = len(parts.character_ids)
    return Composed(
        system=without_memories(parts.persona, characters, parts.locale)
        if is_bare
        else render_system(parts.persona, reference, parts.mark, characters, parts.locale),
        messages=history.messages,
        memories=memories,
        dropped_talk=any(not line.covered for turn in gone for line in turn),
        dropped_state=is_bare,
    )


def _fewer_memories(memories: Sequence[Remembered], dropped: int) -> tuple[tuple[Remembered, ...], int]:
    """The memories that are left, in their order, and how much is still to be dropped."""
    order = sorted(range(len(memories)), key=lambda rank: (memories[rank].is_kept_longest, -rank))
    gone = set(order[:dropped])
    left = tuple(memory for rank, memory in enumerate(memories) if rank not in gone)
    return left, max(0, dropped - len(memories))


def _turns(talk: Sequence[Line]) -> list[list[Line]]:
    """The talk in turns: each begins where the user speaks after another."""
    turns: list[list[Line]] = []
    for at, line in enumerate(talk):
        if not turns or (line.role == "user" and talk[at - 1].role != "user"):
            turns.append([])
        turns[-1].append(line)
    return turns


def _message(line: Line, character_ids: Sequence[str]) -> HistoryMessage:
    """In a scene the characters' lines say whose they are."""
    if line.role == "user":
        return HistoryMessage(line.role, line.text)
    speaker = line.speaker or (character_ids[0] if len(character_ids) == 1 else None)
    text = f"{speaker}: {line.text}" if len(character_ids) > 1 and speaker else line.text
    return HistoryMessage(line.role, text, {"speaker": speaker})
