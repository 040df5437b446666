"""Several ledgers: zombies, joining and leaving, partitions held by a dead transaction."""

import signal

import orjson
import pytest

from models.rows import PairKey
from models.topics import CHANGED, DEAD, EXTRACTED
from tests.acceptance.system import Said, System, conversation, on_partition

USERS = 24


def mixed(start: int, turns: int) -> list[Said]:
    """Every user talks to A alone, and to A and B in a scene, by turns."""
    return [
        one
        for user in range(USERS)
        for turn in range(start, start + turns)
        for cast in (("A",), ("A", "B"))
        for one in (
            *conversation(f"u{user}", cast, 1, start=turn),
            # Each window has a new form of address: the state of the relationship changes with it.
            Said(f"u{user}", cast, f"Please call me Bo{turn}"),
        )
    ]


@pytest.mark.short
def test_one_start_makes_memories() -> None:
    with System() as system:
        system.start("ledger", "extractor", "indexer", "recall")
        said = system.publish(
            [one for session in range(3) for one in conversation("은주", ["A"], 2, start=session * 2)]
        )
        system.wait(lambda: system.indexed() == 1, "three sessions of two messages to make a memory")
        system.wait(lambda: system.counted() == len(said), "the rest to be counted")
        system.check(said)
        answer = system.recall("은주", ["A"], "Busan")
        assert len(answer["memories"]) == 1  # type: ignore[arg-type] # JSON
        assert answer["offline"] is True
        assert answer["degraded"] is None


def test_a_zombie_writes_nothing() -> None:
    with System(partitions=1, session_timeout_seconds=6) as system:
        system.start("ledger", instance="old")
        said = system.publish(conversation("u", ["A"], 4))
        system.wait(lambda: system.counted() == len(said), "the first messages to be counted")
        system.signal(signal.SIGSTOP, "ledger", "old")
        system.start("ledger", instance="new", ready=False)
        said += system.publish(conversation("u", ["A"], 20, start=4))
        system.wait(lambda: system.counted() == len(said), "the new worker to take over")
        before = system.shape()
        # Fenced within a transaction it ends by itself, as its state may differ from the log; else it rejoins.
        system.expected.add(70)
        system.signal(signal.SIGCONT, "ledger", "old")
        said += system.publish(conversation("u", ["A"], 20, start=24))
        system.wait(lambda: system.counted() == len(said), "the rest to be counted")
        system.start("extractor", "indexer")
        system.wait(system.settled, "every window to be settled")
        system.wait(lambda: system.indexed() == len(system.created()), "every memory to be indexed")
        system.check(said)
        ranges = [window[:3] for window in before[("u", "A")]]
        assert [window[:3] for window in system.shape()[("u", "A")]][: len(ranges)] == ranges


def test_one_three_one_under_load() -> None:
    with System(partitions=6, session_timeout_seconds=6) as system:
        system.start("ledger", "extractor", "indexer")
        said = system.publish(mixed(0, 8))
        system.start("ledger", instance="1", ready=False)
        system.start("ledger", instance="2", ready=False)
        said += system.publish(mixed(8, 8))
        system.wait(
            lambda: all(system.state("ledger", i) == "running" for i in "012"), "three ledgers to run"
        )
        said += system.publish(mixed(16, 8))
        system.kill("ledger", "0")
        assert system.stop("ledger", "1") == 0
        said += system.publish(mixed(24, 6))
        system.wait(lambda: system.counted() == len(said), "every message to be counted")
        system.wait(system.settled, "every window to be settled")
        system.wait(lambda: system.indexed() == len(system.created()), "every memory to be indexed")
        system.check(said)
        _relationships_follow_the_order(system)


def _relationships_follow_the_order(system: System) -> None:
    """The index has the last state of every pair, whichever thread made it: none was overwritten."""
    indexed = {
        (user, character): version
        for user, character, version in system.fetch(
            "SELECT user_id, character_id, version FROM memory.character_relationship_states"
        )
    }
    rows = system.rows()
    for (user, character), version in indexed.items():
        pair = rows.get(PairKey(user, character))
        assert pair is not None
        assert pair.relationship_version == version
    assert {user for user, _ in indexed} == {f"u{number}" for number in range(USERS)}


def test_a_transaction_left_open_holds_up_its_own_partition_only() -> None:
    with System(partitions=2, transaction_timeout_seconds=15) as system:
        users = [on_partition(number, 2) for number in (0, 1)]
        system.start("ledger", "extractor", "indexer", "recall")
        said = [one for user in users for one in system.publish(conversation(user, ["A"], 5))]
        system.wait(lambda: system.indexed() == 2, "the first memories")
        # A result waits for the ledger, so that the transaction it dies in holds memory.changed too.
        system.stop("extractor")
        said += system.publish(conversation(users[0], ["A"], 5, start=5))
        system.wait(lambda: not system.settled(), "the next window to be asked for")
        assert system.stop("ledger") == 0
        system.start("extractor")
        system.wait(lambda: len(system.read(EXTRACTED)) == 3, "its result")
        system.start("ledger", ready=False, KEEPSAKE_FAULT="ledger.inside_transaction")
        assert system.wait_end("ledger") == -9
        # Nobody restarts it. Garbage shows how far the indexer reads: it becomes a dead letter.
        for partition in (0, 1):
            system.produce(CHANGED, partition, b"key", b"garbage")
        system.wait(
            lambda: _letters(system, CHANGED) == {1}, "the indexer to go on in the other partition", 10
        )
        for user in users:
            assert len(system.recall(user, ["A"], "Busan")["memories"]) == 1  # type: ignore[arg-type] # JSON
            assert system.get(f"/v1/users/{user}/characters/A").json()["last_seq"] == 1
        system.wait(lambda: _letters(system, CHANGED) == {0, 1}, "the broker to abort what was left open", 60)
        assert len(system.created()) == 2
        system.start("ledger")
        system.wait(lambda: system.indexed() == 3, "the memory whose transaction was aborted")
        system.check(said)


def _letters(system: System, topic: str) -> set[int]:
    """The partitions of the topic that have a dead letter."""
    letters = [orjson.loads(value or b"") for _, _, value in system.read(DEAD)]
    return {letter["partition"] for letter in letters if letter["topic"] == topic}


def test_another_partition_count_is_refused() -> None:
    with System(partitions=2) as system:
        system.start("ledger", ready=False, KEEPSAKE_PARTITIONS=4)
        assert system.wait_end("ledger") != 0
        log = (system.data_dir / "logs" / "ledger-0.log").read_text()
        assert "2 partitions, but KEEPSAKE_PARTITIONS is 4" in log
        assert "Set KEEPSAKE_PARTITIONS=2" in log
