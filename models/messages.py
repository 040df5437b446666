"""`chat.message`: what a publisher may send, and what is said of anything else."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal, cast

import orjson

from models.ids import id_problem, make_cast

Role = Literal["user", "assistant", "system"]
ROLES = ("user", "assistant", "system")
MAX_TEXT_BYTES = 65_536
MAX_CHARACTERS = 32
# A sender's clock that is further ahead of the log than this is not believed (I9).
MAX_AHEAD = timedelta(days=1)


class InvalidEvent(ValueError):
    """An event that cannot be understood. `reason` is a fixed word, `detail` a sentence without text."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One valid chat message. `timestamp` is the record's, ms; `sent_at` is RFC 3339 with an offset."""

    message_id: str
    user_id: str
    cast: str
    session_id: str
    role: Role
    text: str
    sent_at: str
    timestamp: int
    offset: int
    speaker: str | None = None
    source_mode: str | None = None


def _need_id(data: dict[str, object], name: str) -> str:
    if name not in data:
        raise InvalidEvent("missing_field", f"{name} is missing")
    problem = id_problem(data[name])
    if problem:
        raise InvalidEvent("invalid_id", f"{name} {problem}")
    return cast(str, data[name])


def _optional_id(data: dict[str, object], name: str) -> str | None:
    return None if data.get(name) is None else _need_id(data, name)


def _characters(data: dict[str, object]) -> str:
    if "character_ids" not in data:
        raise InvalidEvent("missing_field", "character_ids is missing")
    characters = data["character_ids"]
    if not isinstance(characters, list):
        raise InvalidEvent("invalid_characters", "character_ids must be a list of ids")
    if not 1 <= len(characters) <= MAX_CHARACTERS:
        raise InvalidEvent(
            "invalid_characters", f"character_ids must name 1 to {MAX_CHARACTERS}, names {len(characters)}"
        )
    for character in characters:
        problem = id_problem(character)
        if problem:
            raise InvalidEvent("invalid_id", f"an entry of character_ids {problem}")
    return make_cast(characters)


def resolve_sent_at(value: object, timestamp: int, zone: tzinfo) -> str:
    """RFC 3339 time of the message: the sender's, in `zone` if it has no offset, else the record's.

    One more than a day after the record's timestamp (ms) is taken as the record's (I9).
    """
    recorded = datetime.fromtimestamp(timestamp / 1000, UTC)
    if value is None:
        return recorded.astimezone(zone).isoformat()
    if not isinstance(value, str):
        raise InvalidEvent("invalid_sent_at", "sent_at must be an RFC 3339 time as a string")
    try:
        sent = datetime.fromisoformat(value)
        if "T" not in value.upper() and " " not in value:
            raise ValueError("a date alone")
        if sent.tzinfo is None:
            sent = sent.replace(tzinfo=zone)
        ahead = sent - recorded > MAX_AHEAD
    except (ValueError, OverflowError) as error:
        raise InvalidEvent(
            "invalid_sent_at", "sent_at must be an RFC 3339 time like 2026-03-02T21:10:00+09:00"
        ) from error
    return (recorded.astimezone(zone) if ahead else sent).isoformat()


def parse_object(value: bytes | None) -> dict[str, object]:
    """The JSON object of a record's value; InvalidEvent for anything else."""
    if not value:
        raise InvalidEvent("empty_value", "the record has no value")
    try:
        data = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        # The parser's own message may quote the input, so only the kind of fault is told.
        raise InvalidEvent("invalid_json", "the value is not JSON in UTF-8") from error
    if not isinstance(data, dict):
        raise InvalidEvent("not_an_object", f"the value must be a JSON object, is {type(data).__name__}")
    return cast(dict[str, object], data)


def parse_chat_message(
    value: bytes | None,
    *,
    key: bytes | None,
    timestamp: int,
    offset: int,
    zone: tzinfo,
    sent: int | None = None,
) -> ChatMessage:
    """Read a `chat.message` record; unknown fields are ignored, as is `metadata` beyond its type.

    `timestamp` is the record's, ms; `sent` is the time of a message that says none, if it is another
    (a dead letter that was published again).

    Raises InvalidEvent with a fixed reason: empty_value, invalid_json, not_an_object, missing_field,
    invalid_id, invalid_characters, invalid_role, invalid_text, text_too_long, invalid_sent_at,
    invalid_metadata, key_mismatch.
    """
    data = parse_object(value)
    user = _need_id(data, "user_id")
    if key != user.encode():
        raise InvalidEvent("key_mismatch", "the record's key must be the user_id in UTF-8")
    message = _need_id(data, "message_id")
    session = _need_id(data, "session_id")
    characters = _characters(data)
    role = data.get("role")
    if role not in ROLES:
        raise InvalidEvent("invalid_role", "role must be user, assistant or system")
    text = data.get("text")
    if not isinstance(text, str):
        raise InvalidEvent("invalid_text", "text must be a string")
    size = len(text.encode())
    if size > MAX_TEXT_BYTES:
        raise InvalidEvent("text_too_long", f"text has {size} bytes, at most {MAX_TEXT_BYTES} are taken")
    if not isinstance(data.get("metadata", {}), dict | None):
        raise InvalidEvent("invalid_metadata", "metadata must be an object")
    return ChatMessage(
        message_id=message,
        user_id=user,
        cast=characters,
        session_id=session,
        role=cast(Role, role),
        text=text,
        sent_at=resolve_sent_at(data.get("sent_at"), timestamp if sent is None else sent, zone),
        timestamp=timestamp,
        offset=offset,
        speaker=_optional_id(data, "speaker"),
        source_mode=_optional_id(data, "source_mode"),
    )
