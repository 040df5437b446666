"""What a recall found, opened, before it takes its form for the wire."""

from collections.abc import Sequence
from dataclasses import dataclass

from agents.explanation import explain_returned
from agents.opening import answer_memory
from models.candidates import Candidate
from models.memory import MemoryContent
from models.ranking import Ranked
from models.recall import Degraded, Explained, Memory


@dataclass(frozen=True, slots=True)
class Recalled:
    """A memory of an answer, opened; `ranked` None: it was not ranked (mode exhaustive)."""

    memory: Candidate
    content: MemoryContent
    ranked: Ranked | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """What a recall found, as `RecallResponse` says it."""

    memories: list[Recalled]
    query: str
    degraded: Degraded | None
    offline: bool
    cursor: str | None = None
    explained: Explained | None = None


def answer_memories(memories: Sequence[Recalled], *, explain: bool = False) -> tuple[Memory, ...]:
    """The memories as the API gives them."""
    return tuple(
        answer_memory(
            one.memory,
            one.content,
            one.ranked.score if one.ranked else None,
            explain_returned(one.ranked) if explain and one.ranked else None,
        )
        for one in memories
    )


def any_offline(memories: Sequence[Recalled]) -> bool:
    return any(one.memory.offline for one in memories)
