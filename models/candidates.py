"""What the index gives to a recall: memories in scope as they stand in PostgreSQL, still sealed."""

from dataclasses import dataclass, field
from datetime import date, datetime

from models.memory import MemoryKind, Source
from models.published import CharacterSeq


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
