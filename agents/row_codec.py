"""Bytes of the ledger's rows, and the overlay through which they are read and written.

Sealed are the text of messages (by the thread's key) and relationship states (by the pair's key); counts,
ids and times are in the clear.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import cast

import orjson

from agents.codec import WRAPPED_BYTES, PairCipher, ThreadCipher, context
from agents.ports import Sealer
from models.ids import split_cast
from models.memory import Source
from models.rows import (
    AnyKey,
    AnyRow,
    Key,
    MessageKey,
    MessageRow,
    PairKey,
    PairRow,
    R,
    Rows,
    ThreadKey,
    ThreadKeyKey,
    ThreadKeyRow,
    ThreadQueue,
    ThreadRow,
    UserKey,
    UserRow,
    WindowKey,
    WindowRow,
)


def decode_thread(blob: bytes) -> ThreadRow:
    """A thread's row: a JSON list of its counters, a line feed, and the ring of digests."""
    head, _, ring = blob.partition(b"\n")
    row = ThreadRow(*orjson.loads(head))
    row.ring = ring
    return row


def decode_window(blob: bytes) -> WindowRow:
    data = orjson.loads(blob)
    data["source"] = Source.model_validate(data["source"]) if data["source"] else None
    data["memory_ids"] = tuple(data["memory_ids"])
    return WindowRow(**data)


def decode_user(blob: bytes) -> UserRow:
    order, threads = orjson.loads(blob)
    return UserRow(order, {name: ThreadQueue(*queue) for name, queue in threads.items()})


def pair_key_of(blob: bytes) -> tuple[int, bytes]:
    """Epoch and wrapped key of an encoded pair row, nothing opened."""
    data = orjson.loads(blob)
    return data["epoch"], b64decode(data["key"])


class RowCodec:
    """Encodes and decodes rows; `rows` gives the rows whose keys a row is sealed by."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer
        self._pairs = PairCipher(sealer)
        self._threads = ThreadCipher(sealer, self._pairs)

    @property
    def pairs(self) -> PairCipher:
        return self._pairs

    def pair_key(self, user: str, character: str, epoch: int) -> bytes:
        return self._pairs.new_wrapped_key(user, character, epoch)

    def thread_key(self, user: str, cast: str, epoch: int, pairs: tuple[PairRow, ...]) -> tuple[bytes, ...]:
        return self._threads.new_wrapped_key(user, cast, epoch, pairs)

    def encode(self, key: AnyKey, row: AnyRow, rows: Rows) -> bytes:
        match row:
            case MessageRow():
                assert isinstance(key, MessageKey)
                return self._encode_message(key, row, rows)
            case ThreadRow():
                counters = (
                    row.epoch,
                    row.next_position,
                    row.closed_position,
                    row.closed_windows,
                    row.user_messages,
                    row.due_at,
                    row.open_bytes,
                    row.last_timestamp,
                    row.trimmed_windows,
                )
                return orjson.dumps(counters) + b"\n" + row.ring
            case WindowRow():
                data = {name: getattr(row, name) for name in WindowRow.__slots__}
                data["source"] = row.source.model_dump() if row.source else None
                return orjson.dumps(data)
            case UserRow():
                queues = {
                    name: (q.epoch, q.closed, q.next, q.open, q.requeued, q.parked)
                    for name, q in row.threads.items()
                }
                return orjson.dumps((row.order, queues))
            case PairRow():
                assert isinstance(key, PairKey)
                return self._encode_pair(key, row)
            case ThreadKeyRow():
                return b"".join(row.wrapped)

    def decode(self, key: AnyKey, blob: bytes, rows: Rows) -> AnyRow:
        """The row of these bytes. CannotOpen if it was sealed otherwise."""
        match key:
            case MessageKey():
                return self._decode_message(key, blob, rows)
            case ThreadKey():
                return decode_thread(blob)
            case WindowKey():
                return decode_window(blob)
            case UserKey():
                return decode_user(blob)
            case PairKey():
                return self._decode_pair(key, blob)
            case ThreadKeyKey():
                return ThreadKeyRow(
                    tuple(blob[at : at + WRAPPED_BYTES] for at in range(0, len(blob), WRAPPED_BYTES))
                )

    def _encode_pair(self, key: PairKey, row: PairRow) -> bytes:
        sealed = self._pairs.seal_relationship(key.user, key.character, row)
        return orjson.dumps(
            {
                "epoch": row.epoch,
                "key": b64encode(row.key).decode(),
                "last_seq": row.last_seq,
                "relationship": b64encode(sealed).decode() if sealed else None,
                "relationship_version": row.relationship_version,
            }
        )

    def _decode_pair(self, key: PairKey, blob: bytes) -> PairRow:
        data = orjson.loads(blob)
        wrapped = b64decode(data["key"])
        state = None
        if data["relationship"]:
            sealed = b64decode(data["relationship"])
            state = self._pairs.open_relationship(key.user, key.character, data["epoch"], wrapped, sealed)
        return PairRow(data["epoch"], wrapped, data["last_seq"], state, data["relationship_version"])

    def _encode_message(self, key: MessageKey, row: MessageRow, rows: Rows) -> bytes:
        fields = [getattr(row, name) for name in MessageRow.__slots__]
        return self._sealer.seal(self._thread_key(key, rows), orjson.dumps(fields), _message_context(key))

    def _decode_message(self, key: MessageKey, blob: bytes, rows: Rows) -> MessageRow:
        opened = self._sealer.open(self._thread_key(key, rows), blob, _message_context(key))
        return MessageRow(*orjson.loads(opened))

    def _thread_key(self, key: MessageKey, rows: Rows) -> bytes:
        wrapped = rows.get(ThreadKeyKey(key.user, key.cast, key.epoch))
        if wrapped is None:
            raise LookupError("the thread of this message has no key")
        pairs = [rows.get(PairKey(key.user, name)) for name in split_cast(key.cast)]
        return self._threads.open_key(key.user, key.cast, key.epoch, wrapped.wrapped, pairs)


def _message_context(key: MessageKey) -> bytes:
    return context("message", key.user, key.cast, key.epoch, key.position)


class Overlay:
    """The rows of one batch over the committed ones. A row is decoded once, and the same object is given again."""

    def __init__(self, committed: Callable[[bytes], bytes | None], codec: RowCodec) -> None:
        self._committed = committed
        self._codec = codec
        self._rows: dict[AnyKey, AnyRow | None] = {}
        self._changed: dict[AnyKey, None] = {}

    def get(self, key: Key[R]) -> R | None:
        at = cast(AnyKey, key)
        if at in self._rows:
            return cast("R | None", self._rows[at])
        blob = self._committed(key.encode())
        row = None if blob is None else self._codec.decode(at, blob, self)
        self._rows[at] = row
        return cast("R | None", row)

    def put(self, key: Key[R], row: R) -> None:
        at = cast(AnyKey, key)
        self._rows[at] = row
        self._changed[at] = None

    def delete(self, key: Key[R]) -> None:
        at = cast(AnyKey, key)
        self._rows[at] = None
        self._changed[at] = None

    def changed(self) -> dict[AnyKey, AnyRow | None]:
        """The rows that were put, None where one was deleted."""
        return {key: self._rows[key] for key in self._changed}

    def encode(self) -> dict[bytes, bytes | None]:
        """The changes as the table takes them."""
        return {
            key.encode(): None if row is None else self._codec.encode(key, row, self)
            for key, row in self.changed().items()
        }
