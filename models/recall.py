"""`POST /v1/recall` and the memories of an answer (section H)."""

from datetime import date, datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from models.ids import id_problem
from models.memory import KeyDetail, MemoryKind, Plan, Source
from models.messages import MAX_CHARACTERS

MAX_QUERY = 65_536
MAX_LIMIT = 100
MAX_CURSOR = 1_000

Mode = Literal["relevant", "exhaustive", "latest"]

Degraded = Literal[
    "index_unavailable",
    "index_timeout",
    "index_failed",
    "embedding_timeout",
    "embedding_failed",
    "embedding_suspended",
    "keys_unavailable",
    "unreachable",  # said by the client, when the service did not answer
]


def _checked_id(value: str) -> str:
    problem = id_problem(value)
    if problem:
        raise ValueError(problem)
    return value


Id = Annotated[str, AfterValidator(_checked_id)]
Text = Annotated[str, Field(max_length=MAX_QUERY)]


class _Request(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Filters(_Request):
    """Which memories are looked at; both dates are included, and no value means no filter."""

    kinds: tuple[MemoryKind, ...] = Field((), max_length=4)
    categories: tuple[Id, ...] = Field((), max_length=32)
    date_from: date | None = None
    date_to: date | None = None
    source_modes: tuple[Id, ...] = Field((), max_length=32)

    @model_validator(mode="after")
    def _in_order(self) -> "Filters":
        if self.date_from and self.date_to and self.date_from > self.date_to:
            raise ValueError("date_from must not be after date_to")
        return self


class RecallRequest(_Request):
    """What to recall: of this user, with any of these characters, for this query.

    `profile` names one of the ranking profiles of the settings; unset: that of the characters. `cursor` goes on
    where an answer of the same request ended: in mode `exhaustive`, or among what `explain` tells of.
    """

    user_id: Id
    character_ids: tuple[Id, ...] = Field(min_length=1, max_length=MAX_CHARACTERS)
    query: Text = ""
    recent_user_messages: tuple[Text, ...] = Field((), max_length=2)
    limit: int | None = Field(None, ge=1, le=MAX_LIMIT)
    filters: Filters = Filters()
    mode: Mode = "relevant"
    profile: Id | None = None
    cursor: str | None = Field(None, max_length=MAX_CURSOR)
    explain: bool = False

    @model_validator(mode="after")
    def _has_pages(self) -> "RecallRequest":
        if self.cursor is not None and self.mode != "exhaustive" and not self.explain:
            raise ValueError("a cursor needs mode 'exhaustive' or explain: nothing else has pages")
        return self


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class PathReason(_Answer):
    """How one path ranked a memory: rank from 0, value before and after decay, share of the score."""

    rank: int
    raw: float
    score: float
    share: float


class Explanation(_Answer):
    """Why a memory was returned; the shares of the paths add up to its score.

    `recent_rank` is its rank among the newest, where they answered; `slot`: it is there by its importance.
    """

    reason: Literal["returned"] = "returned"
    vector: PathReason | None
    keyword: PathReason | None
    recent_rank: int | None
    decay: float
    slot: bool


class NotReturned(_Answer):
    """A memory in scope that is not in the answer, and its one reason.

    - `cannot_be_opened`: its key is destroyed or not known here, or it is damaged (`detail` says which);
    - `filtered`: `detail` names the first filter that it does not pass;
    - `not_embedded`: it has no vector of the model yet, and no keyword found it;
    - `outranked`: others went before it. The paths that had it among their candidates are given with rank and share.

    `similarity` is 1 − cosine distance to the query, null without a vector of either. `summary` is null where it
    cannot be opened.
    """

    id: str
    kind: MemoryKind
    date: date
    created_at: datetime
    importance: int
    pinned: bool
    summary: str | None
    reason: Literal["outranked", "filtered", "not_embedded", "cannot_be_opened"]
    detail: str | None = None
    similarity: float | None = None
    score: float = 0.0
    decay: float
    vector: PathReason | None = None
    keyword: PathReason | None = None


class TalkState(_Answer):
    """A stretch of talk that no memory holds yet: `buffered` (`user_messages` of `threshold` are there), `open` (being
    extracted), `queued` behind that, or `parked` until an operator takes it up. Positions are the thread's."""

    character_ids: tuple[str, ...]
    state: Literal["buffered", "open", "queued", "parked"]
    first_position: int
    last_position: int
    user_messages: int | None = None
    threshold: int | None = None


class Explained(_Answer):
    """What `explain` tells beside the memories of the answer: the others in scope, newest first, a page at a time,
    and the talk that is no memory yet (on the first page; null: the view of the ledger's state is away)."""

    others: tuple[NotReturned, ...]
    talk: tuple[TalkState, ...] | None = None


class CharacterPlace(_Answer):
    """A character that has the memory, and its seq there."""

    character_id: str
    seq: int


class Memory(_Answer):
    """One memory, opened. `date` is the day of the event; of a fact or insight, `summary` is its content."""

    id: str
    kind: MemoryKind
    summary: str
    key_details: tuple[KeyDetail, ...]
    importance: int
    pinned: bool
    category: str | None
    date: date
    created_at: datetime
    plans: tuple[Plan, ...]
    characters: tuple[CharacterPlace, ...]
    source: Source
    score: float | None = None
    explain: Explanation | None = None


class RecallResponse(_Answer):
    """The memories, best first, then those that are there by their importance.

    In mode `exhaustive` they are in the order of their dates, oldest first. `query` is what was searched for.
    `degraded` says why the answer may hold less than it should, null if nothing failed. `offline`: an offline
    model made the query's vector, or any of the memories.
    """

    memories: tuple[Memory, ...]
    query: str
    degraded: Degraded | None = None
    offline: bool = False
    cursor: str | None = None
    explained: Explained | None = None

    @model_serializer(mode="wrap")
    def _as_asked(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without `explained` where nobody asked for it."""
        fields: dict[str, Any] = serialize(self)
        if self.explained is None:
            fields.pop("explained", None)
        return fields


class MemoryList(_Answer):
    """`GET …/memories`: a pair's memories, newest first; `cursor` asks for the next page, null at the end."""

    memories: tuple[Memory, ...]
    degraded: Degraded | None = None
    offline: bool = False
    cursor: str | None = None
