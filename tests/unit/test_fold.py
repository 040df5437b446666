"""The fold, case by case: counting, cutting, the queue, attempts."""

from dataclasses import replace

import orjson
import pytest

from agents.ports import CannotOpen
from models.commands import MAX_NUMBERS, Flush, Retry
from models.fold import fold
from models.ids import CAST_SEP
from models.records import Record
from models.rows import MessageKey
from models.rules import Rules
from models.topics import EXTRACTED
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

MINUTE = 60_000


def talk(
    ledger: Ledger, roles: str, *, first: int = 0, at: int = START, step: int = 1_000, **more: object
) -> int:
    """Publish messages, `u`, `a` or `s` each, a second apart; the next offset."""
    names = {"u": "user", "a": "assistant", "s": "system"}
    for index, role in enumerate(roles):
        record = chat_record(first + index, role=names[role], timestamp=at + index * step, **more)  # type: ignore[arg-type] # keywords of chat_record
        ledger.fold([record])
    return first + len(roles)


def ranges(ledger: Ledger, *characters: str) -> list[tuple[int, int]]:
    return [(window.first, window.last) for window in ledger.windows(*characters)]


def test_three_sessions_of_two_messages_make_a_memory() -> None:
    ledger = Ledger()
    for session in range(3):
        talk(ledger, "uaua", first=session * 4, session=f"s{session}", at=START + session * MINUTE)
    assert ranges(ledger, "A") == [(1, 10)]
    assert ledger.asked()[0].messages[0].session_id == "s0"
    assert ledger.asked()[0].messages[-1].session_id == "s2"


def test_window_closes_with_the_answer_to_the_threshold_message() -> None:
    ledger = Ledger()
    talk(ledger, "uauauauau")
    assert ranges(ledger, "A") == []
    talk(ledger, "a", first=9, at=START + 9_000)
    assert ranges(ledger, "A") == [(1, 10)]


def test_window_closes_before_the_next_user_message() -> None:
    ledger = Ledger()
    talk(ledger, "uuuuuu")
    assert ranges(ledger, "A") == [(1, 5)]
    assert ledger.thread("A").user_messages == 1


def test_a_late_answer_belongs_to_the_next_window() -> None:
    ledger = Ledger()
    offset = talk(ledger, "uuuuu")
    talk(ledger, "a", first=offset, at=START + 4_000 + MINUTE + 1)
    assert ranges(ledger, "A") == [(1, 5)]
    ledger = Ledger()
    offset = talk(ledger, "uuuuu")
    talk(ledger, "a", first=offset, at=START + 4_000 + MINUTE)
    assert ranges(ledger, "A") == [(1, 6)]


def test_a_scene_does_not_close_on_the_first_answer() -> None:
    ledger = Ledger()
    talk(ledger, "uuuuuaa", characters=("B", "A"))
    assert ranges(ledger, "A", "B") == []
    talk(ledger, "u", first=7, at=START + 8_000, characters=("A", "B"))
    assert ranges(ledger, "A", "B") == [(1, 7)]


def test_system_messages_are_neither_counted_nor_kept() -> None:
    ledger = Ledger()
    talk(ledger, "sussusususs")
    assert ledger.thread("A").last_position == 4
    assert ledger.thread("A").user_messages == 4


def test_the_same_message_id_counts_once() -> None:
    ledger = Ledger()
    for offset in range(9):
        ledger.fold([chat_record(offset, message_id=f"m{offset // 3}")])
    assert ledger.thread("A").last_position == 3


def test_the_ring_forgets_old_message_ids() -> None:
    ledger = Ledger(Rules(ring=2))
    for offset, name in enumerate("abcab"):
        ledger.fold([chat_record(offset, message_id=name)])
    assert ledger.thread("A").last_position == 5
    assert len(ledger.thread("A").ring) == 16


def test_an_idle_gap_closes_the_window_where_a_user_spoke() -> None:
    ledger = Ledger()
    talk(ledger, "ua")
    talk(ledger, "u", first=2, at=START + 1_000 + 30 * MINUTE)
    assert ranges(ledger, "A") == []
    talk(ledger, "u", first=3, at=START + 1_000 + 60 * MINUTE + 1)
    assert ranges(ledger, "A") == [(1, 3)]


