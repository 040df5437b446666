"""Message repair (R36): a history as any of the vendors' models takes it."""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class HistoryMessage:
    """One message; `metadata` is the caller's."""

    role: Role
    content: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Repaired:
    """`messages` begin and end with the user's, and the roles alternate; `before` and `after` are the assistant's lines
    that have no place among them."""

    messages: tuple[HistoryMessage, ...]
    before: tuple[HistoryMessage, ...]
    after: tuple[HistoryMessage, ...]


def repaired(history: Sequence[HistoryMessage]) -> Repaired:
    """The history without system and blank messages, neighbours of one role merged by a line feed (the later one's
    metadata wins)."""
    merged: list[HistoryMessage] = []
    for message in history:
        content = "".join(_clean(character) for character in message.content)
        if message.role == "system" or not _is_visible(content):
            continue
        if merged and merged[-1].role == message.role:
            last = merged[-1]
            merged[-1] = HistoryMessage(
                message.role, f"{last.content}\n{content}", {**last.metadata, **message.metadata}
            )
        else:
            merged.append(HistoryMessage(message.role, content, message.metadata))
    first = next((at for at, message in enumerate(merged) if message.role == "user"), len(merged))
    end = next((at + 1 for at in range(len(merged) - 1, -1, -1) if merged[at].role == "user"), first)
    return Repaired(tuple(merged[first:end]), tuple(merged[:first]), tuple(merged[end:]))


def _clean(character: str) -> str:
    if character == "\x00":
        return ""
    return "\ufffd" if "\ud800" <= character <= "\udfff" else character


def _is_visible(content: str) -> bool:
    return any(
        not character.isspace() and unicodedata.category(character) not in ("Cc", "Cf")
        for character in content
    )
