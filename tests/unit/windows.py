"""Requests for windows of a few lines, for tests."""

from collections.abc import Mapping, Sequence

from models.memory import RelationshipState
from models.requests import WindowMessage, WindowRequest

SENT_AT = "2026-03-03T21:00:00+09:00"
REQUEST_ID = "6f0c4f0e-5f0b-5c1c-9d59-0b7f6b1a52a4"


def window(
    lines: Sequence[str],
    *,
    cast: tuple[str, ...] = ("c",),
    shown: Mapping[str, RelationshipState | None] | None = None,
    attempt: int = 1,
    request_id: str = REQUEST_ID,
    sent_at: str = SENT_AT,
) -> WindowRequest:
    """A request whose lines are the user's; `@text` is an assistant's, `@name: text` that of a scene's character."""
    messages = []
    for number, line in enumerate(lines, 1):
        text, speaker = line.removeprefix("@"), None
        name, colon, rest = text.partition(": ")
        if line.startswith("@") and colon and name in cast:
            text, speaker = rest, name
        messages.append(
            WindowMessage(
                position=number,
                message_id=f"m{number}",
                session_id="s",
                role="assistant" if line.startswith("@") else "user",
                text=text,
                sent_at=sent_at,
                speaker=speaker,
            )
        )
    return WindowRequest(
        request_id=request_id,
        user_id="u",
        character_ids=cast,
        epoch=0,
        number=1,
        attempt=attempt,
        versions=dict.fromkeys(cast, 0),
        messages=tuple(messages),
        relationships={character: (shown or {}).get(character) for character in cast},
    )