def test_an_idle_gap_leaves_a_window_without_a_user_open() -> None:
    ledger = Ledger()
    talk(ledger, "a")
    talk(ledger, "u", first=1, at=START + 90 * MINUTE)
    assert ranges(ledger, "A") == []


def test_idle_closing_can_be_off() -> None:
    ledger = Ledger(Rules(idle_close_ms=None))
    talk(ledger, "uu", step=90 * MINUTE)
    assert ranges(ledger, "A") == []
    assert ledger.ticks(START + 10_000 * MINUTE, 2, 0) == []


def test_a_tick_makes_the_cut_that_the_next_message_would_have_made() -> None:
    for roles in ("ua", "uuuuu"):
        with_tick, without = Ledger(), Ledger()
        later = START + 120 * MINUTE
        for ledger in (with_tick, without):
            talk(ledger, roles)
        with_tick.fold(with_tick.ticks(later - MINUTE, len(roles), 0))
        assert len(ranges(with_tick, "A")) == 1
        for ledger in (with_tick, without):
            talk(ledger, "u", first=len(roles), at=later)
        assert ranges(with_tick, "A") == ranges(without, "A")
        assert [w.request_id for w in with_tick.windows("A")] == [w.request_id for w in without.windows("A")]


def test_a_tick_is_void_when_the_position_has_changed() -> None:
    ledger = Ledger()
    talk(ledger, "u")
    ticks = ledger.ticks(START + 31 * MINUTE, 1, 0)
    assert len(ticks) == 1
    talk(ledger, "a", first=1, at=START + 29 * MINUTE)
    ledger.fold(ticks)
    assert ranges(ledger, "A") == []


def test_a_tick_of_another_position_closes_nothing_however_late() -> None:
    ledger = Ledger()
    talk(ledger, "u")
    (tick,) = ledger.ticks(START + 31 * MINUTE, 1, 0)
    talk(ledger, "u", first=1, at=START + 29 * MINUTE)
    ledger.fold([replace(tick, timestamp=START + 120 * MINUTE)])
    assert ranges(ledger, "A") == []


def test_a_tick_that_the_log_has_before_the_limit_closes_nothing() -> None:
    ledger = Ledger()
    talk(ledger, "u")
    (tick,) = ledger.ticks(START + 31 * MINUTE, 1, 0)
    ledger.fold([replace(tick, timestamp=START + 30 * MINUTE)])
    assert ranges(ledger, "A") == []
    ledger.fold([replace(tick, timestamp=START + 30 * MINUTE + 1)])
    assert ranges(ledger, "A") == [(1, 1)]


def test_the_same_send_tick_twice_asks_once() -> None:
    ledger = Ledger()
    talk(ledger, "uuuuua")
    (tick,) = ledger.ticks(START + 10 * MINUTE, 6, 0)
    ledger.fold([tick, tick])
    assert len(ledger.asked()) == 2


def test_a_sealed_message_opens_at_its_own_position_only() -> None:
    ledger = Ledger()
    talk(ledger, "uu")
    first, second = MessageKey("u", "A", 1, 1).encode(), MessageKey("u", "A", 1, 2).encode()
    ledger.committed[first] = ledger.committed[second]
    with pytest.raises(CannotOpen):
        ledger.rows().get(MessageKey("u", "A", 1, 1))


def test_a_record_in_another_partition_is_a_dead_letter_that_names_the_partitioner() -> None:
    ledger = Ledger()
    ledger.fold([replace(chat_record(0), partition=3)])
    assert ledger.counts.names["dead_wrong_partition"] == 1
    assert b"murmur2_random" in (ledger.outputs[0].value or b"")
    assert not ledger.committed


