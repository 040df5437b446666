"""Ids and keys: how a thread, a request and a memory are named, the same in every replay (I2)."""

import hashlib
import re
from collections.abc import Iterable
from uuid import UUID, uuid5

# Ids cannot contain control characters, so these two join composite keys without escaping.
SEP = "\x1f"
CAST_SEP = "\x1e"

MAX_ID_LENGTH = 128
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_NAMESPACE = UUID("6f0c4f0e-5f0b-5c1c-9d59-0b7f6b1a52a4")


def id_problem(value: object) -> str | None:
    """Say what is wrong with an id, None if nothing is. Ids: 1–128 characters, no control characters."""
    if not isinstance(value, str):
        return f"must be a string, is {type(value).__name__}"
    if not 1 <= len(value) <= MAX_ID_LENGTH:
        return f"must have 1 to {MAX_ID_LENGTH} characters, has {len(value)}"
    if _CONTROL.search(value):
        return "must not contain control characters"
    return None


def make_cast(character_ids: Iterable[str]) -> str:
    """The sorted set of characters of a scene, as one string."""
    return CAST_SEP.join(sorted(set(character_ids)))


def split_cast(cast: str) -> tuple[str, ...]:
    """The characters of a cast, sorted."""
    return tuple(cast.split(CAST_SEP))


def request_id(user: str, cast: str, epoch: int, first: int, last: int, kind: str) -> str:
    """Id of the request for the window `first`..`last` (positions) of a thread."""
    return str(uuid5(_NAMESPACE, SEP.join((user, cast, str(epoch), str(first), str(last), kind))))


def memory_id(request: str, number: int) -> str:
    """Id of the `number`-th memory (from 1) that a request yields."""
    return str(uuid5(UUID(request), str(number)))


def message_digest(message_id: str) -> bytes:
    """8 bytes that stand for a message id in the ring of recent ones."""
    return hashlib.blake2b(message_id.encode(), digest_size=8).digest()
