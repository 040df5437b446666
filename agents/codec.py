"""Sealing of rows and records: which key, which context, which shape. The layout of every sealed thing is here.

Contexts (associated data) name what is sealed and whose it is, so that a blob opens nowhere else:
`pair ␟ user ␟ character ␟ epoch`, `thread-key ␟ user ␟ cast ␟ epoch ␟ character`, `relationship ␟ user ␟
character ␟ epoch`, `message ␟ user ␟ cast ␟ epoch ␟ position`, `memory-key ␟ memory ␟ user ␟ character ␟ epoch`,
`memory ␟ memory ␟ user`, `vector ␟ memory ␟ model`, `request ␟ id`, `result ␟ id`, `dead ␟ topic ␟ partition ␟ offset`.
"""

from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Protocol

import orjson
from pydantic import ValidationError

from agents.ports import CannotOpen, Sealer
from models.ids import SEP, split_cast
from models.memory import MemoryContent, RelationshipState
from models.messages import InvalidEvent, parse_object
from models.published import CharacterSeq
from models.records import Record
from models.requests import WindowRequest, WindowResult
from models.rows import PairRow

WRAPPED_BYTES = 12 + 32 + 16
_VERSION = b"\x01"


def context(*parts: object) -> bytes:
    """Associated data of the given parts."""
    return SEP.join(str(part) for part in parts).encode()


class PairKeys(Protocol):
    """Finds the wrapped key of a pair. LookupError: not known (yet). DestroyedKey: it was destroyed."""

    def wrapped_pair_key(self, user: str, character: str, epoch: int) -> bytes: ...


class DestroyedKey(Exception):
    """The pair's key was destroyed: what it sealed is to be passed over quietly (I10)."""


class PairCipher:
    """Opens pair keys, and seals what belongs to one pair."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer
        self._opened: dict[bytes, bytes] = {}

    def new_wrapped_key(self, user: str, character: str, epoch: int) -> bytes:
        return self._sealer.wrap(self._sealer.new_key(), context("pair", user, character, epoch))

    def open_key(self, user: str, character: str, epoch: int, wrapped: bytes) -> bytes:
        key = self._opened.get(wrapped)
        if key is None:
            key = self._sealer.unwrap(wrapped, context("pair", user, character, epoch))
            if len(self._opened) >= 10_000:
                self._opened.clear()
            self._opened[wrapped] = key
        return key

    def seal_relationship(self, user: str, character: str, row: PairRow) -> bytes | None:
        if row.relationship is None:
            return None
        key = self.open_key(user, character, row.epoch, row.key)
        text = row.relationship.model_dump_json().encode()
        return self._sealer.seal(key, text, context("relationship", user, character, row.epoch))

    def open_relationship(
        self, user: str, character: str, epoch: int, wrapped: bytes, blob: bytes
    ) -> RelationshipState:
        key = self.open_key(user, character, epoch, wrapped)
        text = self._sealer.open(key, blob, context("relationship", user, character, epoch))
        return RelationshipState.model_validate_json(text)


class MemoryCipher:
    """Seals a memory by a key of its own, wrapped by the key of each pair that shares it (R13).

    The payload is a version byte (1) ‖ number of pairs (1 byte) ‖ for each pair, in the order of the
    record's `characters`, its wrapped memory key (60 bytes) ‖ the sealed content.
    """

    def __init__(self, sealer: Sealer, pairs: PairCipher) -> None:
        self._sealer = sealer
        self._pairs = pairs

    def seal(
        self,
        memory: str,
        user: str,
        refs: Sequence[CharacterSeq],
        wrapped: Sequence[bytes],
        content: MemoryContent,
    ) -> bytes:
        """Seal `content`; `wrapped` are the wrapped pair keys, in the order of `refs`."""
        key = self._sealer.new_key()
        parts = [_VERSION, bytes((len(refs),))]
        for ref, wrapped_pair in zip(refs, wrapped, strict=True):
            pair_key = self._pairs.open_key(user, ref.character_id, ref.epoch, wrapped_pair)
            parts.append(
                self._sealer.seal(
                    pair_key, key, context("memory-key", memory, user, ref.character_id, ref.epoch)
                )
            )
        text = content.model_dump_json().encode()
        parts.append(self._sealer.seal(key, text, context("memory", memory, user)))
        return b"".join(parts)

    def open_key(
        self, memory: str, user: str, refs: Sequence[CharacterSeq], payload: bytes, keys: PairKeys
    ) -> bytes:
        """The memory's own key, by the first pair whose key is alive.

        Raises DestroyedKey when every pair's key was, LookupError when one is not known yet and none
        opens, CannotOpen when the payload is damaged.
        """
        if payload[:1] != _VERSION or len(payload) < 2 or payload[1] != len(refs):
            raise CannotOpen("not a payload of this version for these characters")
        unknown: LookupError | None = None
        for index, ref in enumerate(refs):
            start = 2 + index * WRAPPED_BYTES
            try:
                wrapped = keys.wrapped_pair_key(user, ref.character_id, ref.epoch)
            except DestroyedKey:
                continue
            except LookupError as error:
                unknown = error
                continue
            pair_key = self._pairs.open_key(user, ref.character_id, ref.epoch, wrapped)
            return self._sealer.open(
                pair_key,
                payload[start : start + WRAPPED_BYTES],
                context("memory-key", memory, user, ref.character_id, ref.epoch),
            )
        raise unknown or DestroyedKey(memory)

    def open(
        self, memory: str, user: str, refs: Sequence[CharacterSeq], payload: bytes, keys: PairKeys
    ) -> MemoryContent:
        """The content of a memory. Errors as `open_key`."""
        key = self.open_key(memory, user, refs, payload, keys)
        blob = payload[2 + len(refs) * WRAPPED_BYTES :]
        return MemoryContent.model_validate_json(
            self._sealer.open(key, blob, context("memory", memory, user))
        )

    def seal_vector(self, key: bytes, memory: str, model: str, vector: bytes) -> bytes:
        return self._sealer.seal(key, vector, context("vector", memory, model))

    def open_vector(self, key: bytes, memory: str, model: str, blob: bytes) -> bytes:
        return self._sealer.open(key, blob, context("vector", memory, model))


class ThreadCipher:
    """Seals the buffered messages of a thread by a key that each of its pairs can open."""

    def __init__(self, sealer: Sealer, pairs: PairCipher) -> None:
        self._sealer = sealer
        self._pairs = pairs
        self._opened: dict[tuple[bytes, ...], bytes] = {}

    def new_wrapped_key(
        self, user: str, cast: str, epoch: int, pairs: Sequence[PairRow]
    ) -> tuple[bytes, ...]:
        """A new thread key, wrapped by the key of each pair, in the order of the cast."""
        key = self._sealer.new_key()
        return tuple(
            self._sealer.seal(
                self._pairs.open_key(user, character, pair.epoch, pair.key),
                key,
                context("thread-key", user, cast, epoch, character),
            )
            for character, pair in zip(split_cast(cast), pairs, strict=True)
        )

    def open_key(
        self, user: str, cast: str, epoch: int, wrapped: tuple[bytes, ...], pairs: Sequence[PairRow | None]
    ) -> bytes:
        """The thread's key by the first pair that is there; CannotOpen if none is."""
        key = self._opened.get(wrapped)
        if key is not None:
            return key
        for character, blob, pair in zip(split_cast(cast), wrapped, pairs, strict=True):
            if pair is None:
                continue
            pair_key = self._pairs.open_key(user, character, pair.epoch, pair.key)
            key = self._sealer.open(pair_key, blob, context("thread-key", user, cast, epoch, character))
            if len(self._opened) >= 10_000:
                self._opened.clear()
            self._opened[wrapped] = key
            return key
        raise CannotOpen("no pair of the thread has a key")


