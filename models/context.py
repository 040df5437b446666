"""`POST /v1/context`: what a chat service asks for before a turn, and what it gets (section D)."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from models.recall import Degraded, Memory, RecallRequest
from models.relative_time import Locale

MAX_PERSONA = 262_144
MAX_TURNS = 100
MAX_TOKENS = 1_000_000

# What a context can lack beside what a recall can.
ContextDegraded = Degraded | Literal["view_unavailable", "talk_dropped", "state_dropped"]


class ContextRequest(RecallRequest):
    """A recall, and what to make a prompt of it. `query` is the message that is to be answered.

    `persona` is taken whole. `turns` is how many turns of recent talk there are at least, 6 unless it says; more where
    talk is not covered by a memory yet. `token_budget` bounds system and messages together, by the estimator that
    `keepsake settings` names. `now` is the time of the turn (with an offset; unset: this moment, in the configured
    zone), `locale` the language of times and headings (unset: that of the talk).
    """

    persona: Annotated[str, Field(max_length=MAX_PERSONA)] = ""
    turns: int | None = Field(None, ge=0, le=MAX_TURNS)
    token_budget: int | None = Field(None, ge=1, le=MAX_TOKENS)
    now: datetime | None = None
    locale: Locale | None = None


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class ContextMessage(_Answer):
    """One message for the model: the first and the last are the user's, and the roles alternate."""

    role: Literal["user", "assistant"]
    content: str


class ContextResponse(_Answer):
    """`system` and `messages` go to the model as they are. `memories` are those in `system`, best first.

    `degraded` says why there may be less than there should be, null if nothing failed: the reasons of a recall, the
    view of the ledger's rows is away (no recent talk), or the budget left no room for talk that no memory covers, or
    for relationship and plans. `tokens` is what system and
    messages take by the estimator, null without a budget.
    """

    system: str
    messages: tuple[ContextMessage, ...]
    memories: tuple[Memory, ...]
    degraded: ContextDegraded | None = None
    offline: bool = False
    tokens: int | None = None
