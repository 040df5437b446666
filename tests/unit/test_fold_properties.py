"""The fold's properties (I1, I2, I4, R4): any interleaving, any batches, any crash, any duplicates."""

from dataclasses import dataclass
from random import Random
from typing import Literal

from hypothesis import given, settings
from hypothesis import strategies as st

from models.assignments import Assignment, ModelRef
from models.commands import Retry
from models.ids import split_cast
from models.records import Record
from models.rows import MessageKey
from models.rules import Rules
from tests.unit.ledger_harness import (
    START,
    Answer,
    Ledger,
    assert_covered_once,
    assert_seqs,
    chat_record,
    command_record,
    covered_record,
    result_record,
)

CASTS = (("A",), ("B",), ("A", "B"), ("C",))
RULES = Rules(threshold=3, ring=64)
ANSWERS: tuple[Answer, ...] = ("memory", "memory", "nothing", "failed")


@dataclass(frozen=True)
class Talk:
    """One message: whose thread, which role, how long after the one before (ms)."""

    cast: tuple[str, ...]
    role: Literal["user", "assistant", "system"]
    gap: int


talks = st.lists(
    st.builds(
        Talk,
        st.sampled_from(CASTS),
        st.sampled_from(("user", "user", "assistant", "system")),
        st.sampled_from((0, 1_000, 59_000, 61_000, 1_799_000, 1_801_000)),
    ),
    max_size=60,
)
talks_of_one = st.lists(
    st.builds(Talk, st.just(("A",)), st.sampled_from(("user", "assistant")), st.just(1_000)),
    min_size=20,
    max_size=60,
)
seeds = st.randoms(use_true_random=False)


def records_of(said: list[Talk]) -> list[Record]:
    at, records = START, []
    for offset, talk in enumerate(said):
        at += talk.gap
        records.append(chat_record(offset, characters=talk.cast, role=talk.role, timestamp=at))
    return records


def shape(ledger: Ledger) -> dict[str, list[tuple[str, int, int]]]:
    """Every thread's windows by id and range: what must not depend on the order of events."""
    if not ledger.committed:
        return {}
    return {
        cast: [(w.request_id, w.first, w.last) for w in ledger.windows(*split_cast(cast))]
        for cast in ledger.user().threads
    }


def reference(records: list[Record]) -> Ledger:
    """One event at a time, nothing answered until the end."""
    ledger = Ledger(RULES)
    for record in records:
        ledger.fold([record])
    ledger.settle(lambda request: "memory")
    return ledger


@settings(max_examples=150, deadline=None)
@given(said=talks, random=seeds)
def test_any_interleaving_batching_crash_and_duplicate_gives_the_same(
    said: list[Talk], random: Random
) -> None:
    records = records_of(said)
    expected = reference(records)
    ledger = Ledger(RULES)
    position, answered, offset = 0, 0, 0
    reported: set[tuple[str, int]] = set()
    while position < len(records) or answered < len(ledger.asked()):
        size = random.randint(0, 7)
        batch = records[position : position + size]
        asked = ledger.asked()
        results: list[Record] = []
        while answered + len(results) < len(asked) and random.random() < 0.6:
            request = asked[answered + len(results)]
            results.append(result_record(ledger.requests, request, "memory", offset))
            offset += 1
        again = [result_record(ledger.requests, random.choice(asked), "memory", offset)] if asked else []
        seen = random.sample(records[:position], min(2, position))
        reports = _reports(ledger, random)
        mixed = _merge(random, batch, [*results, *again], seen, [tick.record for tick in reports])
        if random.random() < 0.3:
            ledger.fold(mixed, crash=True)
            continue
        ledger.fold(mixed)
        if random.random() < 0.2:
            ledger.restart()
        position += size
        answered += len(results)
        reported |= _taken(ledger, reports)
        _kept_until_reported(ledger, reported)
    assert shape(ledger) == shape(expected)
    assert {c.memory_id for c in ledger.created()} == {c.memory_id for c in expected.created()}
    for cast in ledger.user().threads if ledger.committed else ():
        assert_covered_once(ledger, *split_cast(cast))
        assert {window.status for window in ledger.windows(*split_cast(cast))} <= {"remembered", "skipped"}
        of_thread = [
            c.memory_id for c in ledger.created() if c.request_id in {w[0] for w in shape(ledger)[cast]}
        ]
        assert of_thread == [w.memory_ids[0] for w in ledger.windows(*split_cast(cast)) if w.memory_ids]
    assert_seqs(ledger)


