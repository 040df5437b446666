"""`POST /v1/messages`: messages into the log, all or none of them valid."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

import orjson
from fastapi import APIRouter, Request
from pydantic import BaseModel

from agents.ports import Counters
from models.ids import MAX_ID_LENGTH
from models.messages import MAX_CHARACTERS, MAX_TEXT_BYTES, ROLES, InvalidEvent, parse_chat_message
from models.topics import CHAT
from streams.partitioner import partition_for
from streams.publisher import Draft, LogUnavailable, RecordTooLarge
from streams.web.ports import EventLog
from streams.web.problems import Problem

MAX_MESSAGES = 1_000
# Under the 1 MB that brokers and consumers take by default, key and framing included.
MAX_RECORD_BYTES = 900_000
MAX_ERRORS = 100

_ID = {"type": "string", "minLength": 1, "maxLength": MAX_ID_LENGTH}
_MESSAGE: dict[str, Any] = {
    "type": "object",
    "required": ["message_id", "user_id", "character_ids", "session_id", "role", "text"],
    "properties": {
        "message_id": {**_ID, "description": "the same id again counts once"},
        "user_id": _ID,
        "character_ids": {"type": "array", "items": _ID, "minItems": 1, "maxItems": MAX_CHARACTERS},
        "session_id": _ID,
        "role": {"enum": list(ROLES)},
        "text": {"type": "string", "description": f"at most {MAX_TEXT_BYTES} bytes in UTF-8"},
        "sent_at": {
            "type": "string",
            "format": "date-time",
            "description": "default: the time of the record",
        },
        "speaker": _ID,
        "source_mode": _ID,
        "metadata": {"type": "object"},
    },
}
_BODY = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "oneOf": [
                    _MESSAGE,
                    {"type": "array", "items": _MESSAGE, "minItems": 1, "maxItems": MAX_MESSAGES},
                ]
            }
        }
    },
}


class Position(BaseModel):
    """Where a record stands in the log."""

    topic: str
    partition: int
    offset: int


class Published(BaseModel):
    """How many messages the log has taken, and where each stands, in the order in which they were sent."""

    accepted: int
    positions: list[Position]


@dataclass(frozen=True, slots=True)
class MessageReader:
    """Reads a body into records of `chat.message`; a message is valid here if it is for the ledger."""

    partitions: int
    zone: tzinfo

    def read(self, body: bytes) -> list[Draft]:
        """The records to write. Problem: 400 no JSON, 413 too many, 422 with the index of each bad message."""
        try:
            data = orjson.loads(body)
        except orjson.JSONDecodeError:
            raise Problem(400, "The body is not JSON in UTF-8.") from None
        items = data if isinstance(data, list) else [data]
        if not items:
            raise Problem(422, "The list is empty: send one message, or a list of them.")
        if len(items) > MAX_MESSAGES:
            raise Problem(
                413, f"The list has {len(items)} messages, at most {MAX_MESSAGES} are taken at once."
            )
        now = time.time_ns() // 1_000_000
        drafts: list[Draft] = []
        errors: list[dict[str, object]] = []
        for index, item in enumerate(items):
            try:
                drafts.append(self._draft(item, now))
            except InvalidEvent as error:
                errors.append({"index": index, "reason": error.reason, "detail": error.detail})
        if errors:
            raise Problem(
                422,
                f"{len(errors)} of {len(items)} messages are not valid: nothing was published.",
                errors=errors[:MAX_ERRORS],
            )
        return drafts

    def _draft(self, item: object, now: int) -> Draft:
        try:
            value = orjson.dumps(item)
        except orjson.JSONEncodeError:
            raise InvalidEvent("invalid_json", "the message is nested too deeply") from None
        user = item.get("user_id") if isinstance(item, dict) else None
        key = user.encode() if isinstance(user, str) else b""
        message = parse_chat_message(value, key=key, timestamp=now, offset=0, zone=self.zone)
        if len(value) > MAX_RECORD_BYTES:
            raise InvalidEvent(
                "message_too_large",
                f"the message has {len(value)} bytes, at most {MAX_RECORD_BYTES} are taken",
            )
        return Draft(CHAT, partition_for(message.user_id, self.partitions), key, value)


async def publish(log: EventLog, drafts: Sequence[Draft]) -> list[Position]:
    """Write to the log; Problem 503 when Kafka is away, 413 when it does not take a record."""
    try:
        places = await log.publish(drafts)
    except RecordTooLarge:
        raise Problem(413, "A message is larger than the broker takes.") from None
    except LogUnavailable:
        raise Problem(
            503,
            "Kafka did not answer in time. Some of this may still arrive: send it again, "
            "the same message_id counts once.",
            headers={"Retry-After": "2"},
        ) from None
    return [Position(topic=at.topic, partition=at.partition, offset=at.offset) for at in places]


def messages_router(log: EventLog, reader: MessageReader, counters: Counters) -> APIRouter:
    router = APIRouter(tags=["messages"])

    @router.post("/v1/messages", openapi_extra={"requestBody": _BODY})
    async def post_messages(request: Request) -> Published:
        """Publish one message or a list of them; answered when the log has all of them."""
        drafts = reader.read(await request.body())
        positions = await publish(log, drafts)
        counters.count("published", len(positions))
        return Published(accepted=len(positions), positions=positions)

    return router
