"""Recall is a process of its own: with all workers stopped its answers are the same (R48)."""

import pytest

from tests.acceptance.system import System, conversation

QUERIES = ("Busan", "what is my dog called?", "냉면", "nurse", "something never said")


@pytest.mark.short
def test_the_same_answers_with_all_workers_stopped() -> None:
    with System() as system:
        system.start("ledger", "extractor", "indexer", "recall")
        said = [
            *system.publish(conversation("u", ["A"], 15)),
            *system.publish(conversation("u", ["A", "B"], 6)),
            *system.publish(conversation("w", ["A"], 5)),
        ]
        system.wait(lambda: system.counted() == len(said), "every message to be counted")
        system.wait(system.settled, "every window to be settled")
        system.wait(lambda: system.indexed() == len(system.created()), "every memory to be indexed")
        before = [system.recall("u", ["A"], query, explain=True) for query in QUERIES]
        pair = system.get("/v1/users/u/characters/A").json()
        assert {thread["character_ids"][-1] for thread in pair["threads"]} == {"A", "B"}
        for role in ("ledger", "extractor", "indexer"):
            assert system.stop(role) == 0
        assert [system.recall("u", ["A"], query, explain=True) for query in QUERIES] == before
        system.kill("recall")
        system.start("recall")
        assert [system.recall("u", ["A"], query, explain=True) for query in QUERIES] == before
        assert system.get("/v1/users/u/characters/A").json() == pair
        assert all(answer["memories"] for answer in before)
        # A memory that two characters share is found by both; nobody else's is.
        of_b = system.recall("u", ["B"], "Busan")["memories"]
        assert isinstance(of_b, list)
        assert len(of_b) == 1
        assert {ref["character_id"] for ref in of_b[0]["characters"]} == {"A", "B"}
        assert system.recall("nobody", ["A"], "Busan")["memories"] == []
        assert system.recall("u", ["Z"], "Busan")["memories"] == []
