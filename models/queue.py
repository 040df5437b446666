"""Windows on their way to a memory: one open request among threads that share a character (I4), in the
order in which the windows were closed; attempts, parking, and what becomes of a result."""

from datetime import UTC, datetime
from typing import Literal

from models.commands import Retry, SendTick
from models.ids import CAST_SEP, memory_id, split_cast
from models.memory import Source, plan_days
from models.published import CharacterSeq, MemoryCreated, WindowChanged
from models.requests import WindowMessage, WindowRequest, WindowResult
from models.rows import (
    MessageKey,
    MessageRow,
    PairKey,
    PairRow,
    Rows,
    ThreadQueue,
    UserKey,
    WindowKey,
    WindowRow,
)
from models.rules import Ask, Effect, Relate, Remember, Report, Rules

Settled = Literal["remembered", "skipped", "parked", "queued"]


def advance(rows: Rows, user: str, timestamp: int, rules: Rules) -> list[Effect]:
    """Open every queued window of the user that nothing stands before. `timestamp` is the event's, ms."""
    effects: list[Effect] = []
    owner = rows.get(UserKey(user))
    if owner is None:
        return effects
    busy = {
        character for cast, queue in owner.threads.items() if queue.open for character in split_cast(cast)
    }
    waiting = sorted(
        (row.order, cast, number)
        for cast, queue in owner.threads.items()
        if queue.open is None and (number := _head(rows, user, cast, queue)) is not None
        if (row := rows.get(WindowKey(user, cast, queue.epoch, number))) is not None
    )
    for _, cast, number in waiting:
        characters = split_cast(cast)
        # Those that must wait hold their characters too, or a later window would overtake them.
        if busy.isdisjoint(characters):
            queue = owner.threads[cast]
            _take(queue, number)
            rows.put(UserKey(user), owner)
            effects.append(_open(rows, WindowKey(user, cast, queue.epoch, number), timestamp, rules))
        busy.update(characters)
    return effects


def on_result(rows: Rows, result: WindowResult, timestamp: int, rules: Rules) -> list[Effect]:
    """Take in what came of a request: the first result of an open one counts, anything later does nothing."""
    cast = CAST_SEP.join(result.character_ids)
    key = WindowKey(result.user_id, cast, result.epoch, result.number)
    window = rows.get(key)
    if window is None or window.status != "open" or window.request_id != result.request_id:
        return []
    if result.status == "failed":
        if result.attempt != window.attempt:
            return []
        window.reason = result.reason
        if window.attempt < rules.attempts or result.more:
            # Spaced anew with each model: attempts never restart, and the wait would grow without end.
            window.send_at = timestamp + rules.retry_ms * 2 ** ((window.attempt - 1) % rules.attempts)
            window.attempt += 1
            window.sends = 0
            rows.put(key, window)
            return []
        return [*settle(rows, key, window, "parked"), *advance(rows, key.user, timestamp, rules)]
    pairs = _pairs(rows, key)
    if result.versions != {name: pair.relationship_version for name, pair in pairs.items()}:
        return [_ask(rows, key, window, timestamp, rules)]
    effects: list[Effect] = []
    if result.memory is not None and result.provenance is not None:
        effects += _remember(rows, key, window, result, pairs)
    status: Settled = "remembered" if effects else "skipped"
    return [*effects, *settle(rows, key, window, status), *advance(rows, key.user, timestamp, rules)]


def on_send_tick(rows: Rows, tick: SendTick, timestamp: int, rules: Rules) -> list[Effect]:
    """Ask again, if nothing was asked or answered since the tick was made."""
    key = WindowKey(tick.user_id, CAST_SEP.join(tick.character_ids), tick.epoch, tick.number)
    window = rows.get(key)
    if window is None or window.status != "open":
        return []
    if (window.attempt, window.sends) != (tick.attempt, tick.sends):
        return []
    return [_ask(rows, key, window, timestamp, rules)]


def on_retry(rows: Rows, retry: Retry, timestamp: int, rules: Rules) -> list[Effect]:
    """Put a parked window back into the queue, at the place that its closing gave it."""
    key = WindowKey(retry.user_id, CAST_SEP.join(retry.character_ids), retry.epoch, retry.number)
    window = rows.get(key)
    owner = rows.get(UserKey(key.user))
    queue = owner.threads.get(key.cast) if owner else None
    if window is None or window.status != "parked" or owner is None or queue is None:
        return []
    queue.parked -= 1
    queue.requeued = sorted([*queue.requeued, key.number])
    rows.put(UserKey(key.user), owner)
    return [*_report(rows, key, window, "queued"), *advance(rows, key.user, timestamp, rules)]


def settle(rows: Rows, key: WindowKey, window: WindowRow, status: Settled) -> list[Effect]:
    """End a window's turn: remembered, skipped or parked."""
    owner = rows.get(UserKey(key.user))
    if owner is not None:
        queue = owner.threads[key.cast]
        if queue.open == key.number:
            queue.open = None
        queue.parked += status == "parked"
        rows.put(UserKey(key.user), owner)
    window.send_at = None
    return _report(rows, key, window, status)


