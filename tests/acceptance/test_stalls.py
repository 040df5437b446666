"""What is slow or dead elsewhere delays no counting; what kills an extractor is parked in the end."""

import signal

import pytest

from models.rows import WindowRow
from tests.acceptance.system import Said, System, conversation


def test_counting_goes_on_with_the_extractor_stalled() -> None:
    with System(answer_wait_seconds=5) as system:
        system.start("ledger", "extractor", "indexer")
        said = system.publish(conversation("u", ["A"], 5))
        system.signal(signal.SIGSTOP, "extractor")
        said += system.publish([Said("u", ("A",), f"I like number {n}") for n in range(1_000)])
        system.wait(lambda: system.counted() == len(said), "1,000 messages to be counted", 30)
        system.wait(lambda: system.heartbeat("ledger").get("lag") == 0, "no lag", 30)
        _, queue, windows = system.threads()["u", "A"]
        assert len(windows) >= 200
        assert queue.next <= 3
        system.signal(signal.SIGCONT, "extractor")
        system.wait(system.settled, "the queue to be worked off", 180)
        system.wait(lambda: system.indexed() == len(system.created()), "every memory to be indexed")
        system.check(said)


def test_a_request_that_kills_the_extractor_is_parked_in_the_end() -> None:
    with System(extraction_attempts=2, extraction_retry_seconds=0, scan_seconds=0.2) as system:
        system.start("ledger")
        said = system.publish(conversation("u", ["A"], 5))
        system.wait(lambda: system.shape().get(("u", "A")), "the window to close")
        kills = 0
        # Three starts without an end are one failed attempt, and two attempts park the window.
        while _window(system).status != "parked":
            system.start("extractor", ready=False, KEEPSAKE_FAULT="extractor.before_call")
            extractor = system.roles["extractor", "0"]
            system.wait(
                lambda process=extractor: process.poll() is not None or _window(system).status == "parked",  # type: ignore[misc] # a bound default
                "the extractor to die, or the window to be parked",
            )
            system.kill("extractor")
            kills += 1
            assert kills < 20
        assert kills > 5
        assert _window(system).reason == "crashed"
        said += system.publish(conversation("u", ["A"], 5, start=5))
        system.start("extractor", "indexer")
        system.wait(lambda: system.indexed() == 1, "the next window to be remembered")
        system.check(said)
        # An operator takes it up again.
        system.command("parked", "retry", "--all")
        system.wait(lambda: system.indexed() == 2, "the parked window to be remembered")
        system.check(said)


@pytest.mark.parametrize("engine", ["kafka", "postgres"])
def test_an_engine_away_for_a_while_loses_nothing(engine: str) -> None:
    with System() as system:
        system.start("ledger", "extractor", "indexer", "recall")
        said = system.publish(conversation("u", ["A"], 5))
        system.wait(lambda: system.indexed() == 1, "the first memory")
        getattr(system.engines, f"stop_{engine}")()
        if engine == "postgres":
            said += system.publish([one for n in range(50) for one in conversation(f"v{n}", ["A"], 5)])
            system.wait(lambda: system.counted() == len(said), "counting not to wait for PostgreSQL", 20)
            system.wait(system.settled, "extraction not to wait either")
            answer = system.recall("u", ["A"], "Busan")
            assert answer["degraded"] is not None
            assert answer["memories"] == []
        else:
            refused = system.post("/v1/messages", _one("u", "while away"))
            assert refused.status_code == 503
            assert len(system.recall("u", ["A"], "Busan")["memories"]) == 1  # type: ignore[arg-type] # JSON
        getattr(system.engines, f"start_{engine}")()
        said += system.publish(conversation("u", ["A"], 5, start=5))
        system.wait(lambda: system.counted() == len(said), "every message to be counted")
        system.wait(system.settled, "every window to be settled")
        system.wait(lambda: system.indexed() == len(system.created()) > 1, "every memory to be indexed")
        system.check(said)


def _window(system: System) -> WindowRow:
    _, _, windows = system.threads()["u", "A"]
    return windows[0]


def _one(user: str, text: str) -> dict[str, object]:
    return {
        "message_id": "x1",
        "user_id": user,
        "character_ids": ["A"],
        "session_id": "s",
        "role": "user",
        "text": text,
        "sent_at": "2026-03-01T00:00:00Z",
    }