def test_no_tick_before_limit_and_margin() -> None:
    ledger = Ledger()
    talk(ledger, "uuuuu")
    assert ledger.ticks(START + 4_000 + MINUTE + 4_999, 5, 0) == []
    assert len(ledger.ticks(START + 4_000 + MINUTE + 5_000, 5, 0)) == 1


def test_what_is_due_survives_a_restart() -> None:
    ledger = Ledger()
    talk(ledger, "uuuuu")
    ledger.restart()
    ledger.fold(ledger.ticks(START + 2 * MINUTE, 5, 0))
    assert ranges(ledger, "A") == [(1, 5)]
    ledger.restart()
    assert [tick.value for tick in ledger.ticks(START + 20 * MINUTE, 5, 1)] != []


def test_large_windows_are_cut_by_size() -> None:
    ledger = Ledger(Rules(threshold=1_000))
    for offset in range(8):
        ledger.fold([chat_record(offset, "가" * 20_000)])
    assert ranges(ledger, "A")[0] == (1, 4)
    assert ledger.thread("A").open_bytes <= 262_144


def test_a_large_window_without_a_user_is_skipped_unasked() -> None:
    ledger = Ledger()
    for offset in range(6):
        ledger.fold([chat_record(offset, "x" * 60_000, role="assistant")])
    assert [window.status for window in ledger.windows("A")] == ["skipped"]
    assert ledger.asked() == []
    assert ledger.user().threads["A"].open is None


def test_windows_queue_behind_one_open_request_and_go_in_order() -> None:
    ledger = Ledger()
    talk(ledger, "u" * 1_000)
    assert len(ledger.asked()) == 1
    assert ledger.thread("A").last_position == 1_000
    assert len(ranges(ledger, "A")) == 199
    ledger.settle(lambda request: "memory")
    assert [request.number for request in ledger.asked()] == list(range(1, 200))
    assert_seqs(ledger)
    assert_covered_once(ledger, "A")


def test_threads_that_share_a_character_wait_for_each_other() -> None:
    ledger = Ledger()
    talk(ledger, "uuuuua")
    talk(ledger, "uuuuuu", first=10, characters=("A", "B"))
    talk(ledger, "uuuuua", first=20, characters=("C",))
    talk(ledger, "uuuuua", first=30, characters=("B",))
    assert [request.character_ids for request in ledger.asked()] == [("A",), ("C",)]
    codec = ledger.requests
    ledger.fold([result_record(codec, ledger.asked()[0], "memory", 0)])
    assert ledger.asked()[2].character_ids == ("A", "B")
    ledger.fold([result_record(codec, ledger.asked()[2], "memory", 1)])
    assert ledger.asked()[3].character_ids == ("B",)
    # What the scene made of A and B is shown to the next window of B.
    shown = ledger.asked()[3].relationships["B"]
    assert shown is not None
    assert shown.summary == f"after {ledger.asked()[2].request_id}"
    assert_seqs(ledger)


def test_failures_are_spaced_then_parked_and_counting_goes_on() -> None:
    ledger = Ledger()
    talk(ledger, "u" * 11)
    now = START + MINUTE
    for attempt in (1, 2, 3):
        request = ledger.asked()[-1]
        assert request.attempt == attempt
        failure = result_record(ledger.requests, request, "failed", attempt, now)
        ledger.fold([failure, failure])
        ticks = ledger.ticks(now + 10 * MINUTE, 11, attempt)
        now += 11 * MINUTE
        ledger.fold([tick for tick in ticks if b'"send"' in (tick.value or b"")])
    assert [window.status for window in ledger.windows("A")] == ["parked", "open"]
    assert ledger.user().threads["A"].parked == 1
    assert ledger.asked()[-1].number == 2
    assert ledger.windows("A")[0].reason == "test"


def fail(ledger: Ledger, now: int, *, more: bool) -> int | None:
    """Fail the attempt that was asked last; the wait until the next one is due, None: there is none."""
    request = ledger.asked()[-1]
    ledger.fold([result_record(ledger.requests, request, "failed", request.attempt, now, more=more)])
    window = ledger.windows("A")[0]
    if window.send_at is None:
        return None
    ticks = ledger.ticks(window.send_at + 10_000, 5, request.attempt)
    ledger.fold([tick for tick in ticks if b'"send"' in (tick.value or b"")])
    return window.send_at - now


