"""A model that fails 30 % of its calls in every way of R10: nothing is lost, and an operator clears the rest."""

from collections import Counter

import orjson
import pytest

from tests.acceptance.failing_model import FORGETTABLE, WAYS, FailingModel
from tests.acceptance.system import Said, System, conversation

WINDOWS_A_USER = 4


def talk(user: str) -> list[Said]:
    """Four windows of a user; there is nothing to keep in the third."""
    said = []
    for window in range(WINDOWS_A_USER):
        word = FORGETTABLE if window == 2 else f"word{window}"
        said += conversation(user, ["A"], 5, start=5 * window, word=word)
    return said


def statuses(system: System) -> Counter[str]:
    return Counter(window.status for _, _, windows in system.threads().values() for window in windows)


def parked(system: System) -> int:
    return len(orjson.loads(system.command("parked", "list", "--json").stdout))


@pytest.mark.parametrize("users", [pytest.param(15, marks=pytest.mark.short), 250])
def test_every_window_is_remembered_skipped_or_parked(users: int) -> None:
    with (
        FailingModel(0.3) as model,
        System(
            extraction_model="openai:fake",
            openai_base_url=model.base_url,
            extraction_retry_seconds=0.2,
            model_timeout_seconds=2,
            scan_seconds=0.2,
        ) as system,
    ):
        system.start("ledger", "extractor", "indexer")
        said = system.publish([one for n in range(users) for one in talk(f"u{n}")])
        system.wait(lambda: system.counted() == len(said), "every message to be counted", 120)
        system.wait(system.settled, "every window to be settled", 600)
        found = statuses(system)
        assert found.total() == users * WINDOWS_A_USER
        assert set(found) <= {"remembered", "skipped", "parked"}
        # In 0.3³ of the windows all attempts may fail, were no broken answer of any use.
        assert found["parked"] < found.total() * 0.1
        system.check(said)
        assert model.failures.total() > 0.1 * model.calls
        if users > 100:
            assert set(model.failures) == set(WAYS)
            assert found["parked"]
        # What is parked is kept whole, and the model, once it is well, clears it.
        model.share = 0
        system.wait(lambda: parked(system) == found["parked"], "the parked windows to be listed")
        system.command("parked", "retry", "--all")
        system.wait(
            lambda: system.settled() and not statuses(system)["parked"], "no window to be parked", 300
        )
        done = statuses(system)
        assert done["skipped"] == users
        assert done["remembered"] == users * (WINDOWS_A_USER - 1)
        system.wait(lambda: system.indexed() == done["remembered"], "every memory to be indexed", 300)
        system.check(said)
        # Nobody but the one model made these memories, and it says so.
        made = {(m.provenance.provider, m.provenance.model, m.provenance.offline) for m in system.created()}
        assert made == {("openai", "fake", False)}
