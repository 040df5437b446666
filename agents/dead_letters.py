"""Dead letters: how a record that cannot be understood is kept, and read again."""

import hashlib
from base64 import b64decode, b64encode

import orjson

from agents.codec import context
from agents.ports import CannotOpen, Sealer
from models.dead import MAX_DETAIL, MAX_KEY_BYTES, MAX_SEALED_BYTES, DeadLetter
from models.records import Record


def dead_letter(record: Record, reason: str, detail: str, sealer: Sealer) -> tuple[bytes, bytes]:
    """Key and value of the `memory.dead` record for `record`; it belongs in the partition of the same number."""
    blob = sealer.seal_deployment(_pack(record), _context(record.topic, record.partition, record.offset))
    fits = (len(blob) + 2) // 3 * 4 <= MAX_SEALED_BYTES
    letter = DeadLetter(
        reason=reason,
        detail=detail[:MAX_DETAIL],
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp=record.timestamp,
        sha256=hashlib.sha256(record.value or b"").hexdigest(),
        sealed=blob if fits else None,
    )
    key = record.key or b""
    return key if len(key) <= MAX_KEY_BYTES else b"", letter.model_dump_json().encode()


def open_dead_letter(letter: DeadLetter, sealer: Sealer) -> Record | None:
    """The record that a dead letter holds; None if it was too large to be kept. CannotOpen: not ours, or damaged."""
    if letter.sealed is None:
        return None
    text = sealer.open_deployment(letter.sealed, _context(letter.topic, letter.partition, letter.offset))
    head, _, value = text.partition(b"\n")
    try:
        key, has_value, headers = orjson.loads(head)
        return Record(
            topic=letter.topic,
            partition=letter.partition,
            offset=letter.offset,
            timestamp=letter.timestamp,
            key=None if key is None else b64decode(key),
            value=value if has_value else None,
            headers=tuple((name, b64decode(content)) for name, content in headers),
        )
    except (ValueError, TypeError) as error:
        raise CannotOpen("the dead letter holds no record") from error


def _pack(record: Record) -> bytes:
    """A JSON line of key, whether there is a value, and headers; then the value as it was."""
    key = None if record.key is None else b64encode(record.key).decode()
    headers = [(name, b64encode(content or b"").decode()) for name, content in record.headers]
    return orjson.dumps((key, record.value is not None, headers)) + b"\n" + (record.value or b"")


def _context(topic: str, partition: int, offset: int) -> bytes:
    return context("dead", topic, partition, offset)