@settings(max_examples=100, deadline=None)
@given(
    said=talks,
    answers=st.lists(st.sampled_from(("memory", "nothing", "failed")), min_size=1),
    fallback=st.sampled_from((None, ModelRef("openai", "b"))),
    random=seeds,
)
def test_every_position_ends_in_one_window_whatever_the_models_do(
    said: list[Talk], answers: list[Answer], fallback: ModelRef | None, random: Random
) -> None:
    assignment = Assignment("extraction", ModelRef("openai", "a"), fallback)
    ledger = Ledger(RULES)
    for record in records_of(said):
        ledger.fold([record])
    now, done, offset = START + 10**10, 0, 0
    while done < len(ledger.asked()) or _open(ledger):
        for request in ledger.asked()[done:]:
            answer = answers[done % len(answers)]
            more = answer == "failed" and assignment.more_after(request.attempt, RULES.attempts)
            ledger.fold([result_record(ledger.requests, request, answer, offset, now, more=more)])
            _one_open_request_a_character(ledger)
            done, offset = done + 1, offset + 1
        now += 10**9
        ledger.fold(ledger.ticks(now, len(said), offset))
        offset += 100
    if not ledger.committed:
        return
    for cast in ledger.user().threads:
        assert_covered_once(ledger, *split_cast(cast))
        statuses = {window.status for window in ledger.windows(*split_cast(cast))}
        assert statuses <= {"remembered", "skipped", "parked"}
        assert ledger.user().threads[cast].parked == sum(
            window.status == "parked" for window in ledger.windows(*split_cast(cast))
        )
    assert_seqs(ledger)


@settings(max_examples=100, deadline=None)
@given(said=st.one_of(talks, talks_of_one), random=seeds)
def test_messages_are_let_go_once_all_is_reported_whatever_was_lost_before(
    said: list[Talk], random: Random
) -> None:
    ledger = Ledger(Rules(threshold=1, ring=64, attempts=1))
    reported: set[tuple[str, int]] = set()
    records, answered = records_of(said), 0
    while records or answered < len(ledger.asked()):
        size = random.randint(1, 5)
        ledger.fold(records[:size])
        del records[:size]
        for request in ledger.asked()[answered:]:
            answer: Answer = random.choice(ANSWERS)
            ledger.fold([result_record(ledger.requests, request, answer, answered)])
            answered += 1
        # Stale ones and wrong ones; one that tells what is covered now may well be lost.
        reports = _reports(ledger, random)
        ledger.fold([report.record for report in reports])
        reported |= _taken(ledger, reports)
        _kept_until_reported(ledger, reported)
        if random.random() < 0.2:
            ledger.fold([command_record(_retry(cast, number)) for cast, number in _parked(ledger)])
    everything = [
        CoverageReport(cast, tuple(range(1, ledger.thread(*split_cast(cast)).closed_windows + 1)))
        for cast in (ledger.user().threads if ledger.committed else ())
    ]
    for _ in range(random.randint(1, 2)):
        ledger.fold([report.record for report in everything])
    _kept_until_reported(ledger, reported | _taken(ledger, everything))
    for cast, number in _let_go(ledger):
        window = ledger.windows(*split_cast(cast))[number - 1]
        for at in range(window.first, window.last + 1):
            assert ledger.rows().get(MessageKey("u", cast, 1, at)) is None


def _parked(ledger: Ledger) -> list[tuple[str, int]]:
    return [
        (cast, number)
        for cast in (ledger.user().threads if ledger.committed else ())
        for number, window in enumerate(ledger.windows(*split_cast(cast)), 1)
        if window.status == "parked"
    ]


