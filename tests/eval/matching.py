"""How an answer is judged: NFKC, case-folded, white space removed."""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.eval.scenario import Probe


def normal(text: str) -> str:
    return re.sub(r"\s", "", unicodedata.normalize("NFKC", text).casefold())


def texts(memory: Mapping[str, Any]) -> list[str]:
    """What of a memory (as `POST /v1/recall` gives it) is looked at."""
    return [
        normal(text)
        for text in (
            memory["summary"],
            *(detail["text"] for detail in memory["key_details"]),
            *(text for plan in memory["plans"] for text in (plan["date"], plan["text"])),
            memory.get("category") or "",
            memory.get("date") or "",
        )
    ]


def holds(memory: Mapping[str, Any], piece: str) -> bool:
    wanted = normal(piece)
    return any(wanted in text for text in texts(memory))


def found(memories: Iterable[Mapping[str, Any]], group: Sequence[str]) -> bool:
    """Whether one alternative of a group stands in some memory."""
    return any(holds(memory, piece) for memory in memories for piece in group)


def groups_found(probe: Probe, memories: Sequence[Mapping[str, Any]], at: int) -> int:
    """How many golden groups stand in the first `at` memories."""
    return sum(found(memories[:at], group) for group in probe.gold)


def forbidden(probe: Probe, memories: Sequence[Mapping[str, Any]]) -> list[str]:
    """The forbidden pieces that stand in any memory."""
    return [piece for piece in probe.forbid if found(memories, [piece])]
