"""The ledger's rows (design, section 4): their keys, and what each holds, in the clear.

A key is `kind ␟ parts`, joined with U+001F. Sealing is the codec's (agents/codec.py).
"""

from dataclasses import dataclass, field
from typing import Generic, Literal, Protocol, TypeVar

from models.ids import SEP
from models.memory import RelationshipState, Source
from models.messages import Role

R = TypeVar("R", "UserRow", "PairRow", "ThreadRow", "ThreadKeyRow", "WindowRow", "MessageRow")
WindowStatus = Literal["queued", "open", "remembered", "skipped", "parked"]


@dataclass(slots=True)
class ThreadQueue:
    """A thread's windows on their way: `next` is the number of the first that was never opened."""

    epoch: int = 1
    closed: int = 0
    next: int = 1
    open: int | None = None
    requeued: list[int] = field(default_factory=list)
    parked: int = 0


@dataclass(slots=True)
class UserRow:
    """A user's threads by cast, and the counter that gives closed windows their order."""

    order: int = 0
    threads: dict[str, ThreadQueue] = field(default_factory=dict)


@dataclass(slots=True)
class PairRow:
    """One user × one character. `key` is the pair's data key, wrapped by a master key."""

    epoch: int
    key: bytes
    last_seq: int = 0
    relationship: RelationshipState | None = None
    relationship_version: int = 0


@dataclass(slots=True)
class ThreadRow:
    """The hot row of a thread. Times are record timestamps, ms; `ring` holds 8-byte message digests.

    Of the first `trimmed_windows` windows no message is kept, but for those that are parked, or were and are not yet
    covered since (models/coverage.py).
    """

    epoch: int = 1
    next_position: int = 1
    closed_position: int = 0
    closed_windows: int = 0
    user_messages: int = 0
    due_at: int | None = None
    open_bytes: int = 0
    last_timestamp: int = 0
    trimmed_windows: int = 0
    ring: bytes = b""

    @property
    def last_position(self) -> int:
        return self.next_position - 1


@dataclass(slots=True)
class ThreadKeyRow:
    """The data key of a thread's buffered messages, wrapped by the key of each pair of the cast, in order."""

    wrapped: tuple[bytes, ...]


@dataclass(slots=True)
class WindowRow:
    """One closed window. `order` is its place among all closed windows of the user.

    `attempt` counts from 1 and never restarts; `sends` counts how often this attempt was asked for;
    `send_at` (ms) is when it is due again. `version` grows with each change that is published. `covered`: its messages
    need not be kept for recent talk (models/coverage.py).
    """

    request_id: str
    first: int
    last: int
    order: int
    status: WindowStatus
    last_timestamp: int
    attempt: int = 0
    sends: int = 0
    send_at: int | None = None
    source: Source | None = None
    source_mode: str | None = None
    reason: str | None = None
    memory_ids: tuple[str, ...] = ()
    version: int = 0
    covered: bool = False


@dataclass(slots=True)
class MessageRow:
    """One buffered message. `timestamp` (ms) and `offset` are those of its `chat.message` record."""

    message_id: str
    session_id: str
    role: Role
    text: str
    sent_at: str
    timestamp: int
    offset: int
    speaker: str | None = None
    source_mode: str | None = None


@dataclass(frozen=True, slots=True)
class Key(Generic[R]):
    """A table key; its type says what row stands there."""

    user: str

    def parts(self) -> tuple[str, ...]:
        raise NotImplementedError

    def encode(self) -> bytes:
        return SEP.join(self.parts()).encode()


@dataclass(frozen=True, slots=True)
class UserKey(Key[UserRow]):
    def parts(self) -> tuple[str, ...]:
        return ("users", self.user)


@dataclass(frozen=True, slots=True)
class PairKey(Key[PairRow]):
    character: str

    def parts(self) -> tuple[str, ...]:
        return ("pairs", self.user, self.character)


@dataclass(frozen=True, slots=True)
class ThreadKey(Key[ThreadRow]):
    cast: str

    def parts(self) -> tuple[str, ...]:
        return ("threads", self.user, self.cast)


@dataclass(frozen=True, slots=True)
class ThreadKeyKey(Key[ThreadKeyRow]):
    cast: str
    epoch: int

    def parts(self) -> tuple[str, ...]:
        return ("keys", self.user, self.cast, str(self.epoch))


@dataclass(frozen=True, slots=True)
class WindowKey(Key[WindowRow]):
    cast: str
    epoch: int
    number: int

    def parts(self) -> tuple[str, ...]:
        return ("windows", self.user, self.cast, str(self.epoch), f"{self.number:010d}")


@dataclass(frozen=True, slots=True)
class MessageKey(Key[MessageRow]):
    cast: str
    epoch: int
    position: int

    def parts(self) -> tuple[str, ...]:
        return ("messages", self.user, self.cast, str(self.epoch), f"{self.position:010d}")


AnyKey = UserKey | PairKey | ThreadKey | ThreadKeyKey | WindowKey | MessageKey
AnyRow = UserRow | PairRow | ThreadRow | ThreadKeyRow | WindowRow | MessageRow


def decode_key(key: bytes) -> AnyKey:
    """The key that `encode` made these bytes of; ValueError for any other."""
    kind, *parts = key.decode().split(SEP)
    match kind, parts:
        case "users", [user]:
            return UserKey(user)
        case "pairs", [user, character]:
            return PairKey(user, character)
        case "threads", [user, cast]:
            return ThreadKey(user, cast)
        case "keys", [user, cast, epoch]:
            return ThreadKeyKey(user, cast, int(epoch))
        case "windows", [user, cast, epoch, number]:
            return WindowKey(user, cast, int(epoch), int(number))
        case "messages", [user, cast, epoch, position]:
            return MessageKey(user, cast, int(epoch), int(position))
    raise ValueError(f"not a key of the ledger's table: kind {kind!r} with {len(parts)} parts")


class Rows(Protocol):
    """The rows as the fold reads and writes them. A row that was read and changed must be put."""

    def get(self, key: Key[R]) -> R | None: ...

    def put(self, key: Key[R], row: R) -> None: ...

    def delete(self, key: Key[R]) -> None: ...


class Mint(Protocol):
    """Makes data keys: the only thing in the fold that is not a function of its input."""

    def pair_key(self, user: str, character: str, epoch: int) -> bytes:
        """A new pair key, wrapped by the primary master key."""
        ...

    def thread_key(self, user: str, cast: str, epoch: int, pairs: tuple[PairRow, ...]) -> tuple[bytes, ...]:
        """A new thread key, wrapped by the key of each pair, in the order of the cast."""
        ...
