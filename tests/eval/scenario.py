"""Labelled conversations: the format, read and checked (FORMAT in the README of this folder)."""

import json
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

SCENARIOS = Path(__file__).parent / "scenarios"
CATEGORIES = (
    *("fact", "event", "plan", "change", "hesitation", "assistant"),
    *("third_party", "feeling", "sensitive", "nothing", "reference", "noise"),
)
LANGUAGES = ("ko", "en", "ja")


class _Labelled(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Line(_Labelled):
    """One message. `speaker` is the character of an assistant's line in a scene."""

    role: Literal["user", "assistant", "system"]
    text: str = Field(min_length=1)
    sent_at: datetime
    session: str
    speaker: str | None = None


class Probe(_Labelled):
    """A question, and what its answer must hold (one alternative of each golden group) and must not."""

    query: str
    now: datetime
    recent_user_messages: tuple[str, ...] = Field((), max_length=2)
    filters: dict[str, object] = Field(default_factory=dict)
    mode: Literal["relevant", "latest"] = "relevant"
    gold: tuple[tuple[str, ...], ...] = ()
    forbid: tuple[str, ...] = ()
    first: tuple[str, ...] = ()


class Scenario(_Labelled):
    """One conversation and its probes."""

    id: str
    lang: Literal["ko", "en", "ja"]
    category: Literal[
        "fact",
        "event",
        "plan",
        "change",
        "hesitation",
        "assistant",
        "third_party",
        "feeling",
        "sensitive",
        "nothing",
        "reference",
        "noise",
    ]
    characters: tuple[str, ...] = Field(min_length=1, max_length=2)
    timezone: str
    messages: tuple[Line, ...]
    nothing_to_keep: bool = False
    probes: tuple[Probe, ...]

    @model_validator(mode="after")
    def _whole(self) -> "Scenario":
        if len(self.characters) > 1 and any(m.role == "assistant" and not m.speaker for m in self.messages):
            raise ValueError(f"{self.id}: in a scene every line of an assistant names its speaker")
        if any(not group or "" in group for probe in self.probes for group in probe.gold):
            raise ValueError(f"{self.id}: an empty golden group or piece would match anything")
        return self


def load(paths: Iterable[Path] | None = None) -> list[Scenario]:
    """The scenarios of some files, of all by default. ValueError names the file and line of a bad one."""
    found: list[Scenario] = []
    for path in sorted(SCENARIOS.glob("*.jsonl")) if paths is None else paths:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if not line.strip():
                continue
            try:
                found.append(Scenario.model_validate(json.loads(line)))
            except ValueError as error:
                raise ValueError(f"{path.name}, line {number}: {error}") from error
    return found
