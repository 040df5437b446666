"""Every fetched event is taken once, in order, whatever is dropped or given twice on the way."""

from collections.abc import Callable

from faust.types import TP
from hypothesis import given
from hypothesis import strategies as st

from streams.delivery import Deliveries, Feed

A = TP("a", 0)


class Clock:
    now = 1.0

    def __call__(self) -> float:
        return self.now


def deliveries(at: int = 0, clock: Callable[[], float] = lambda: 1.0) -> tuple[Deliveries, Feed]:
    made = Deliveries(clock)
    feed = made.feed(["a"])
    made.reset({A: at})
    return made, feed


def test_duplicates_and_older_events_are_dropped() -> None:
    made, feed = deliveries(5)
    made.fetched(A, [4, 5, 6])
    assert [feed.take(A, offset) for offset in (4, 5, 5, 4, 6)] == [False, True, False, False, True]


def test_an_offset_that_was_never_fetched_is_no_loss() -> None:
    made, feed = deliveries()
    made.fetched(A, [0, 2])
    assert feed.take(A, 0)
    assert feed.take(A, 2)
    assert made.lost() == {}


def test_a_dropped_event_is_sought_back_and_later_ones_wait_for_it() -> None:
    made, feed = deliveries()
    made.fetched(A, [0, 1, 2, 3])
    assert feed.take(A, 0)
    assert not feed.take(A, 2)
    assert made.lost() == {A: 1}
    made.rewound({A: 1})
    assert not feed.take(A, 3)
    made.fetched(A, [1, 2, 3])
    assert [feed.take(A, offset) for offset in (1, 2, 3)] == [True, True, True]
    assert made.lost() == {}


def test_an_event_dropped_at_the_end_is_missed_by_a_waiting_agent() -> None:
    clock = Clock()
    made, feed = deliveries(clock=clock)
    made.fetched(A, [0])
    feed.idle_since = clock.now
    assert made.lost() == {}
    clock.now += 2
    assert made.lost() == {A: 0}


def test_nothing_of_an_earlier_assignment_is_taken_or_committed() -> None:
    made, feed = deliveries()
    made.fetched(A, [0, 1])
    assert feed.take(A, 0)
    made.clear()
    assert not feed.take(A, 1)
    feed.finished(A, 0)
    assert made.committable() == {}


def test_only_the_contiguous_finished_run_is_committable() -> None:
    made, feed = deliveries()
    made.fetched(A, [0, 1, 3])
    for offset in (0, 1, 3):
        assert feed.take(A, offset)
    feed.finished(A, 1)
    assert made.committable() == {A: 0}
    feed.finished(A, 0)
    assert made.committable() == {A: 3}
    feed.finished(A, 3)
    assert made.committable() == {A: 4}


def test_the_slower_of_two_agents_decides_what_is_committed_and_read_again() -> None:
    made = Deliveries()
    fast, slow = made.feed(["a"]), made.feed(["a"])
    made.reset({A: 0})
    made.fetched(A, [0, 1])
    for offset in (0, 1):
        assert fast.take(A, offset)
        fast.finished(A, offset)
    assert made.committable() == {A: 0}
    assert made.positions() == {A: 0}
    made.rewound({A: 0})
    made.fetched(A, [0, 1])
    assert not fast.take(A, 0)
    assert slow.take(A, 0)


@given(st.lists(st.sampled_from(["deliver", "drop", "twice", "clear", "rewind"]), max_size=60))
def test_every_event_is_taken_once_and_in_order(steps: list[str]) -> None:
    """A fetcher that reads 20 events into a queue, and an agent that gets them, or not."""
    clock = Clock()
    made, feed = deliveries(clock=clock)
    position = 0
    queue: list[int] = []
    taken: list[int] = []
    for step in [*steps, *["deliver"] * 200]:
        clock.now += 0.5
        if lost := made.lost():
            position = lost[A]
            made.rewound(lost)
        if step == "rewind":  # as Faust does when a fetch returns into a rebalance
            position = made.positions()[A]
            made.rewound({A: position})
        if step == "clear":  # as Faust does to queues that are filled already
            queue.clear()
        if position < 20:
            made.fetched(A, [position])
            queue.append(position)
            position += 1
        if not queue:
            feed.idle_since = feed.idle_since or clock.now
            continue
        feed.idle_since = None
        offset = queue.pop(0)
        times = {"drop": 0, "twice": 2}.get(step, 1)
        taken += [offset for _ in range(times) if feed.take(A, offset)]
    assert taken == list(range(20))
