"""Memory as a tool of a model (R30): one definition, told in each vendor's format; what a model asks, made a request;
and what it is answered.

User and characters are never a model's to choose: the chat service gives them.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import accumulate
from typing import Any, Literal, get_args

from models.memory import MemoryKind, Quote
from models.recall import Memory, RecallResponse

Vendor = Literal["gemini", "anthropic", "bedrock", "openai"]

# Bounds of one answer: memories, and characters in all; a memory is never cut.
MOST_MEMORIES = 20
MOST_CHARACTERS = 8_000
MOST_QUERY = 1_000

KINDS = get_args(MemoryKind)
MODES = ("relevant", "latest", "exhaustive")

_DAY = "a day as YYYY-MM-DD, included"
_CURSOR = {
    "type": "string",
    "description": "next_cursor of the answer before, with everything else as it was: the next page",
}


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool: `parameters` is a JSON schema of an object."""

    name: str
    description: str
    parameters: dict[str, Any]


RECALL = Tool(
    name="recall_memory",
    description="Look up what is remembered of earlier conversations with this user: facts, events, plans, promises, "
    "what was said word for word. Call it when the user refers to something that is not in the conversation, or when "
    "you need to know something about them. If it finds nothing, say that you do not know.",
    parameters={
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "description": "what to look for, in the user's language, as a short sentence or some words",
            },
            "mode": {
                "type": "string",
                "enum": list(MODES),
                "description": "relevant: what fits the query best; latest: what holds now of something that changes "
                "(where they live, what they weigh); exhaustive: everything of a period, to count or sum up, for "
                "which date_from and date_to are both needed",
            },
            "date_from": {"type": "string", "description": f"only from this day on: {_DAY}"},
            "date_to": {"type": "string", "description": f"only up to this day: {_DAY}"},
            "kinds": {
                "type": "array",
                "items": {"type": "string", "enum": list(KINDS)},
                "description": "only of these kinds; usually left out",
            },
            "limit": {"type": "integer", "description": f"at most so many, 1 to {MOST_MEMORIES}"},
            "cursor": _CURSOR,
        },
        "required": ["query"],
    },
)
TIMELINE = Tool(
    name="timeline",
    description="List everything that is remembered of a period, in the order of its days: to tell what happened, to "
    "count, or to sum up. Ask for the next page until there is no next_cursor.",
    parameters={
        "type": "object",
        "properties": {
            "date_from": {"type": "string", "description": f"the first day: {_DAY}"},
            "date_to": {"type": "string", "description": f"the last day: {_DAY}"},
            "cursor": _CURSOR,
        },
        "required": ["date_from", "date_to"],
    },
)
TOOLS = {tool.name: tool for tool in (RECALL, TIMELINE)}


def declarations(vendor: Vendor) -> list[dict[str, Any]]:
    """The tools as the vendor's API takes them under `tools` (Bedrock Converse: `toolConfig.tools`)."""
    return _VENDORS[vendor](tuple(TOOLS.values()))


