"""What falls due without a next event: windows to close, requests to send again (I3, I4)."""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count

from models.commands import CloseTick, SendTick, Tick
from models.ids import split_cast
from models.rows import AnyKey, AnyRow, ThreadKey, ThreadRow, WindowKey, WindowRow
from models.rules import Rules
from models.windows import close_at

# A tick that was sent is sent again after this, should the log have lost it: ms.
AGAIN_MS = 60_000


@dataclass(frozen=True, slots=True)
class Due:
    """A tick to be sent at `at` (ms). `chat_offset` of a close tick is set when it is sent."""

    at: int
    tick: Tick


class DueIndex:
    """The due times of one partition's rows: at most one a row, the soonest first."""

    def __init__(self, rules: Rules, margin_ms: int) -> None:
        self._rules = rules
        self._margin_ms = margin_ms
        self._by_key: dict[AnyKey, Due] = {}
        self._heap: list[tuple[int, int, AnyKey, Due]] = []
        self._serial = count()

    def update(self, rows: Mapping[AnyKey, AnyRow | None] | Iterable[tuple[AnyKey, AnyRow | None]]) -> None:
        """Take in rows that changed, None where one was deleted."""
        for key, row in rows.items() if isinstance(rows, Mapping) else rows:
            match key, row:
                case ThreadKey(), ThreadRow() | None:
                    self._set(key, self._of_thread(key, row))
                case WindowKey(), WindowRow() | None:
                    self._set(key, _of_window(key, row))

    def take(self, now_ms: int, chat_end: int) -> list[Tick]:
        """The ticks due by `now_ms`; `chat_end` is the end offset of `chat.message` (I3)."""
        ticks: list[Tick] = []
        while self._heap and self._heap[0][0] <= now_ms:
            _, _, key, due = heapq.heappop(self._heap)
            if self._by_key.get(key) is not due:
                continue
            tick = due.tick
            ticks.append(
                tick.model_copy(update={"chat_offset": chat_end}) if isinstance(tick, CloseTick) else tick
            )
            self._set(key, Due(now_ms + AGAIN_MS, tick))
        return ticks

    def __len__(self) -> int:
        return len(self._by_key)

    def _set(self, key: AnyKey, due: Due | None) -> None:
        if due is None:
            self._by_key.pop(key, None)
            return
        self._by_key[key] = due
        heapq.heappush(self._heap, (due.at, next(self._serial), key, due))
        if len(self._heap) > 1_000 and len(self._heap) > 4 * len(self._by_key):
            self._heap = [(due.at, next(self._serial), key, due) for key, due in self._by_key.items()]
            heapq.heapify(self._heap)

    def _of_thread(self, key: ThreadKey, row: ThreadRow | None) -> Due | None:
        limit = close_at(row, self._rules) if row else None
        if row is None or limit is None:
            return None
        tick = CloseTick(
            user_id=key.user,
            character_ids=split_cast(key.cast),
            epoch=row.epoch,
            position=row.last_position,
            chat_offset=0,
        )
        return Due(limit + self._margin_ms, tick)


def _of_window(key: WindowKey, row: WindowRow | None) -> Due | None:
    if row is None or row.status != "open" or row.send_at is None:
        return None
    tick = SendTick(
        user_id=key.user,
        character_ids=split_cast(key.cast),
        epoch=key.epoch,
        number=key.number,
        attempt=row.attempt,
        sends=row.sends,
    )
    return Due(row.send_at, tick)
