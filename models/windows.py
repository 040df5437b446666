"""Counting messages and cutting windows (R1–R3, R11, I3): a function of the log alone."""

import orjson

from models import queue
from models.commands import CloseTick, Flush
from models.ids import CAST_SEP, message_digest, request_id, split_cast
from models.messages import ChatMessage, InvalidEvent
from models.rows import (
    MessageKey,
    MessageRow,
    Mint,
    PairKey,
    PairRow,
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
from models.rules import Effect, Rules

DIGEST_BYTES = 8
# What a thread takes in its user's row besides its name, as JSON has it (escapes double an id of quotes).
QUEUE_BYTES = 64


def on_message(rows: Rows, message: ChatMessage, rules: Rules, mint: Mint) -> list[Effect]:
    """Take one message into its thread; close the window before it, or after it, where that is due.

    Raises InvalidEvent, with no row changed, when the user has no room for another thread.
    """
    if message.role == "system":
        return []
    user, cast = message.user_id, message.cast
    thread = rows.get(ThreadKey(user, cast)) or _start_thread(rows, user, cast, rules, mint)
    digest = message_digest(message.message_id)
    if _seen(thread.ring, digest):
        return []
    row = MessageRow(
        message_id=message.message_id,
        session_id=message.session_id,
        role=message.role,
        text=message.text,
        sent_at=message.sent_at,
        timestamp=message.timestamp,
        offset=message.offset,
        speaker=message.speaker,
        source_mode=message.source_mode,
    )
    size = encoded_size(row)
    effects: list[Effect] = []
    if _closes_before(thread, row, size, rules):
        effects += close(rows, user, cast, thread, thread.last_position, row.timestamp, rules)
    position = thread.next_position
    rows.put(MessageKey(user, cast, thread.epoch, position), row)
    thread.next_position += 1
    thread.ring = (thread.ring + digest)[-DIGEST_BYTES * rules.ring :]
    thread.last_timestamp = max(thread.last_timestamp, row.timestamp)
    answers = thread.due_at is not None and row.role == "assistant"
    _count(thread, row, size, rules)
    rows.put(ThreadKey(user, cast), thread)
    if answers and CAST_SEP not in cast:
        effects += close(rows, user, cast, thread, position, row.timestamp, rules)
    return effects


def on_close_tick(rows: Rows, tick: CloseTick, timestamp: int, rules: Rules) -> list[Effect]:
    """Close a window whose limit passed without a next message; nothing if there was one, or too early."""
    cast = CAST_SEP.join(tick.character_ids)
    thread = rows.get(ThreadKey(tick.user_id, cast))
    if thread is None or thread.epoch != tick.epoch or thread.last_position != tick.position:
        return []
    limit = close_at(thread, rules)
    if limit is None or timestamp <= limit:
        return []
    return close(rows, tick.user_id, cast, thread, thread.last_position, timestamp, rules)


def on_flush(rows: Rows, flush: Flush, timestamp: int, rules: Rules) -> list[Effect]:
    """Close the open windows of the pair's threads at the last message before the flush's offset."""
    effects: list[Effect] = []
    user = rows.get(UserKey(flush.user_id))
    for cast in sorted(user.threads) if user else ():
        if flush.character_id not in split_cast(cast):
            continue
        thread = rows.get(ThreadKey(flush.user_id, cast))
        if thread is None or thread.user_messages == 0:
            continue
        cut = thread.last_position
        while cut > thread.closed_position:
            row = rows.get(MessageKey(flush.user_id, cast, thread.epoch, cut))
            if row is None or row.offset < flush.chat_offset:
                break
            cut -= 1
        if cut > thread.closed_position:
            effects += close(rows, flush.user_id, cast, thread, cut, timestamp, rules)
    return effects


def close_at(thread: ThreadRow, rules: Rules) -> int | None:
    """The record time (ms) after which the open window closes without a next message; None: it does not."""
    if thread.due_at is not None:
        return thread.due_at + rules.answer_wait_ms
    if thread.user_messages and rules.idle_close_ms is not None:
        return thread.last_timestamp + rules.idle_close_ms
    return None


def close(
    rows: Rows, user: str, cast: str, thread: ThreadRow, last: int, timestamp: int, rules: Rules
) -> list[Effect]:
    """Close the open window at position `last`, and let the next window of the user go if it can.

    `timestamp` is the event's, in milliseconds.

    A window without a user message has nothing to say of the user: it is skipped without being asked.
    Messages past `last` (a flush that came late) stay in the open window and are counted anew.
    """
    rest = [
        row
        for position in range(last + 1, thread.next_position)
        if (row := rows.get(MessageKey(user, cast, thread.epoch, position))) is not None
    ]
    end = rows.get(MessageKey(user, cast, thread.epoch, last))
    spoke = thread.user_messages - sum(row.role == "user" for row in rest)
    owner = rows.get(UserKey(user)) or UserRow()
    owner.order += 1
    waiting = owner.threads.setdefault(cast, ThreadQueue(epoch=thread.epoch))
    waiting.closed += 1
    first = thread.closed_position + 1
    window = WindowRow(
        request_id=request_id(user, cast, thread.epoch, first, last, "window"),
        first=first,
        last=last,
        order=owner.order,
        status="queued",
        last_timestamp=end.timestamp if end else thread.last_timestamp,
    )
    rows.put(UserKey(user), owner)
    thread.closed_windows = waiting.closed
    thread.closed_position = last
    thread.user_messages = thread.open_bytes = 0
    thread.due_at = None
    for row in rest:
        _count(thread, row, encoded_size(row), rules)
    rows.put(ThreadKey(user, cast), thread)
    key = WindowKey(user, cast, thread.epoch, waiting.closed)
    rows.put(key, window)
    if spoke == 0:
        return [
            *queue.settle(rows, key, window, "skipped"),
            *queue.advance(rows, user, timestamp, rules),
        ]
    return queue.advance(rows, user, timestamp, rules)


def encoded_size(row: MessageRow) -> int:
    """Bytes of a message as it is encoded: what every size limit counts."""
    return len(orjson.dumps(row))


def _closes_before(thread: ThreadRow, row: MessageRow, size: int, rules: Rules) -> bool:
    if thread.last_position == thread.closed_position:
        return False
    if thread.due_at is not None and row.role == "user":
        return True
    limit = close_at(thread, rules)
    if limit is not None and row.timestamp > limit:
        return True
    return thread.open_bytes + size > rules.window_bytes


def _count(thread: ThreadRow, row: MessageRow, size: int, rules: Rules) -> None:
    thread.open_bytes += size
    if row.role == "user":
        thread.user_messages += 1
        if thread.user_messages == rules.threshold:
            thread.due_at = row.timestamp


def _seen(ring: bytes, digest: bytes) -> bool:
    at = ring.find(digest)
    while at >= 0 and at % DIGEST_BYTES:
        at = ring.find(digest, at + 1)
    return at >= 0


def _start_thread(rows: Rows, user: str, cast: str, rules: Rules, mint: Mint) -> ThreadRow:
    thread = ThreadRow()
    owner = rows.get(UserKey(user)) or UserRow()
    # Before anything is put: an event that is refused leaves no trace in the rows.
    if sum(len(orjson.dumps(name)) + QUEUE_BYTES for name in (*owner.threads, cast)) > rules.user_bytes:
        raise InvalidEvent(
            "too_many_threads",
            f"the user has {len(owner.threads)} sets of characters already, and no room for another",
        )
    owner.threads[cast] = ThreadQueue(epoch=thread.epoch)
    rows.put(UserKey(user), owner)
    pairs = []
    for character in split_cast(cast):
        pair = rows.get(PairKey(user, character))
        if pair is None:
            pair = PairRow(epoch=1, key=mint.pair_key(user, character, 1))
            rows.put(PairKey(user, character), pair)
        pairs.append(pair)
    wrapped = mint.thread_key(user, cast, thread.epoch, tuple(pairs))
    rows.put(ThreadKeyKey(user, cast, thread.epoch), ThreadKeyRow(wrapped))
    return thread
