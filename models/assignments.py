"""Which model does which task (R9): references to models, assignments with a fall-back, and the default."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

Task = Literal["extraction", "consolidation", "insight"]
TASKS: tuple[Task, ...] = get_args(Task)
PROVIDERS = ("gemini", "openai", "anthropic", "bedrock", "offline")
OFFLINE = "offline"
OFFLINE_RULES = "keepsake-rules"
DEFAULT_GEMINI = "gemini-2.5-flash"

MAX_MODEL_NAME = 256
# llama3.1:8b, meta-llama/Llama-3.1-8B, anthropic.claude-…-v1:0.
_NAME = re.compile(r"[\w.:@+-]+(?:/[\w.:@+-]+)*")


class InvalidAssignment(ValueError):
    """What was given cannot be assigned; the message says how to write it, and repeats nothing of it."""


def is_model_name(text: str) -> bool:
    """Whether a text can be a model's name: it becomes part of an address."""
    return len(text) <= MAX_MODEL_NAME and ".." not in text and _NAME.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A model of a provider, written `provider:model`."""

    provider: str
    model: str

    @classmethod
    def parse(cls, text: str) -> "ModelRef":
        """The reference as written. InvalidAssignment: it is none."""
        provider, colon, model = text.partition(":")
        if not colon or provider not in PROVIDERS or not is_model_name(model):
            raise InvalidAssignment(
                f"a model is written provider:model, the provider one of {', '.join(PROVIDERS)}: "
                f"for example gemini:{DEFAULT_GEMINI}"
            )
        if provider == OFFLINE and model != OFFLINE_RULES:
            raise InvalidAssignment(f"the one offline model is {OFFLINE}:{OFFLINE_RULES}")
        return cls(provider, model)

    @property
    def offline(self) -> bool:
        """Whether no provider is called: no key, no cost."""
        return self.provider == OFFLINE

    def __str__(self) -> str:
        return f"{self.provider}:{self.model}"


OFFLINE_MODEL = ModelRef(OFFLINE, OFFLINE_RULES)


@dataclass(frozen=True, slots=True)
class Assignment:
    """The model of a task, and the one that takes over when its attempts are used up."""

    task: Task
    model: ModelRef
    fallback: ModelRef | None = None

    def __post_init__(self) -> None:
        if self.fallback == self.model:
            raise InvalidAssignment("the fall-back must be another model than the first")

    @classmethod
    def parse(cls, task: str, model: str, fallback: str | None = None) -> "Assignment":
        """The assignment as written. InvalidAssignment: no such task, or no model."""
        known = next((one for one in TASKS if one == task), None)
        if known is None:
            raise InvalidAssignment(f"a task is one of {', '.join(TASKS)}")
        return cls(known, ModelRef.parse(model), None if fallback is None else ModelRef.parse(fallback))

    def model_for(self, attempt: int, attempts: int) -> ModelRef:
        """Who makes an attempt (from 1): each model has `attempts` of them, in turns, for as long as it goes on."""
        if self.fallback is not None and (attempt - 1) // attempts % 2:
            return self.fallback
        return self.model

    def more_after(self, attempt: int, attempts: int) -> bool:
        """Whether a failed attempt is followed by another of the same round over both models."""
        return self.fallback is not None and attempt % (2 * attempts) != 0


def default_model(setting: str | None, *, gemini_key: bool) -> ModelRef:
    """The model where none is assigned: the setting's, else Gemini where it has a key, else the offline rules."""
    if setting:
        return ModelRef.parse(setting)
    return ModelRef("gemini", DEFAULT_GEMINI) if gemini_key else OFFLINE_MODEL


@dataclass(frozen=True, slots=True)
class Assigned:
    """An assignment as it stands, by whom and since when."""

    assignment: Assignment
    by: str
    at: datetime


@dataclass(frozen=True, slots=True)
class AssignmentChange:
    """One change, models as they were written then; `from_model` None: the default was in effect."""

    task: str
    at: datetime
    by: str
    from_model: str | None
    from_fallback: str | None
    to_model: str
    to_fallback: str | None