def test_a_fall_back_model_has_attempts_of_its_own_spaced_anew() -> None:
    ledger = Ledger(Rules(attempts=3, retry_ms=10_000))
    talk(ledger, "uuuuua")
    waits = [fail(ledger, START + MINUTE * 60 * n, more=n < 6) for n in range(1, 7)]
    assert waits == [10_000, 20_000, 40_000, 10_000, 20_000, None]
    assert [request.attempt for request in ledger.asked()] == [1, 2, 3, 4, 5, 6]
    assert ledger.windows("A")[0].status == "parked"


def test_a_window_taken_up_again_goes_on_with_its_attempts_on_both_models() -> None:
    ledger = Ledger(Rules(attempts=2))
    talk(ledger, "uuuuua")
    for attempt in range(1, 5):
        fail(ledger, START + MINUTE * 60 * attempt, more=attempt < 4)
    retry = Retry(command_id="c", user_id="u", character_ids=("A",), epoch=1, number=1)
    ledger.fold([command_record(retry.model_dump_json().encode())])
    assert ledger.asked()[-1].attempt == 5
    for attempt in range(5, 9):
        fail(ledger, START + MINUTE * 60 * attempt, more=attempt < 8)
    assert [request.attempt for request in ledger.asked()] == list(range(1, 9))
    assert ledger.windows("A")[0].status == "parked"


def test_without_a_fall_back_nothing_more_is_tried() -> None:
    ledger = Ledger(Rules(attempts=2))
    talk(ledger, "uuuuua")
    assert fail(ledger, START + MINUTE, more=False) == 10_000
    assert fail(ledger, START + MINUTE * 2, more=False) is None
    assert ledger.windows("A")[0].status == "parked"


def test_a_parked_window_is_taken_up_again_with_its_messages() -> None:
    ledger = Ledger(Rules(attempts=1))
    talk(ledger, "u" * 30)
    ledger.settle(lambda request: "failed" if request.number == 1 else "memory")
    parked = ledger.windows("A")[0]
    assert parked.status == "parked"
    retry = Retry(command_id="c", user_id="u", character_ids=("A",), epoch=1, number=1)
    ledger.fold([command_record(retry.model_dump_json().encode())])
    again = ledger.asked()[-1]
    assert (again.number, again.attempt, len(again.messages)) == (1, 2, 5)
    ledger.fold([result_record(ledger.requests, again, "memory", 99)])
    assert ledger.windows("A")[0].status == "remembered"
    assert ledger.user().threads["A"].parked == 0
    assert kept(ledger, 30)[0] == 1
    ledger.fold([covered_record(1)])
    assert kept(ledger, 30)[0] == 6
    assert_seqs(ledger)


def test_only_the_first_result_counts() -> None:
    ledger = Ledger()
    talk(ledger, "uuuuua")
    request = ledger.asked()[0]
    for offset, answer in enumerate(("memory", "memory", "nothing", "failed")):
        ledger.fold([result_record(ledger.requests, request, answer, offset)])  # type: ignore[arg-type] # literals
    assert len(ledger.created()) == 1
    assert ledger.windows("A")[0].status == "remembered"


def test_half_a_memory_is_a_dead_letter_not_nothing_to_keep() -> None:
    ledger = Ledger()
    talk(ledger, "uuuuua")
    request = ledger.asked()[0]
    good = ledger.requests.open_result(result_record(ledger.requests, request, "memory", 0))
    for half in ({"memory": None}, {"provenance": None}, {"status": "nothing"}, {"status": "failed"}):
        key, value = ledger.requests.seal_result(good.model_copy(update=half))
        ledger.fold([Record(EXTRACTED, 0, 1, START, key, value)])
    assert ledger.counts.names["dead_invalid_result"] == 4
    assert ledger.windows("A")[0].status == "open"
    ledger.fold([result_record(ledger.requests, request, "memory", 2)])
    assert ledger.windows("A")[0].status == "remembered"


