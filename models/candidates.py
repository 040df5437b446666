"""What the index gives to a recall: memories in scope as they stand in PostgreSQL, still sealed."""

from bisect import bisect_right
from dataclasses import dataclass, field
from datetime import date, datetime

from models.memory import MemoryKind, Source
from models.published import CharacterSeq


@dataclass(frozen=True, slots=True)
class Scope:
    """Which memories a recall looks at: of the user, with any of the characters (R21), that pass the filters (R29).

    Both dates are included; an empty filter lets everything pass.
    """

    user_id: str
    character_ids: tuple[str, ...]
    kinds: tuple[MemoryKind, ...] = ()
    categories: tuple[str, ...] = ()
    date_from: date | None = None
    date_to: date | None = None
    source_modes: tuple[str, ...] = ()


class InvalidCursor(ValueError):
    """A page cursor that this service did not give."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One memory. `characters` are all pairs that own it, in the order of its payload; `offline` is true
    when its text or its vector was made by an offline model."""

    memory_id: str
    user_id: str
    kind: MemoryKind
    payload: bytes
    characters: tuple[CharacterSeq, ...]
    importance: int
    pinned: bool
    date: date
    created_at: datetime
    source: Source
    source_mode: str | None
    offline: bool


@dataclass(frozen=True, slots=True)
class Candidates:
    """The memories that each path found, best first, and what the ranking needs beside them.

    `vector` pairs a memory with its similarity (1 − cosine distance), `keyword` with its rank value (more is
    better). `recent` are the newest in scope, `important` those that qualify for importance slots, most
    important first, ties newest first. `max_seq` is the last seq of each requested pair, by character.
    """

    vector: tuple[tuple[Candidate, float], ...] = ()
    keyword: tuple[tuple[Candidate, float], ...] = ()
    recent: tuple[Candidate, ...] = ()
    important: tuple[Candidate, ...] = ()
    max_seq: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MemoryPage:
    """Some memories, in the order of their query, and where the next page starts (None: there is none)."""

    memories: tuple[Candidate, ...]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class InScope:
    """A memory of a scope and what is known of it without a search: the filter that it does not pass, whether it has
    a vector of the model, and its similarity to the query (None: either has no vector)."""

    memory: Candidate
    filtered: str | None
    embedded: bool
    similarity: float | None


@dataclass(frozen=True, slots=True)
class ScopePage:
    """Some memories of a scope, newest first, and where the next page starts (None: there is none)."""

    memories: tuple[InScope, ...]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class SealedRelationship:
    """A pair's relationship state as published; `payload` None: there is none (any more)."""

    payload: bytes | None
    epoch: int
    version: int


@dataclass(frozen=True, slots=True)
class PairSummary:
    """What is stored of one pair. `last_memory_at`: record time of the last message that a memory covers."""

    memories: int
    last_seq: int
    last_memory_at: datetime | None
    relationship: SealedRelationship | None


@dataclass(frozen=True, slots=True)
class Coverage:
    """Which positions of a thread are covered (I11): all up to `position`, and those of the ranges past it, both ends
    included, in order."""

    position: int = 0
    beyond: tuple[tuple[int, int], ...] = ()

    def __contains__(self, position: int) -> bool:
        if position <= self.position:
            return True
        at = bisect_right(self.beyond, position, key=lambda one: one[0]) - 1
        return at >= 0 and position <= self.beyond[at][1]


@dataclass(frozen=True, slots=True)
class ParkedWindow:
    """A window that waits for an operator (R10)."""

    user_id: str
    character_ids: tuple[str, ...]
    epoch: int
    number: int
    request_id: str
    first_position: int
    last_position: int
    reason: str | None
    attempts: int
    closed_at: datetime
