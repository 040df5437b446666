"""The ledger's numbers, and what a fold may bring about besides changed rows."""

from dataclasses import dataclass

from models.memory import MemoryContent
from models.published import CharacterSeq, MemoryCreated, WindowChanged
from models.requests import WindowRequest
from models.rows import PairRow


@dataclass(frozen=True, slots=True)
class Rules:
    """Settings of the fold. Times are milliseconds, sizes bytes of encoded messages.

    `idle_close_ms` None: idle threads are left open. `ring` is how many message ids a thread remembers.
    `user_bytes` bounds a user's row, which names all of their threads: Kafka takes no record over 1 MB.
    """

    threshold: int = 5
    answer_wait_ms: int = 60_000
    idle_close_ms: int | None = 1_800_000
    window_bytes: int = 262_144
    attempts: int = 3
    retry_ms: int = 10_000
    resend_ms: int = 300_000
    resend_max_ms: int = 86_400_000
    ring: int = 128
    recent_windows: int = 2
    user_bytes: int = 524_288


@dataclass(frozen=True, slots=True)
class Ask:
    """Send `memory.requested`."""

    request: WindowRequest


@dataclass(frozen=True, slots=True)
class Remember:
    """Send `memory.created`: `created` but for its payload, which is `content` sealed for `pairs`.

    `pairs` stand in the order of `created.characters`.
    """

    created: MemoryCreated
    content: MemoryContent
    pairs: tuple[PairRow, ...]

    @property
    def characters(self) -> tuple[CharacterSeq, ...]:
        return self.created.characters


@dataclass(frozen=True, slots=True)
class Relate:
    """Send `memory.changed` for a pair's new relationship state."""

    user: str
    character: str
    pair: PairRow


@dataclass(frozen=True, slots=True)
class Report:
    """Send `memory.changed` for a window."""

    changed: WindowChanged


Effect = Ask | Remember | Relate | Report
