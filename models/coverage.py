"""How long messages are kept: until a memory holds them that can be recalled, and a little longer (I11).

A window is covered when it was skipped, or PostgreSQL has its memory with tokens; only the indexer knows, and reports
it. Kept besides are the messages of the last few windows (recent talk), and of parked ones.
"""

from models.commands import CoveredTick
from models.ids import CAST_SEP
from models.rows import MessageKey, Rows, ThreadKey, WindowKey, WindowRow
from models.rules import Rules

SETTLED = ("remembered", "skipped")


def on_covered(rows: Rows, tick: CoveredTick, rules: Rules) -> None:
    """Note which windows are covered, and delete the messages that nothing needs any more."""
    cast = CAST_SEP.join(tick.character_ids)
    for number in tick.numbers:
        key = WindowKey(tick.user_id, cast, tick.epoch, number)
        window = rows.get(key)
        # A report can only be wrong about a window that was taken up again: it says nothing of what comes of that.
        if window is None or window.status not in SETTLED or window.covered:
            continue
        window.covered = True
        rows.put(key, window)
        _trim(rows, key, window, rules)


def _trim(rows: Rows, key: WindowKey, covered: WindowRow, rules: Rules) -> None:
    thread = rows.get(ThreadKey(key.user, key.cast))
    if thread is None or thread.epoch != key.epoch:
        return
    # One that the others went past: it was parked, or is reported late. None holds up those behind it.
    if key.number <= thread.trimmed_windows:
        _delete_messages(rows, key, covered)
    start = thread.trimmed_windows
    while thread.trimmed_windows < thread.closed_windows - rules.recent_windows:
        at = WindowKey(key.user, key.cast, key.epoch, thread.trimmed_windows + 1)
        window = rows.get(at)
        if window is None or window.status in ("queued", "open"):
            break
        if window.covered:
            _delete_messages(rows, at, window)
        thread.trimmed_windows += 1
    if thread.trimmed_windows != start:
        rows.put(ThreadKey(key.user, key.cast), thread)


def _delete_messages(rows: Rows, key: WindowKey, window: WindowRow) -> None:
    for position in range(window.first, window.last + 1):
        rows.delete(MessageKey(key.user, key.cast, key.epoch, position))