def test_a_result_on_a_stale_relationship_is_asked_again_without_counting() -> None:
    ledger = Ledger()
    talk(ledger, "uuuuua")
    request = ledger.asked()[0].model_copy(update={"versions": {"A": 7}})
    ledger.fold([result_record(ledger.requests, request, "memory", 0)])
    assert ledger.created() == []
    assert (ledger.asked()[1].attempt, ledger.asked()[1].versions) == (1, {"A": 0})


def test_an_unanswered_request_is_sent_again_with_growing_waits() -> None:
    ledger = Ledger()
    talk(ledger, "uuuuua")
    now, waits = START + 5_000, []
    for round_ in range(4):
        at = next(t for t in range(now, now + 10_000 * MINUTE, 10_000) if ledger.ticks(t, 6, round_))
        ledger.fold(ledger.ticks(at + 61_000, 6, round_))
        waits.append(at - now)
        now = at + 61_000
    assert len(ledger.asked()) == 5
    assert waits == sorted(waits)
    assert waits[-1] > 3 * waits[0]


def test_flush_cuts_at_the_last_message_before_its_offset() -> None:
    ledger = Ledger()
    talk(ledger, "uaua")
    flush = Flush(command_id="c", user_id="u", character_id="A", chat_offset=2)
    ledger.fold([command_record(flush.model_dump_json().encode())])
    assert ranges(ledger, "A") == [(1, 2)]
    assert ledger.thread("A").user_messages == 1
    assert_covered_once(ledger, "A")
    talk(ledger, "uuua", first=4, at=START + 4_000)
    talk(ledger, "ua", first=8, at=START + 8_000)
    assert ranges(ledger, "A") == [(1, 2), (3, 10)]


def test_flush_reaches_every_thread_of_the_pair_and_no_other() -> None:
    ledger = Ledger()
    talk(ledger, "u")
    talk(ledger, "u", first=1, characters=("A", "B"))
    talk(ledger, "u", first=2, characters=("B",))
    flush = Flush(command_id="c", user_id="u", character_id="A", chat_offset=3)
    ledger.fold([command_record(flush.model_dump_json().encode())])
    assert ranges(ledger, "A") == [(1, 1)]
    assert ranges(ledger, "A", "B") == [(1, 1)]
    assert ranges(ledger, "B") == []


def test_a_skipped_window_is_not_extracted_again() -> None:
    ledger = Ledger()
    talk(ledger, "uuuuuauaua")
    ledger.settle(lambda request: "nothing")
    assert [window.status for window in ledger.windows("A")] == ["skipped"]
    talk(ledger, "ua", first=10, at=START + 10_000)
    assert len(ledger.asked()) == 1


def kept(ledger: Ledger, last: int) -> list[int]:
    """The positions whose messages are still there."""
    rows = ledger.rows()
    return [position for position in range(1, last + 1) if rows.get(MessageKey("u", "A", 1, position))]


@pytest.mark.parametrize("answer", ["memory", "nothing"])
def test_messages_are_kept_until_they_are_covered_and_those_of_the_last_windows_longer(
    answer: Answer,
) -> None:
    ledger = Ledger()
    talk(ledger, "u" * 26)
    ledger.settle(lambda request: answer)
    assert kept(ledger, 26) == list(range(1, 27))
    ledger.fold([covered_record(2, 3)])  # the first may be reported late, or never: it holds up nothing
    assert kept(ledger, 26) == [*range(1, 6), *range(16, 27)]
    ledger.fold([covered_record(1)])
    assert kept(ledger, 26) == list(range(16, 27))
    ledger.fold([covered_record(4, 5)])
    assert kept(ledger, 26) == list(range(16, 27))
    ledger.fold([covered_record(1, 2, 3, 4, 5)])
    assert kept(ledger, 26) == list(range(16, 27))
    talk(ledger, "u" * 5, first=26)
    assert kept(ledger, 31) == list(range(16, 32))


