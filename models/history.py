"""Message repair (R36): a history as any of the vendors' models takes it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal

Role = Literal["system", "user", "assistant"]

# Whatever is neither white space nor control, nor drawn as nothing: Unicode's Default_Ignorable_Code_Point (zero width,
# directions, fillers, variation selectors, tags), the annotation marks and the blank Braille pattern. Not all of the
# category Cf: the Arabic number signs belong to it, and are seen.
_SEEN = re.compile(
    r"[^\s\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    r"\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e0fff]"
)


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
    metadata wins, key by key). Without a word of the user's there are no messages, and all is `before`."""
    carried = (
        HistoryMessage(message.role, _carried(message.content), message.metadata)
        for message in history
        if message.role != "system"
    )
    seen = (message for message in carried if _SEEN.search(message.content))
    merged = [_merged(role, list(run)) for role, run in groupby(seen, key=lambda message: message.role)]
    asked = [at for at, message in enumerate(merged) if message.role == "user"]
    first, end = (asked[0], asked[-1] + 1) if asked else (len(merged), len(merged))
    return Repaired(tuple(merged[first:end]), tuple(merged[:first]), tuple(merged[end:]))


def _carried(content: str) -> str:
    """The content as JSON in UTF-8 can carry it: halves of one character that stand side by side (as a stream that cut
    it leaves them) become that character, lone ones U+FFFD; and no NUL, at which some readers stop."""
    whole = content.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.replace("\x00", "")


def _merged(role: Role, run: Sequence[HistoryMessage]) -> HistoryMessage:
    if len(run) == 1:
        return run[0]
    # All at once: a run may be long, and to copy it for each of its messages would take the square of its length.
    metadata: dict[str, Any] = {}
    for message in run:
        metadata.update(message.metadata)
    return HistoryMessage(role, "\n".join(message.content for message in run), metadata)
