"""Prompts: a text with places to fill, and what a model is given (R7, R9)."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as a registry or a file has it. `version` tells texts apart: a registry's, or a content hash."""

    name: str
    version: str
    text: str


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """What one call sends. `system` holds the instructions, `user` the data; `schema` is the answer's JSON Schema."""

    name: str
    version: str
    system: str
    user: str
    schema: Mapping[str, object]
