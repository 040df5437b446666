"""Reads `memory.created`, `memory.embedded` and `memory.changed`; whatever is none raises InvalidEvent."""

from typing import TypeVar
from uuid import UUID

import orjson
from pydantic import BaseModel, ValidationError

from models.messages import InvalidEvent
from models.published import (
    TOKENS,
    MemoryCreated,
    MemoryEmbedded,
    RelationshipChanged,
    WindowChanged,
)
from models.records import Record

M = TypeVar("M", bound=BaseModel)


def parse_created(record: Record) -> MemoryCreated:
    memory = _parse(MemoryCreated, record, "invalid_created")
    _need_uuids("invalid_created", memory.memory_id, memory.request_id)
    if not memory.characters:
        raise InvalidEvent("invalid_created", "no character owns the memory")
    return memory


def parse_embedded(record: Record) -> MemoryEmbedded:
    embedded = _parse(MemoryEmbedded, record, "invalid_embedded")
    _need_uuids("invalid_embedded", embedded.memory_id)
    if embedded.what == TOKENS and embedded.tokens is None:
        raise InvalidEvent("invalid_embedded", "the record of tokens has none")
    return embedded


def parse_changed(record: Record) -> RelationshipChanged | WindowChanged | None:
    """What changed; None: a field that this version does not know."""
    try:
        data = orjson.loads(record.value or b"")
        field = data["field"]
    except (ValueError, TypeError, KeyError):
        raise InvalidEvent("invalid_changed", "the value is not a JSON object with a field") from None
    if field == "relationship":
        return _parse(RelationshipChanged, record, "invalid_changed")
    if field == "window":
        window = _parse(WindowChanged, record, "invalid_changed")
        _need_uuids("invalid_changed", window.request_id, *window.memory_ids)
        return window
    return None


def _parse(model: type[M], record: Record, reason: str) -> M:
    try:
        return model.model_validate_json(record.value or b"")
    except ValidationError as error:
        # Not the error itself: it quotes the input.
        raise InvalidEvent(reason, f"{error.error_count()} fields are wrong") from None


def _need_uuids(reason: str, *values: str) -> None:
    if any(not _is_uuid(value) for value in values):
        raise InvalidEvent(reason, "an id is not a UUID")


def _is_uuid(value: str) -> bool:
    """Whether it is written as PostgreSQL gives it back: UUID() takes a urn, braces and more."""
    try:
        return str(UUID(value)) == value.lower()
    except ValueError:
        return False
