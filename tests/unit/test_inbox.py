"""The order in which one partition's events may be folded (I3, I8)."""

from hypothesis import given
from hypothesis import strategies as st

from models.records import Record
from models.topics import CHAT, COMMAND, EXTRACTED, TICK
from streams.inbox import BATCH_BYTES, Inbox


def record(topic: str, offset: int, names: int | None = None, size: int = 0) -> Record:
    return Record(topic, 0, offset, 0, b"" if names is None else str(names).encode(), b"x" * size)


def named(record: Record) -> int | None:
    return int(record.key) if record.key else None


def inbox(*records: Record, command_end: int = 0) -> Inbox:
    made = Inbox(named, command_end)
    for each in records:
        made.add(each)
    return made


def taken(box: Inbox, chat: int, command: int = 0, limit: int = 500) -> list[tuple[str, int]]:
    return [(each.topic, each.offset) for each in box.take(limit, {CHAT: chat, COMMAND: command})]


def test_a_command_is_folded_where_it_says() -> None:
    box = inbox(*(record(CHAT, n) for n in range(4)), record(COMMAND, 0, names=2), command_end=1)
    assert taken(box, chat=4, command=1) == [(CHAT, 0), (CHAT, 1), (COMMAND, 0), (CHAT, 2), (CHAT, 3)]


def test_no_message_is_folded_before_the_backlog_of_commands_was_looked_at() -> None:
    box = inbox(record(CHAT, 0), command_end=3)
    assert taken(box, chat=1, command=2) == []
    assert taken(box, chat=1, command=3) == [(CHAT, 0)]


def test_a_command_waits_until_chat_is_fetched_and_folded_up_to_it() -> None:
    box = inbox(record(COMMAND, 0, names=3), record(COMMAND, 1), command_end=2)
    assert taken(box, chat=2, command=2) == []  # and the one behind it
    box.add(record(CHAT, 2))
    assert taken(box, chat=3, command=2) == [(CHAT, 2), (COMMAND, 0), (COMMAND, 1)]


def test_a_marker_before_the_named_offset_does_not_hold_a_command() -> None:
    box = inbox(record(CHAT, 1), record(COMMAND, 0, names=3), command_end=1)
    assert taken(box, chat=3, command=1) == [(CHAT, 1), (COMMAND, 0)]


def test_a_log_that_starts_past_the_named_offset_does_not_hold_a_command() -> None:
    box = inbox(record(CHAT, 9), record(COMMAND, 0, names=3), command_end=1)
    assert taken(box, chat=10, command=1) == [(COMMAND, 0), (CHAT, 9)]


def test_a_tick_does_not_hold_messages_or_results() -> None:
    box = inbox(record(TICK, 0, names=5), record(EXTRACTED, 0), record(CHAT, 3))
    assert taken(box, chat=4) == [(EXTRACTED, 0), (CHAT, 3)]
    assert taken(box, chat=5) == [(TICK, 0)]


def test_an_offset_past_the_end_can_be_lowered() -> None:
    box = inbox(record(COMMAND, 0, names=1_000), command_end=1)
    assert [offset for _, offset in box.waiting()] == [1_000]
    assert taken(box, chat=4, command=1) == []
    box.lower(record(COMMAND, 0), 4)
    assert taken(box, chat=4, command=1) == [(COMMAND, 0)]


def test_a_batch_is_bounded_in_events_and_bytes() -> None:
    box = inbox(*(record(CHAT, n, size=BATCH_BYTES // 2) for n in range(4)))
    assert len(taken(box, chat=4, limit=1)) == 1
    assert len(taken(box, chat=4)) == 2


@given(
    st.lists(st.integers(0, 12), max_size=6).map(sorted),
    st.lists(st.integers(0, 12), max_size=6),
    st.lists(st.sampled_from([CHAT, COMMAND, TICK]), max_size=40),
    st.integers(1, 5),
)
def test_all_is_folded_and_no_command_late_in_any_order_of_arrival(
    commands: list[int], ticks: list[int], arrivals: list[str], limit: int
) -> None:
    waiting = {
        CHAT: [record(CHAT, n) for n in range(12)],
        COMMAND: [record(COMMAND, n, names=at) for n, at in enumerate(commands)],
        TICK: [record(TICK, n, names=at) for n, at in enumerate(ticks)],
    }
    reached = {CHAT: 0, COMMAND: 0}
    box = Inbox(named, len(commands))
    order: list[Record] = []
    for topic in [*arrivals, *([COMMAND] * 6 + [TICK] * 6 + [CHAT] * 12)]:
        if waiting[topic]:
            box.add(waiting[topic].pop(0))
            if topic in reached:
                reached[topic] += 1
        order += box.take(limit, reached)
    while more := box.take(limit, reached):
        order += more
    assert len(order) == 12 + len(commands) + len(ticks)
    folded = 0
    for each in order:
        at = named(each)
        if each.topic == CHAT:
            folded += 1
        elif each.topic == COMMAND:
            assert at == folded
        else:
            assert (at or 0) <= folded
