"""Recent talk: which lines of a user's threads stand beside the memories (R32, I11)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from models.messages import Role


@dataclass(frozen=True, slots=True)
class Line:
    """One line of talk. `timestamp` (ms) and `offset` are those of its record; `covered`: a memory holds it, or it was
    judged to be nothing to keep."""

    role: Role
    text: str
    sent_at: str
    timestamp: int
    offset: int
    speaker: str | None
    covered: bool


@dataclass(frozen=True, slots=True)
class ThreadTalk:
    """The last lines of a thread, oldest first."""

    character_ids: tuple[str, ...]
    lines: tuple[Line, ...]


def recent_talk(lines: Sequence[Line], turns: int) -> list[Line]:
    """Of lines in the order of the log the last `turns` turns, and whatever is not covered. A turn begins where the
    user speaks after another (or first)."""
    begun = [
        at
        for at, line in enumerate(lines)
        if line.role == "user" and (at == 0 or lines[at - 1].role != "user")
    ]
    start = begun[-turns] if 0 < turns <= len(begun) else (0 if turns else len(lines))
    return [line for at, line in enumerate(lines) if at >= start or not line.covered]


def with_query(threads: Sequence[ThreadTalk], before: Sequence[str], query: str) -> tuple[list[Line], str]:
    """The lines of all threads in the order of the log, and the message that is still to be answered after them.

    The message may be among the lines already, or still on its way; then it is given back. So may be the user's
    messages before it (`before`, oldest first): those that the lines lack follow them.
    """
    lines = sorted((line for thread in threads for line in thread.lines), key=lambda line: line.offset)
    said = {line.text for line in lines if line.role == "user"}
    lines += [_unseen(text, lines) for text in before if text.strip() and text not in said]
    return lines, "" if query in (line.text for line in _open_end(lines)) else query


def last_spoke(lines: Sequence[Line], query: str) -> datetime | None:
    """When the last line before the message that is to be answered was sent; None: there is none."""
    asked = {id(line) for line in _open_end(lines) if line.text == query}
    return next(
        (
            datetime.fromisoformat(line.sent_at)
            for line in reversed(lines)
            if line.sent_at and id(line) not in asked
        ),
        None,
    )


def _open_end(lines: Sequence[Line]) -> list[Line]:
    """What the user said since anyone else spoke."""
    end = len(lines)
    while end and lines[end - 1].role == "user":
        end -= 1
    return list(lines[end:])


def _unseen(text: str, lines: Sequence[Line]) -> Line:
    offset = lines[-1].offset + 1 if lines else 0
    return Line("user", text, sent_at="", timestamp=0, offset=offset, speaker=None, covered=False)