@pytest.mark.parametrize(
    "report",
    [
        covered_record(1, epoch=2),
        covered_record(1, characters=("B",)),
        covered_record(99, 0, -1),
        covered_record(5, 6),
    ],
)
def test_a_report_of_what_is_not_there_or_not_settled_is_void(report: Record) -> None:
    ledger = Ledger()
    talk(ledger, "u" * 26)
    before = dict(ledger.committed)
    ledger.fold([report])
    assert ledger.committed == before


@pytest.mark.parametrize(
    "change",
    [
        {"numbers": ["one"]},
        {"numbers": None},
        {"numbers": list(range(MAX_NUMBERS + 1))},
        {"epoch": None},
        {"position": 5},
        {"user_id": 5},
    ],
)
def test_a_report_that_cannot_be_understood_is_a_dead_letter(change: dict[str, object]) -> None:
    ledger = Ledger()
    talk(ledger, "u" * 26)
    ledger.settle(lambda request: "memory")
    before = dict(ledger.committed)
    good = covered_record(1)
    bad = replace(good, value=orjson.dumps(orjson.loads(good.value or b"") | change))
    ledger.fold([bad])
    assert ledger.counts.names["dead_invalid_command"] == 1
    ledger.fold([replace(good, partition=3)])
    assert ledger.counts.names["dead_wrong_partition"] == 1
    assert ledger.committed == before


def test_a_report_waits_for_no_message() -> None:
    ledger = Ledger()
    assert ledger.step.chat_offset(covered_record(1)) is None


def test_a_parked_window_is_kept_whole_and_holds_up_nothing() -> None:
    ledger = Ledger(Rules(attempts=1))
    talk(ledger, "u" * 30)
    ledger.settle(lambda request: "failed" if request.number == 2 else "memory")
    ledger.fold([covered_record(1, 2, 3, 4, 5)])
    assert kept(ledger, 30) == [*range(6, 11), *range(16, 31)]


def test_a_window_that_was_parked_is_let_go_when_it_is_covered_in_the_end() -> None:
    ledger = Ledger(Rules(attempts=1))
    talk(ledger, "u" * 31)
    ledger.settle(lambda request: "failed" if request.number == 2 else "memory")
    ledger.fold([covered_record(1, 3, 4)])
    retry = Retry(command_id="c", user_id="u", character_ids=("A",), epoch=1, number=2)
    ledger.fold([command_record(retry.model_dump_json().encode())])
    again = ledger.asked()[-1]
    assert len(again.messages) == 5
    ledger.fold([covered_record(2)])  # it is open again: void
    assert kept(ledger, 31) == [*range(6, 11), *range(21, 32)]
    ledger.fold([result_record(ledger.requests, again, "memory", 99)])
    assert kept(ledger, 31) == [*range(6, 11), *range(21, 32)]
    ledger.fold([covered_record(2)])
    assert kept(ledger, 31) == list(range(21, 32))


def test_covered_windows_survive_a_restart() -> None:
    ledger = Ledger()
    talk(ledger, "u" * 26)
    ledger.settle(lambda request: "memory")
    ledger.fold([covered_record(2)])
    ledger.restart()
    ledger.fold([covered_record(1)])
    assert kept(ledger, 26) == list(range(11, 27))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (b"", "empty_value"),
        (b"\xff\xfe", "invalid_json"),
        (b'{"message_id": "\\ud800"}', "invalid_json"),
        (b"[1]", "not_an_object"),
        ({"user_id": None}, "invalid_id"),
        ({"user_id": "v"}, "key_mismatch"),
        ({"message_id": "a\x00b"}, "invalid_id"),
        ({"message_id": "x" * 129}, "invalid_id"),
        ({"message_id": ""}, "invalid_id"),
        ({"character_ids": "A"}, "invalid_characters"),
        ({"character_ids": []}, "invalid_characters"),
        ({"character_ids": [1]}, "invalid_id"),
        ({"role": "tool"}, "invalid_role"),
        ({"text": 5}, "invalid_text"),
        ({"text": "x" * 65_537}, "text_too_long"),
        ({"text": "가" * 22_000}, "text_too_long"),
        ({"sent_at": "soon"}, "invalid_sent_at"),
        ({"sent_at": "2026-03-01"}, "invalid_sent_at"),
        ({"sent_at": 5}, "invalid_sent_at"),
        ({"metadata": []}, "invalid_metadata"),
        ({"speaker": 1}, "invalid_id"),
    ],
)
def test_what_cannot_be_understood_is_a_dead_letter(change: bytes | dict[str, object], reason: str) -> None:
    ledger = Ledger()
    good = chat_record(0)
    value = change if isinstance(change, bytes) else orjson.dumps(orjson.loads(good.value or b"") | change)
    bad = type(good)(good.topic, 0, 0, START, good.key, value)
    ledger.fold([chat_record(1), bad, chat_record(2)])
    assert [output.topic for output in ledger.outputs] == ["memory.dead"]
    assert ledger.counts.names[f"dead_{reason}"] == 1
    assert ledger.thread("A").last_position == 2