def _gemini(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    declared = [
        {"name": tool.name, "description": tool.description, "parameters": _openapi(tool.parameters)}
        for tool in tools
    ]
    return [{"function_declarations": declared}]


def _anthropic(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    return [
        {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
        for tool in tools
    ]


def _bedrock(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    return [
        {
            "toolSpec": {
                "name": tool.name,
                "description": tool.description,
                "inputSchema": {"json": tool.parameters},
            }
        }
        for tool in tools
    ]


def _openai(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
        }
        for tool in tools
    ]


_VENDORS: dict[Vendor, Callable[[Sequence[Tool]], list[dict[str, Any]]]] = {
    "gemini": _gemini,
    "anthropic": _anthropic,
    "bedrock": _bedrock,
    "openai": _openai,
}


def _openapi(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON schema as Gemini's `Schema` has it: types in capitals."""
    told: dict[str, Any] = dict(schema)
    told["type"] = str(schema["type"]).upper()
    if "properties" in schema:
        told["properties"] = {name: _openapi(one) for name, one in schema["properties"].items()}
    if "items" in schema:
        told["items"] = _openapi(schema["items"])
    return told


class Instruction(Exception):
    """What a model asked cannot be done; the message tells it what to ask instead."""


def tool_request(name: str, arguments: object) -> dict[str, Any]:
    """The fields of a recall (without user and characters) for a call of a tool. Instruction: it cannot be answered.

    What a model writes is assumed broken: JSON in a string, numbers as strings, times for days, nulls and empty
    strings for nothing, keys that nobody asked for.
    """
    if name not in TOOLS:
        raise Instruction(f"There is no tool of this name. Call one of: {', '.join(TOOLS)}.")
    given = _object(arguments)
    known = {
        key: value
        for key, value in given.items()
        if key in TOOLS[name].parameters["properties"] and value not in (None, "", [])
    }
    first, last = _day(known, "date_from"), _day(known, "date_to")
    if first and last and first > last:
        raise Instruction("date_from is after date_to: call again with the earlier day as date_from.")
    mode = "exhaustive" if name == TIMELINE.name else str(known.get("mode", "relevant")).strip().lower()
    if mode not in MODES:
        raise Instruction(f"mode must be one of: {', '.join(MODES)}.")
    if mode == "exhaustive" and not (first and last):
        raise Instruction(
            "Counting or summing up needs a period: call again with both date_from and date_to, for "
            'example {"date_from": "2026-06-01", "date_to": "2026-06-30"}.'
        )
    request: dict[str, Any] = {
        "query": str(known.get("query", ""))[:MOST_QUERY],
        "mode": mode,
        "limit": _limit(known.get("limit"), mode),
        "filters": {"kinds": _kinds(known.get("kinds")), "date_from": first, "date_to": last},
    }
    if mode == "exhaustive" and "cursor" in known:
        request["cursor"] = str(known["cursor"])
    return request


def shorter_page(request: Mapping[str, Any], response: RecallResponse) -> dict[str, Any] | None:
    """What to ask instead, where a page of everything has more than an answer has room for: as many as it has, so that
    the next page begins behind them. None: it has room."""
    room = _room(response.memories)
    if request["mode"] != "exhaustive" or room == len(response.memories):
        return None
    return {**request, "limit": room}


def tool_answer(response: RecallResponse) -> dict[str, Any]:
    """What a model is told of a recall: memories as far as they fit, best first, and how to go on."""
    room = _room(response.memories)
    answer: dict[str, Any] = {"memories": [_entry(memory) for memory in response.memories[:room]]}
    left = len(response.memories) - room
    if left:
        answer["note"] = f"{left} more, which fit less, had no room."
    elif response.cursor:
        answer["next_cursor"] = response.cursor
    if response.degraded:
        answer["note"] = "Memory cannot be searched completely at the moment: something may be missing here."
    elif not room:
        answer["note"] = "Nothing is remembered of this: say that you do not know."
    return answer


def _room(memories: Sequence[Memory]) -> int:
    """How many of the memories an answer has room for, in their order; at least one, however long."""
    sizes = (len(json.dumps(_entry(memory), ensure_ascii=False)) for memory in memories[:MOST_MEMORIES])
    fit = sum(size <= MOST_CHARACTERS for size in accumulate(sizes))
    return max(fit, min(1, len(memories)))


def _object(arguments: object) -> Mapping[str, Any]:
    if isinstance(arguments, str | bytes):
        try:
            arguments = json.loads(arguments or "{}")
        except ValueError:
            raise Instruction("The arguments must be a JSON object.") from None
    if arguments is None:
        return {}
    if not isinstance(arguments, Mapping):
        raise Instruction("The arguments must be a JSON object.")
    return arguments


def _day(known: Mapping[str, Any], name: str) -> date | None:
    """A day; of a time its day."""
    value = known.get(name)
    if value is None:
        return None
    try:
        return date.fromisoformat(str(value).strip()[: len("2026-06-01")])
    except ValueError:
        raise Instruction(f'{name} must be {_DAY}, for example "2026-06-01".') from None


def _limit(value: object, mode: str) -> int | None:
    if value is None:
        return MOST_MEMORIES if mode == "exhaustive" else None
    try:
        return max(1, min(int(float(str(value))), MOST_MEMORIES))
    except (ValueError, OverflowError):
        raise Instruction(f"limit must be a whole number from 1 to {MOST_MEMORIES}.") from None


def _kinds(value: object) -> list[str]:
    if value is None:
        return []
    kinds = [str(one).strip().lower() for one in value] if isinstance(value, list | tuple) else [str(value)]
    unknown = set(kinds) - set(KINDS)
    if unknown:
        raise Instruction(f"kinds must be of: {', '.join(KINDS)}. Leave it out for all.")
    return kinds


def _entry(memory: Memory) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "date": memory.date.isoformat(),
        "summary": memory.summary,
        "importance": memory.importance,
    }
    if memory.category:
        entry["category"] = memory.category
    quotes = [one for one in memory.key_details if isinstance(one, Quote)]
    if quotes:
        entry["quotes"] = [{"speaker": one.speaker, "text": one.text} for one in quotes]
    actions = [one for one in memory.key_details if not isinstance(one, Quote)]
    if actions:
        entry["actions"] = [{"actor": one.actor, "text": one.text} for one in actions]
    if memory.plans:
        entry["plans"] = [{"date": one.date, "text": one.text} for one in memory.plans]
    return entry