def _let_go(ledger: Ledger) -> list[tuple[str, int]]:
    """The windows whose messages nothing needs once they are covered: settled ones, but for the last few."""
    found = []
    for cast in ledger.user().threads if ledger.committed else ():
        windows = ledger.windows(*split_cast(cast))
        for number, window in enumerate(windows[: max(0, len(windows) - RULES.recent_windows)], 1):
            if window.status in ("remembered", "skipped"):
                found.append((cast, number))
    return found


def _retry(cast: str, number: int) -> bytes:
    retry = Retry(command_id="c", user_id="u", character_ids=split_cast(cast), epoch=1, number=number)
    return retry.model_dump_json().encode()


@settings(max_examples=60, deadline=None)
@given(said=talks, random=seeds)
def test_ticks_after_a_downtime_change_no_cut(said: list[Talk], random: Random) -> None:
    records = records_of(said)
    expected = reference(records)
    ledger = Ledger(RULES)
    for index, record in enumerate(records):
        ledger.fold([record])
        following = records[index + 1].timestamp if index + 1 < len(records) else record.timestamp
        # A tick is sent past the limit and lands before the next message; or was sent, and lands late.
        if random.random() < 0.5:
            ticks = ledger.ticks(following, index + 1, index * 10)
            ledger.fold(ticks)
            ledger.fold(ticks)
    for one in (ledger, expected):
        one.fold(one.ticks(START + 10**12, len(said), 10_000))
        one.settle(lambda request: "memory")
    assert shape(ledger) == shape(expected)


def _merge(random: Random, *queues: list[Record]) -> list[Record]:
    waiting = [list(queue) for queue in queues if queue]
    merged = []
    while waiting:
        queue = random.choice(waiting)
        merged.append(queue.pop(0))
        waiting = [queue for queue in waiting if queue]
    return merged


def _open(ledger: Ledger) -> bool:
    return bool(ledger.committed) and any(q.open for q in ledger.user().threads.values())


def _one_open_request_a_character(ledger: Ledger) -> None:
    busy = [name for cast, q in ledger.user().threads.items() if q.open for name in split_cast(cast)]
    assert len(busy) == len(set(busy))


@dataclass(frozen=True)
class CoverageReport:
    """What the indexer says of a thread: true, or of windows that are not settled, not there, or of another epoch
    (which is void)."""

    cast: str
    numbers: tuple[int, ...]
    epoch: int = 1

    @property
    def record(self) -> Record:
        return covered_record(*self.numbers, characters=split_cast(self.cast), epoch=self.epoch)


def _reports(ledger: Ledger, random: Random) -> list[CoverageReport]:
    if not ledger.committed or random.random() < 0.5:
        return []
    cast = random.choice(sorted(ledger.user().threads))
    last = ledger.thread(*split_cast(cast)).closed_windows
    epoch = random.choice((1, 1, 1, 0, 2))
    if random.random() < 0.5:
        return [CoverageReport(cast, tuple(range(random.choice((1, 1, 2)), last + 1)), epoch)]
    return [CoverageReport(cast, tuple(random.sample(range(last + 2), min(3, last + 2))), epoch)]


def _taken(ledger: Ledger, reports: list[CoverageReport]) -> set[tuple[str, int]]:
    """The windows of which the reports were not void: those settled, at the latest in the same batch."""
    return {
        (report.cast, number)
        for report in reports
        for number, window in enumerate(ledger.windows(*split_cast(report.cast)), 1)
        if number in report.numbers and report.epoch == 1 and window.status in ("remembered", "skipped")
    }


def _kept_until_reported(ledger: Ledger, reported: set[tuple[str, int]]) -> None:
    """No message is deleted of a window that was never reported, nor of the last few, nor of the open one (I11)."""
    rows = ledger.rows()
    for cast in ledger.user().threads if ledger.committed else ():
        windows = ledger.windows(*split_cast(cast))
        for number, window in enumerate(windows, 1):
            if (cast, number) in reported and number <= len(windows) - RULES.recent_windows:
                continue
            for position in range(window.first, window.last + 1):
                assert rows.get(MessageKey("u", cast, 1, position)) is not None
        thread = ledger.thread(*split_cast(cast))
        for position in range(thread.closed_position + 1, thread.next_position):
            assert rows.get(MessageKey("u", cast, 1, position)) is not None
