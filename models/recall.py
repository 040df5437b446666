"""`POST /v1/recall` and the memories of an answer (section H)."""

from datetime import date, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from models.ids import id_problem
from models.memory import KeyDetail, MemoryKind, Plan, Source
from models.messages import MAX_CHARACTERS

MAX_QUERY = 65_536
MAX_LIMIT = 100

Degraded = Literal[
    "index_unavailable",
    "index_timeout",
    "index_failed",
    "embedding_timeout",
    "embedding_failed",
    "keys_unavailable",
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
    categories: tuple[str, ...] = Field((), max_length=32)
    date_from: date | None = None
    date_to: date | None = None
    source_modes: tuple[Id, ...] = Field((), max_length=32)

    @model_validator(mode="after")
    def _in_order(self) -> "Filters":
        if self.date_from and self.date_to and self.date_from > self.date_to:
            raise ValueError("date_from must not be after date_to")
        return self


class RecallRequest(_Request):
    """What to recall: of this user, with any of these characters, for this query."""

    user_id: Id
    character_ids: tuple[Id, ...] = Field(min_length=1, max_length=MAX_CHARACTERS)
    query: Text = ""
    recent_user_messages: tuple[Text, ...] = Field((), max_length=2)
    limit: int | None = Field(None, ge=1, le=MAX_LIMIT)
    filters: Filters = Filters()
    mode: Literal["relevant", "exhaustive", "latest"] = "relevant"
    cursor: str | None = Field(None, max_length=1_000)
    explain: bool = False

    def not_available(self) -> str | None:
        """The part of the request that this version cannot answer yet, None if there is none."""
        if self.mode == "exhaustive":
            return f"mode {self.mode!r}"
        if self.cursor is not None:
            return "a cursor (only mode 'exhaustive' has pages)"
        if self.filters.categories:
            return "a filter by categories"
        return None


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

    `query` is what was searched for. `degraded` says why the answer may hold less than it should, null if
    nothing failed. `offline`: an offline model made the query's vector, or any of the memories.
    """

    memories: tuple[Memory, ...]
    query: str
    degraded: Degraded | None = None
    offline: bool = False
    cursor: str | None = None


class MemoryList(_Answer):
    """`GET …/memories`: a pair's memories, newest first; `cursor` asks for the next page, null at the end."""

    memories: tuple[Memory, ...]
    degraded: Degraded | None = None
    offline: bool = False
    cursor: str | None = None
