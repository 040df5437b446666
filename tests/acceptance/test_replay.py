"""Cuts are a function of the log alone: downtime, ticks and a full replay give the same windows (I3)."""

import shutil
import time
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from models.topics import CHANGED, CREATED, EMBEDDED, EXTRACTED, REQUESTED
from streams.topics import CHANGELOG, LEDGER_GROUP
from tests.acceptance.system import Said, System, conversation

IDLE: dict[str, Any] = {"idle_close_seconds": 3, "tick_margin_seconds": 1, "scan_seconds": 0.2}


def ranges(system: System) -> dict[tuple[str, str], list[tuple[int, int]]]:
    return {key: [window[1:3] for window in windows] for key, windows in system.shape().items()}


def test_an_idle_thread_closes_by_itself() -> None:
    with System(**IDLE) as system:
        system.start("ledger", "extractor", "indexer")
        said = system.publish(conversation("u", ["A"], 2))
        system.wait(lambda: system.indexed() == 1, "two messages to make a memory after the idle limit")
        said += system.publish([Said("v", ("A",), "hello there", role="assistant")])
        system.wait(lambda: system.counted() == len(said), "the assistant's line to be counted")
        system.check(said)
        assert ranges(system)[("u", "A")] == [(1, 4)]


def test_downtime_beyond_the_idle_limit_changes_no_cut() -> None:
    talk = [
        conversation("u", ["A"], 2),
        conversation("u", ["A"], 2, start=2),
        conversation("u", ["A"], 1, start=4),
    ]
    with System(**IDLE) as system:
        said: list[Said] = []
        system.start("ledger")
        for part in talk:
            said.extend(system.publish(part))
            system.wait(lambda: system.counted() == len(said), "the part to be counted")
            closed = len(said)
            system.wait(
                lambda closed=closed: (
                    ranges(system)[("u", "A")][-1:] and ranges(system)[("u", "A")][-1][1] == closed
                ),  # type: ignore[misc] # a bound default
                "the idle limit to close it",
            )
        alive = ranges(system)
    with System(**IDLE) as system:
        said = system.publish(talk[0])
        system.start("ledger")
        system.wait(lambda: system.counted() == len(said), "the first part to be counted")
        system.kill("ledger")
        for part in talk[1:]:
            # The log's own clock has to pass the limit while nobody looks.
            _pass_time(system, 4)
            said += system.publish(part)
        _pass_time(system, 4)
        system.start("ledger", "extractor", "indexer")
        system.wait(lambda: ranges(system)[("u", "A")] == alive[("u", "A")], f"the cuts {alive}")
        system.wait(system.settled, "every window to be settled")
        system.wait(lambda: system.indexed() == len(system.created()), "every memory to be indexed")
        system.check(said)
        _replay_everything(system, said)


def test_a_flush_is_replayed_where_it_was_asked() -> None:
    with System() as system:
        system.start("ledger", "extractor", "indexer", "recall")
        said = system.publish(conversation("u", ["A"], 2))
        system.wait(lambda: system.counted() == len(said), "the first part to be counted")
        assert system.post("/v1/users/u/characters/A/flush", {}).status_code < 300
        system.wait(lambda: system.indexed() == 1, "the flushed window")
        said += system.publish(conversation("u", ["A"], 7, start=2))
        system.wait(lambda: system.indexed() == 2, "the next window")
        system.check(said)
        assert ranges(system)[("u", "A")][0] == (1, 4)
        system.stop("recall")
        _replay_everything(system, said)


def _replay_everything(system: System, said: list[Said]) -> None:
    """Forget all but what was said and asked; run again: the same windows, ids and rows."""
    for role, instance in list(system.roles):
        assert system.stop(role, instance) == 0
    shape = system.shape()
    memories = sorted((c.memory_id, str(c.date), c.source, c.importance) for c in system.created())
    rows = _rows(system)
    _forget(system)
    system.command("provision")
    system.start("ledger", "extractor", "indexer")
    system.wait(lambda: system.counted() == len(said), "the replay to be counted")
    system.wait(system.settled, "every window to be settled")
    system.wait(lambda: system.indexed() == len(memories), "every memory to be indexed")
    system.check(said)
    assert system.shape() == shape
    assert sorted((c.memory_id, str(c.date), c.source, c.importance) for c in system.created()) == memories
    assert _rows(system) == rows


def _rows(system: System) -> list[tuple[object, ...]]:
    found = system.fetch(
        "SELECT m.id::text, m.user_id, m.kind, m.importance, m.date, m.created_at, m.first_position, "
        "m.last_position, c.character_id, c.seq FROM memory.user_memories m "
        "JOIN memory.user_memory_characters c ON c.memory_id = m.id ORDER BY 1, 9"
    )
    return [tuple(row) for row in found]


def _forget(system: System) -> None:
    admin = AdminClient({"bootstrap.servers": system.engines.bootstrap})
    topics = [CHANGELOG, CREATED, CHANGED, EMBEDDED, EXTRACTED, REQUESTED]
    groups = [group.group_id for group in admin.list_consumer_groups().result().valid]
    for future in admin.delete_topics(topics).values():
        future.result(30)
    # Members are static: the broker lets them go only when their sessions have ended.
    system.wait(lambda: _deleted(admin, groups), "the groups to be deleted")
    assert LEDGER_GROUP in groups
    system.fetch("DROP SCHEMA memory CASCADE")
    shutil.rmtree(system.data_dir / "roles")


def _deleted(admin: AdminClient, groups: list[str]) -> bool:
    left = {group.group_id for group in admin.list_consumer_groups().result().valid} & set(groups)
    for future in admin.delete_consumer_groups(sorted(left)).values() if left else ():
        try:
            future.result(30)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NON_EMPTY_GROUP:
                raise
            return False
    return True


def _pass_time(system: System, seconds: float) -> None:
    """Let the log's clock move on: nothing but time makes an idle gap."""
    until = time.time() + seconds
    system.wait(lambda: time.time() >= until, "the clock")