class RequestCodec:
    """`memory.requested` and `memory.extracted`: ids in the clear, the rest sealed by the deployment key."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer

    def seal_request(self, request: WindowRequest) -> tuple[bytes, bytes]:
        """Key and value of the `memory.requested` record."""
        return self._seal("request", request)

    def open_request(self, record: Record) -> WindowRequest:
        """The request of a record; InvalidEvent if it is not one."""
        try:
            return WindowRequest.model_validate_json(self._open("request", record))
        except ValidationError as error:
            raise InvalidEvent("invalid_request", f"{error.error_count()} fields are wrong") from None

    def seal_result(self, result: WindowResult) -> tuple[bytes, bytes]:
        """Key and value of the `memory.extracted` record."""
        return self._seal("result", result)

    def open_result(self, record: Record) -> WindowResult:
        """The result of a record; InvalidEvent if it is not one."""
        try:
            return WindowResult.model_validate_json(self._open("result", record))
        except ValidationError as error:
            raise InvalidEvent("invalid_result", f"{error.error_count()} fields are wrong") from None

    def _seal(self, kind: str, value: WindowRequest | WindowResult) -> tuple[bytes, bytes]:
        blob = self._sealer.seal_deployment(value.model_dump_json().encode(), context(kind, value.request_id))
        header = {"request_id": value.request_id, "user_id": value.user_id, "attempt": value.attempt}
        return value.request_id.encode(), orjson.dumps({**header, "sealed": b64encode(blob).decode()})

    def _open(self, kind: str, record: Record) -> bytes:
        data = parse_object(record.value)
        try:
            blob = b64decode(str(data["sealed"]), validate=True)
            return self._sealer.open_deployment(blob, context(kind, data["request_id"]))
        except (KeyError, ValueError, CannotOpen) as error:
            raise InvalidEvent(
                "cannot_open", f"the {kind} does not open with this deployment's master keys"
            ) from error
