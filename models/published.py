"""The records that others may read: `memory.created`, `memory.changed`, `memory.embedded` (R18)."""

from base64 import b64decode, b64encode
from datetime import date, datetime
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from models.ids import SEP
from models.memory import MemoryKind, Provenance, Source

TOKENS = "tokens"


def _from_base64(value: object) -> object:
    return b64decode(value, validate=True) if isinstance(value, str) else value


# Bytes in Python, standard base64 in JSON (pydantic's own types write URL-safe or wrapped base64).
Sealed = Annotated[
    bytes,
    BeforeValidator(_from_base64),
    PlainSerializer(lambda value: b64encode(value).decode(), return_type=str, when_used="json"),
]


# `date` is the name of a field below.
Day = date
TokenHash = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class CharacterSeq(_Record):
    """A pair that owns a memory: its seq there (R17), and the pair's epoch."""

    character_id: str
    seq: int
    epoch: int


class MemoryCreated(_Record):
    """`memory.created`, key = memory id. `payload` is sealed (agents/codec.py); `created_at` is the record
    time of the last message that it covers; `plan_dates` are the days of its plans, where they name a day."""

    memory_id: str
    user_id: str
    kind: MemoryKind
    request_id: str
    characters: tuple[CharacterSeq, ...]
    importance: int
    date: date
    created_at: datetime
    category: str | None = None
    plan_dates: tuple[Day, ...] = ()
    source: Source
    source_mode: str | None = None
    provenance: Provenance
    payload: Sealed


class RelationshipChanged(_Record):
    """`memory.changed`: the new relationship state of a pair, sealed by the pair's key; None: there is none."""

    field: Literal["relationship"] = "relationship"
    user_id: str
    character_id: str
    epoch: int
    version: int
    payload: Sealed | None


class WindowChanged(_Record):
    """`memory.changed`: a window was settled, or parked, or taken up again (`queued`).

    `version` grows with each change of the same window.
    """

    field: Literal["window"] = "window"
    user_id: str
    character_ids: tuple[str, ...]
    epoch: int
    number: int
    request_id: str
    version: int
    status: Literal["remembered", "skipped", "parked", "queued"]
    first_position: int
    last_position: int
    reason: str | None = None
    attempts: int = 0
    memory_ids: tuple[str, ...] = ()
    closed_at: datetime


class MemoryEmbedded(_Record):
    """`memory.embedded`: the keyed token hashes of a memory, or its sealed vector by one model.

    `vector` is 768 little-endian float32, sealed by the memory's key; None: the model gave none yet.
    """

    memory_id: str
    user_id: str
    text_version: int = 0
    what: str = Field(description='"tokens", or the name of the embedding model')
    tokens: tuple[TokenHash, ...] | None = None
    vector: Sealed | None = None
    offline: bool


def changed_key(subject: str, field: str) -> bytes:
    """Key of a `memory.changed` record: what changed, and which of its fields."""
    return f"{subject}{SEP}{field}".encode()


def pair_subject(user: str, character: str) -> str:
    """The subject of a `memory.changed` record about a pair."""
    return f"{user}{SEP}{character}"


def embedded_key(memory: str, text_version: int, what: str) -> bytes:
    """Key of a `memory.embedded` record."""
    return SEP.join((memory, str(text_version), what)).encode()
