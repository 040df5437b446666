"""What the indexer writes: one value a record, ordered by `offset` where the record's own version ties.

Of two records about the same thing the one with the higher version wins, then the later in the log: in
whatever order and however often they are applied, the same rows result (I6).
"""

from dataclasses import dataclass

from models.published import CharacterSeq, MemoryCreated, RelationshipChanged, WindowChanged


@dataclass(frozen=True, slots=True)
class CreatedRow:
    """A memory; `partition` is that of its records."""

    memory: MemoryCreated
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class TokensRow:
    """The keyed token hashes of a memory."""

    memory_id: str
    text_version: int
    tokens: tuple[str, ...]
    offline: bool
    offset: int


@dataclass(frozen=True, slots=True)
class VectorRow:
    """A memory's vector by one model: opened (768 little-endian float32), or still sealed where the memory,
    whose key opens it, has not been stored yet. `user_id` is its memory's, None as long as it is sealed."""

    memory_id: str
    model: str
    text_version: int
    offline: bool
    offset: int
    opened: bytes | None
    sealed: bytes | None
    user_id: str | None = None


@dataclass(frozen=True, slots=True)
class WindowRow:
    changed: WindowChanged
    offset: int


@dataclass(frozen=True, slots=True)
class RelationshipRow:
    changed: RelationshipChanged
    offset: int


@dataclass(frozen=True, slots=True)
class CoveredWindow:
    """A window whose messages are held by a memory that can be recalled, or were nothing to keep (I11)."""

    user_id: str
    character_ids: tuple[str, ...]
    epoch: int
    number: int


IndexRow = CreatedRow | TokensRow | VectorRow | WindowRow | RelationshipRow


@dataclass(frozen=True, slots=True)
class SealedMemory:
    """What is needed to open a stored memory."""

    memory_id: str
    user_id: str
    characters: tuple[CharacterSeq, ...]
    payload: bytes
    text_version: int = 0
