"""Prompts: a text with places to fill, and what a model is given (R7, R9).

A prompt's text is its instructions, a line `=== user ===`, and the message with the data. Places are written
`{{name}}`. The chat goes in as JSON lines between tags whose name it cannot contain.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from models.quotes import USER, speaker_of
from models.requests import WindowMessage, WindowRequest

# A registry may keep the line ends of the browser that the text was typed in.
MARK = re.compile(r"^=== user ===[ \t\r]*\n", re.MULTILINE)
_PLACE = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
PLACES = frozenset({"fence", "today", "zone", "cast", "relationship_states", "talk"})
NEEDED = frozenset({"fence", "talk", "relationship_states", "today"})
MAX_PROMPT = 100_000


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


class BadPrompt(ValueError):
    """A text that cannot be a prompt; the message says why and what to do."""


def content_version(text: str) -> str:
    """The first 12 hexadecimal digits of the text's SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def check_prompt(text: str) -> None:
    """BadPrompt: no mark or two, a place missing or unknown, data unfenced or among the instructions, too long."""
    if len(text) > MAX_PROMPT:
        raise BadPrompt(f"a prompt has at most {MAX_PROMPT} characters")
    if len(MARK.findall(text)) != 1:
        raise BadPrompt("one line `=== user ===` parts the instructions from the data")
    places = set(_PLACE.findall(text))
    if missing := NEEDED - places:
        raise BadPrompt(f"these places are missing: {', '.join(sorted(missing))}")
    if unknown := places - PLACES:
        raise BadPrompt(f"these places are not known: {', '.join(sorted(unknown))}")
    instructions = set(_PLACE.findall(MARK.split(text)[0]))
    for place in ("talk", "relationship_states"):
        if place in instructions:
            raise BadPrompt(f"{{{{{place}}}}} is data: it stands below the line `=== user ===`")
        pattern = rf"<\{{\{{\s*fence\s*\}}\}}>\s*\{{\{{\s*{place}\s*\}}\}}\s*</\{{\{{\s*fence\s*\}}\}}>"
        if len(re.findall(rf"\{{\{{\s*{place}\s*\}}\}}", text)) != len(re.findall(pattern, text)):
            raise BadPrompt(
                f"{{{{{place}}}}} stands between <{{{{fence}}}}> and </{{{{fence}}}}> and nowhere else"
            )


def render_extraction(prompt: Prompt, request: WindowRequest) -> RenderedPrompt:
    """The prompt of one window. "Today" is the day of its last message, in that one's own zone: never now (I9)."""
    talk = "\n".join(_line(message, request.character_ids) for message in request.messages)
    states = _states(request)
    sent = [datetime.fromisoformat(message.sent_at) for message in request.messages]
    values = {
        "fence": _fence(talk + states),
        "today": f"{sent[-1]:%A %Y-%m-%d}" if sent else "unknown",
        "zone": f"UTC{sent[-1]:%z}" if sent else "UTC",
        "cast": json.dumps(list(request.character_ids), ensure_ascii=False),
        "relationship_states": states,
        "talk": talk,
    }
    # One pass, so that what a chat says is never taken for a place.
    system, user = (
        _PLACE.sub(lambda place: values[place[1]], part).strip()
        for part in MARK.split(prompt.text, maxsplit=1)
    )
    return RenderedPrompt(prompt.name, prompt.version, system, user, EXTRACTION_SCHEMA)


def _fence(data: str) -> str:
    """A name that does not stand in the data: a hash of it, taken again until it does not."""
    name = f"data-{content_version(data)}"
    while name in data:
        name = f"data-{content_version(name + data)}"
    return name


def _line(message: WindowMessage, cast: Sequence[str]) -> str:
    sent = datetime.fromisoformat(message.sent_at)
    return _json(
        {
            "n": message.position,
            "at": f"{sent:%a} {sent.isoformat()}",
            "by": speaker_of(message, cast) or "a character",
            "text": message.text,
        }
    )


def _states(request: WindowRequest) -> str:
    return "\n".join(
        _json(
            {"character": name, **(state.model_dump() if (state := request.relationships.get(name)) else {})}
        )
        for name in request.character_ids
    )


def _json(value: Mapping[str, object]) -> str:
    """One line. Lone surrogates, which no request can carry, become question marks."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()


def _object(**properties: object) -> dict[str, object]:
    """An object with exactly these properties: what strict structured output asks for."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list(items: object) -> dict[str, object]:
    return {"type": "array", "items": items}


_TEXT: dict[str, Any] = {"type": "string"}
_TEXT_OR_NULL: dict[str, Any] = {"type": ["string", "null"]}
# What models/extraction.py reads, for structured output. `user` stands for the user.
EXTRACTION_SCHEMA: Mapping[str, object] = _object(
    nothing={"type": "boolean"},
    summary=_TEXT,
    keyDetails=_list(
        _object(
            type={"type": "string", "enum": ["quote", "action"]},
            speaker={"type": "string", "description": f"{USER}, or the id of a character"},
            text=_TEXT,
            context=_TEXT,
        )
    ),
    importance={"type": "integer"},
    searchTerms=_list(_TEXT),
    involved=_list(_TEXT),
    plans=_list(_object(date=_TEXT, text=_TEXT)),
    date=_TEXT_OR_NULL,
    category=_TEXT_OR_NULL,
    relationshipStates=_list(
        _object(
            character=_TEXT,
            summary=_TEXT,
            formOfAddress=_TEXT,
            tone=_TEXT,
            currentState=_TEXT,
            unkeptPromises=_list(_TEXT),
            limits=_list(_TEXT),
        )
    ),
)