def _head(rows: Rows, user: str, cast: str, queue: ThreadQueue) -> int | None:
    """The number of the thread's window that is next to be opened: taken up again ones are older."""
    if queue.requeued:
        return queue.requeued[0]
    while queue.next <= queue.closed:
        row = rows.get(WindowKey(user, cast, queue.epoch, queue.next))
        if row is not None and row.status == "queued":
            return queue.next
        queue.next += 1
    return None


def _take(queue: ThreadQueue, number: int) -> None:
    queue.open = number
    if number in queue.requeued:
        queue.requeued.remove(number)
    else:
        queue.next = number + 1


def _open(rows: Rows, key: WindowKey, timestamp: int, rules: Rules) -> Effect:
    window = rows.get(key)
    assert window is not None, "the queue names only windows that exist"
    window.status = "open"
    window.attempt += 1
    window.sends = 0
    window.reason = None
    return _ask(rows, key, window, timestamp, rules)


def _ask(rows: Rows, key: WindowKey, window: WindowRow, timestamp: int, rules: Rules) -> Effect:
    pairs = _pairs(rows, key)
    messages = _messages(rows, key, window)
    window.send_at = timestamp + min(rules.resend_ms * 2**window.sends, rules.resend_max_ms)
    window.sends += 1
    window.source = Source(
        session_ids=tuple(dict.fromkeys(row.session_id for _, row in messages)),
        first_message_id=messages[0][1].message_id,
        last_message_id=messages[-1][1].message_id,
        first_position=window.first,
        last_position=window.last,
    )
    window.source_mode = next((row.source_mode for _, row in reversed(messages) if row.source_mode), None)
    rows.put(key, window)
    return Ask(
        WindowRequest(
            request_id=window.request_id,
            user_id=key.user,
            character_ids=split_cast(key.cast),
            epoch=key.epoch,
            number=key.number,
            attempt=window.attempt,
            versions={name: pair.relationship_version for name, pair in pairs.items()},
            messages=tuple(_window_message(position, row) for position, row in messages),
            relationships={name: pair.relationship for name, pair in pairs.items()},
        )
    )


def _remember(
    rows: Rows, key: WindowKey, window: WindowRow, result: WindowResult, pairs: dict[str, PairRow]
) -> list[Effect]:
    assert result.memory is not None
    assert result.provenance is not None
    assert window.source is not None
    memory = memory_id(window.request_id, 1)
    effects: list[Effect] = []
    for name, pair in pairs.items():
        pair.last_seq += 1
        state = result.relationships.get(name)
        if state is not None and state != pair.relationship:
            pair.relationship = state
            pair.relationship_version += 1
            effects.append(Relate(key.user, name, pair))
        rows.put(PairKey(key.user, name), pair)
    created = MemoryCreated(
        memory_id=memory,
        user_id=key.user,
        kind="window",
        request_id=window.request_id,
        characters=tuple(
            CharacterSeq(character_id=name, seq=pair.last_seq, epoch=pair.epoch)
            for name, pair in pairs.items()
        ),
        importance=result.memory.importance,
        date=result.memory.date,
        created_at=_time(window.last_timestamp),
        category=result.memory.content.category,
        plan_dates=plan_days(result.memory.content.plans),
        source=window.source,
        source_mode=window.source_mode,
        provenance=result.provenance,
        payload=b"",
    )
    window.memory_ids = (memory,)
    return [Remember(created, result.memory.content, tuple(pairs.values())), *effects]


def _report(rows: Rows, key: WindowKey, window: WindowRow, status: Settled) -> list[Effect]:
    window.status = status
    window.version += 1
    rows.put(key, window)
    return [
        Report(
            WindowChanged(
                user_id=key.user,
                character_ids=split_cast(key.cast),
                epoch=key.epoch,
                number=key.number,
                request_id=window.request_id,
                version=window.version,
                status=status,
                first_position=window.first,
                last_position=window.last,
                reason=window.reason,
                attempts=window.attempt,
                memory_ids=window.memory_ids,
                closed_at=_time(window.last_timestamp),
            )
        )
    ]


def _pairs(rows: Rows, key: WindowKey) -> dict[str, PairRow]:
    pairs = {name: rows.get(PairKey(key.user, name)) for name in split_cast(key.cast)}
    return {name: pair for name, pair in pairs.items() if pair is not None}


def _messages(rows: Rows, key: WindowKey, window: WindowRow) -> list[tuple[int, MessageRow]]:
    found = (
        (position, rows.get(MessageKey(key.user, key.cast, key.epoch, position)))
        for position in range(window.first, window.last + 1)
    )
    return [(position, row) for position, row in found if row is not None]


def _window_message(position: int, row: MessageRow) -> WindowMessage:
    return WindowMessage(
        position=position,
        message_id=row.message_id,
        session_id=row.session_id,
        role=row.role,
        text=row.text,
        sent_at=row.sent_at,
        speaker=row.speaker,
        source_mode=row.source_mode,
    )


def _time(timestamp: int) -> datetime:
    return datetime.fromtimestamp(timestamp / 1000, UTC)
