"""What the store finds for a recall, before anything is ranked (R21–R26)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date, datetime

from models.memory import MemoryKind, Provenance, Source
from models.published import CharacterSeq


class StoreUnavailable(Exception):
    """PostgreSQL cannot be reached, or went away; the same call may succeed later."""


class StoreRejected(Exception):
    """PostgreSQL does not take these values, and never will."""


class InvalidCursor(ValueError):
    """A page cursor that this service did not give."""


@dataclass(frozen=True, slots=True)
class StoredMemory:
    """One memory as it is stored. `characters` are all that share it, in the order in which `payload` is sealed."""

    memory_id: str
    user_id: str
    kind: MemoryKind
    request_id: str
    characters: tuple[CharacterSeq, ...]
    importance: int
    pinned_at: datetime | None
    category: str | None
    date: date
    created_at: datetime
    source: Source
    source_mode: str | None
    provenance: Provenance
    payload: bytes

    @property
    def pinned(self) -> bool:
        return self.pinned_at is not None

    def seq_distance(self, characters: Collection[str], last_seqs: Mapping[str, int]) -> int:
        """How far behind its pair's last seq it stands; the smallest of the asked characters' (R23)."""
        return min(
            (
                max(0, last_seqs.get(owner.character_id, owner.seq) - owner.seq)
                for owner in self.characters
                if owner.character_id in characters
            ),
            default=0,
        )


@dataclass(frozen=True, slots=True)
class Hit:
    """A memory on one search path: its cosine similarity there (1 − distance), or its keyword score."""

    memory_id: str
    score: float


@dataclass(frozen=True, slots=True)
class Candidates:
    """The best of each path, best first; `memories` holds each of them once.

    `important` qualify for a slot: the most important, ties newest first. `recent` are the newest.
    `last_seqs` has the highest seq of each pair that was asked for, filters or not.
    """

    vector: tuple[Hit, ...]
    keyword: tuple[Hit, ...]
    recent: tuple[str, ...]
    important: tuple[str, ...]
    memories: Mapping[str, StoredMemory]
    last_seqs: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class MemoryPage:
    """Some memories, newest first, and where the next page starts (None: there is none)."""

    memories: tuple[StoredMemory, ...]
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
