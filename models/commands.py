"""`memory.command` and `memory.tick`: what is asked of the ledger besides talk.

Commands come from the API and the command line. Ticks come from the ledger's own due scan (CloseTick, SendTick), and
from the indexer (CoveredTick).
"""

from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from models.messages import InvalidEvent

# The indexer names far fewer; the ledger looks each up, and must not be held up by a record that nobody meant.
MAX_NUMBERS = 10_000


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Flush(_Wire):
    """Close the open windows of every thread of the pair, at the last message before `chat_offset` (I3, I8)."""

    type: Literal["flush"] = "flush"
    command_id: str
    user_id: str
    character_id: str
    chat_offset: int = Field(ge=0)


class Retry(_Wire):
    """Take a parked window up again (R10)."""

    type: Literal["retry"] = "retry"
    command_id: str
    user_id: str
    character_ids: tuple[str, ...]
    epoch: int
    number: int


class CloseTick(_Wire):
    """A thread's limit has passed without a next message; void if its last position is another by now (I3)."""

    type: Literal["close"] = "close"
    user_id: str
    character_ids: tuple[str, ...]
    epoch: int
    position: int
    chat_offset: int = Field(ge=0)


class SendTick(_Wire):
    """It is time to send a request: the next attempt, or once more; void if it was sent since (I4)."""

    type: Literal["send"] = "send"
    user_id: str
    character_ids: tuple[str, ...]
    epoch: int
    number: int
    attempt: int
    sends: int


class CoveredTick(_Wire):
    """These windows of a thread are covered (I11): their messages need not be kept for recent talk any more.

    Reported by the indexer. It is a permission, and no more: one that comes again, late or for another epoch does
    nothing. The thread's messages are kept from the first window on that was not reported, so the indexer says again
    what may have been lost (agents/index.py). It names no offset of `chat.message`, and waits for none: I3 is of cuts.
    """

    type: Literal["covered"] = "covered"
    user_id: str
    character_ids: tuple[str, ...]
    epoch: int
    numbers: tuple[int, ...] = Field(max_length=MAX_NUMBERS)


Command = Flush | Retry
Tick = CloseTick | SendTick | CoveredTick
T = TypeVar("T")

_COMMANDS: TypeAdapter[Command] = TypeAdapter(Command)
_TICKS: TypeAdapter[Tick] = TypeAdapter(Tick)


def parse_command(value: bytes | None) -> Command:
    """Read a `memory.command` record; InvalidEvent for anything else."""
    return _parse(_COMMANDS, value)


def parse_tick(value: bytes | None) -> Tick:
    """Read a `memory.tick` record; InvalidEvent for anything else."""
    return _parse(_TICKS, value)


def _parse(adapter: TypeAdapter[T], value: bytes | None) -> T:
    try:
        return adapter.validate_json(value or b"")
    except ValidationError as error:
        raise InvalidEvent(
            "invalid_command", f"{error.error_count()} fields are not as they must be"
        ) from None
