"""Recent talk: which lines of a user's threads stand beside the memories (R32, I11)."""

from collections.abc import Sequence
from dataclasses import dataclass

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


def recent_talk(threads: Sequence[ThreadTalk], turns: int) -> list[Line]:
    """The lines of all threads in the order in which the log has them: the last `turns` turns, and whatever is not
    covered. A turn begins where the user speaks after another (or first)."""
    lines = sorted((line for thread in threads for line in thread.lines), key=lambda line: line.offset)
    begun = [
        at
        for at, line in enumerate(lines)
        if line.role == "user" and (at == 0 or lines[at - 1].role != "user")
    ]
    start = begun[-turns] if 0 < turns <= len(begun) else (0 if turns else len(lines))
    return [line for at, line in enumerate(lines) if at >= start or not line.covered]
