"""Kill −9 at every point where state and log could part ways: nothing lost, doubled or out of seq (I5)."""

import shutil

import pytest

from tests.acceptance.system import System, conversation

LEDGER_POINTS = (
    "ledger.before_transaction",
    "ledger.inside_transaction",
    "ledger.after_commit",
    "ledger.after_write",
)
EXTRACTOR_POINTS = ("extractor.before_call", "extractor.after_call", "extractor.after_send")
INDEXER_POINTS = ("indexer.before_embedded", "indexer.before_commit", "indexer.after_commit")
SHORT = {"ledger.inside_transaction", "extractor.after_call", "indexer.before_commit"}


def cases() -> list[object]:
    """Each point on the same directory; the ledger's on an empty one too."""
    points = [*LEDGER_POINTS, *EXTRACTOR_POINTS, *INDEXER_POINTS]
    made = [
        (point, empty) for empty in (False, True) for point in points if not empty or point in LEDGER_POINTS
    ]
    return [
        pytest.param(
            point,
            empty,
            id=f"{point}-{'empty' if empty else 'same'}",
            marks=[pytest.mark.short] if point in SHORT and not empty else [],
        )
        for point, empty in made
    ]


@pytest.mark.parametrize(("point", "empty"), cases())
def test_nothing_is_lost_or_doubled(point: str, empty: bool) -> None:
    victim = point.partition(".")[0]
    with System() as system:
        others = [role for role in ("ledger", "extractor", "indexer") if role != victim]
        system.start(*others)
        # The third time that the point is passed: with something committed before it, and something open.
        system.start(victim, KEEPSAKE_FAULT=f"{point}:3")
        said = []
        for round_ in range(3):
            for user in range(8):
                said += system.publish(conversation(f"u{user}", ["A"], 6, start=round_ * 6))
        assert system.wait_end(victim) == -9
        if empty:
            shutil.rmtree(system.data_dir / "roles" / f"{victim}-0")
        system.start(victim)
        system.wait(lambda: system.counted() == len(said), "every message to be counted")
        system.wait(system.settled, "every window to be settled")
        system.wait(lambda: system.indexed() == len(system.created()), "every memory to be indexed")
        system.check(said)
        assert len(system.created()) == 8 * 3


def test_kills_at_random_moments() -> None:
    with System() as system:
        system.start("ledger", "extractor", "indexer")
        said = []
        for round_ in range(6):
            said += system.publish(
                [one for user in range(20) for one in conversation(f"u{user}", ["A"], 5, start=round_ * 5)]
            )
            victim = ("ledger", "extractor", "indexer")[round_ % 3]
            system.kill(victim)
            system.start(victim, ready=False)
        system.wait(lambda: system.counted() == len(said), "every message to be counted")
        system.wait(system.settled, "every window to be settled")
        system.wait(lambda: system.indexed() == len(system.created()), "every memory to be indexed")
        system.check(said)


def test_two_of_each_role_killed_in_turn() -> None:
    roles = ("ledger", "extractor", "indexer")
    with System(partitions=6, session_timeout_seconds=6) as system:
        for instance in "01":
            system.start(*roles, instance=instance, ready=False)
        said = []
        for round_ in range(6):
            talk = [
                one
                for user in range(12)
                for cast in (("A",), ("A", "B"))
                for one in conversation(f"은주{user}", cast, 3, start=round_ * 3)
            ]
            said += system.publish(talk)
            role, instance = roles[round_ % 3], str(round_ // 3)
            system.kill(role, instance)
            system.start(role, instance=instance, ready=False)
        system.wait(lambda: system.counted() == len(said), "every message to be counted")
        system.wait(system.settled, "every window to be settled")
        system.wait(lambda: system.indexed() == len(system.created()), "every memory to be indexed")
        system.check(said)
