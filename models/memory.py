"""What a memory and a relationship state are made of, with the bounds of R5 and R16."""

from collections.abc import Iterable
from contextlib import suppress
from datetime import date, datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

MemoryKind = Literal["window", "log", "profile", "insight"]

MAX_SUMMARY = 2_000
MAX_DETAILS = 40
MAX_DETAIL_TEXT = 2_000
MAX_TERMS = 64
MAX_TERM = 100
MAX_PLANS = 20

Item = Annotated[str, Field(min_length=1, max_length=100)]
Items = Annotated[tuple[Item, ...], Field(max_length=5)]


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Quote(_Value):
    """Words that someone said: a substring of a message in the window."""

    type: Literal["quote"] = "quote"
    speaker: str
    text: str = Field(min_length=1, max_length=MAX_DETAIL_TEXT)
    context: str = Field("", max_length=MAX_DETAIL_TEXT)


class Action(_Value):
    """Something that someone did."""

    type: Literal["action"] = "action"
    actor: str
    text: str = Field(min_length=1, max_length=MAX_DETAIL_TEXT)
    context: str = Field("", max_length=MAX_DETAIL_TEXT)


KeyDetail = Annotated[Quote | Action, Field(discriminator="type")]


class Plan(_Value):
    """A dated plan. `date` is ISO 8601: a day, a month (2026-03) or a year (2026)."""

    date: str = Field(pattern=r"^\d{4}(-\d{2}(-\d{2})?)?$")
    text: str = Field(min_length=1, max_length=500)


def plan_days(plans: Iterable[Plan]) -> tuple[date, ...]:
    """The days of the plans that name one, in order."""
    days: set[date] = set()
    for plan in plans:
        # A month or a year is no day, and "2026-02-30" is none either.
        with suppress(ValueError):
            days.add(datetime.strptime(plan.date, "%Y-%m-%d").date())  # noqa: DTZ007  # a day has no zone
    return tuple(sorted(days))


class MemoryContent(_Value):
    """The text of a memory: everything that is sealed. The speaker or actor `user` is the user."""

    summary: str = Field(min_length=1, max_length=MAX_SUMMARY)
    key_details: tuple[KeyDetail, ...] = Field((), max_length=MAX_DETAILS)
    search_terms: tuple[Annotated[str, Field(min_length=1, max_length=MAX_TERM)], ...] = Field(
        (), max_length=MAX_TERMS
    )
    involved: tuple[str, ...] = Field((), max_length=32)
    plans: tuple[Plan, ...] = Field((), max_length=MAX_PLANS)
    category: str | None = Field(None, max_length=100)


class RelationshipState(_Value):
    """Where a pair stands (R16): one a pair, overwritten as a whole."""

    summary: str = Field("", max_length=600)
    form_of_address: str = Field("", max_length=100)
    tone: str = Field("", max_length=100)
    current_state: str = Field("", max_length=600)
    unkept_promises: Items = ()
    limits: Items = ()


class Provenance(_Value):
    """What made a memory: task, prompt and model, with their versions (R9)."""

    task: str
    prompt: str
    prompt_version: str
    provider: str
    model: str
    offline: bool


class Source(_Value):
    """The messages that a memory covers: positions are those of the thread, both ends included."""

    session_ids: tuple[str, ...]
    first_message_id: str
    last_message_id: str
    first_position: int
    last_position: int


class ExtractedMemory(_Value):
    """One window's memory as the extractor gives it, checked: `date` is the day of the event."""

    content: MemoryContent
    importance: int = Field(5, ge=1, le=10)
    date: date