def test_nul_and_emoji_in_text_are_kept() -> None:
    ledger = Ledger()
    text = "a\x00b 🫠 각"
    for offset in range(6):
        ledger.fold([chat_record(offset, text)])
    assert {message.text for message in ledger.asked()[0].messages} == {text}


def test_times_without_offset_and_far_ahead() -> None:
    ledger = Ledger(Rules(threshold=3))
    good = chat_record(0)
    for offset, sent in enumerate(("2026-02-01T10:00:00", "2031-01-01T00:00:00Z", None, None)):
        value = orjson.dumps(orjson.loads(good.value or b"") | {"sent_at": sent, "message_id": str(offset)})
        ledger.fold([type(good)(good.topic, 0, offset, START, good.key, value)])
    sent_at = [message.sent_at for message in ledger.asked()[0].messages]
    assert sent_at == ["2026-02-01T10:00:00+00:00", "2026-02-02T02:40:00+00:00", "2026-02-02T02:40:00+00:00"]


def test_a_user_with_too_many_threads_is_told_and_goes_on_in_the_others() -> None:
    ledger = Ledger(Rules(user_bytes=1_000))
    for offset in range(20):
        ledger.fold([chat_record(offset, characters=(f"c{offset}",))])
    known = len(ledger.user().threads)
    assert 10 < known < 20
    assert ledger.counts.names["dead_too_many_threads"] == 20 - known
    assert max(len(value) for value in ledger.committed.values()) < 2_000
    before = dict(ledger.committed)
    ledger.fold([chat_record(20, characters=("c19",))])
    assert ledger.committed == before
    ledger.fold([chat_record(21, characters=("c0",))])
    assert ledger.thread("c0").last_position == 2


def test_the_bound_of_a_users_row_counts_what_json_makes_of_the_ids() -> None:
    ledger = Ledger(Rules(user_bytes=20_000))
    for offset in range(40):
        ledger.fold([chat_record(offset, characters=tuple(f"{offset}-{n}" + "\\" * 100 for n in range(16)))])
    assert ledger.counts.names["dead_too_many_threads"] > 0
    assert max(len(value) for value in ledger.committed.values()) < 20_000


def test_an_event_that_breaks_the_fold_is_set_aside_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(rows, event, timestamp, rules, mint):  # type: ignore[no-untyped-def] # stands in for fold
        effects = fold(rows, event, timestamp, rules, mint)
        if getattr(event, "message_id", "") == "m1":
            raise ZeroDivisionError
        return effects

    monkeypatch.setattr("agents.ledger.fold", breaks)
    ledger = Ledger()
    ledger.fold([chat_record(offset) for offset in range(3)])
    assert ledger.thread("A").last_position == 2
    assert ledger.counts.names["dead_fold_error"] == 1


def test_the_cast_is_a_sorted_set() -> None:
    ledger = Ledger()
    talk(ledger, "u", characters=("B", "A", "B"))
    assert ledger.thread("A", "B").last_position == 1
    assert list(ledger.user().threads) == [f"A{CAST_SEP}B"]
