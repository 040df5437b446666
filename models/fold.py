"""The fold (I1): one event of the ledger's log, over its rows, to changed rows and effects. No I/O."""

from models import coverage, queue, windows
from models.commands import CloseTick, CoveredTick, Flush, Retry, SendTick
from models.messages import ChatMessage
from models.requests import WindowResult
from models.rows import Mint, Rows
from models.rules import Effect, Rules

Event = ChatMessage | WindowResult | Flush | Retry | CloseTick | SendTick | CoveredTick


def fold(rows: Rows, event: Event, timestamp: int, rules: Rules, mint: Mint) -> list[Effect]:
    """Apply one event, whose record has this `timestamp` (ms); changed rows are put into `rows`.

    Raises InvalidEvent, with no row changed, for an event that the rows do not admit.
    """
    match event:
        case ChatMessage():
            return windows.on_message(rows, event, rules, mint)
        case WindowResult():
            return queue.on_result(rows, event, timestamp, rules)
        case CloseTick():
            return windows.on_close_tick(rows, event, timestamp, rules)
        case SendTick():
            return queue.on_send_tick(rows, event, timestamp, rules)
        case CoveredTick():
            coverage.on_covered(rows, event, rules)
            return []
        case Flush():
            return windows.on_flush(rows, event, timestamp, rules)
        case Retry():
            return queue.on_retry(rows, event, timestamp, rules)
