"""No hole between memory and recent talk (I11), whatever of the system is away while people talk."""

import pytest

from tests.acceptance.system import Said, System

TURNS = 30


def talk(user: str, characters: tuple[str, ...], turns: int, start: int = 0) -> list[Said]:
    """Turns whose lines can be told apart wherever they are quoted."""
    facts = (
        "I live in Busan with my sister",
        "My dog is called Bori",
        "I work as a nurse",
        "나는 냉면을 좋아해",
    )
    said = []
    for turn in range(start, start + turns):
        text = f"{facts[turn % len(facts)]}, day {turn:03} of {user}"
        said.append(Said(user, characters, text))
        said.append(Said(user, characters, f"I hear you, day {turn:03} of {user}", role="assistant"))
    return said


def context(system: System, user: str, *characters: str, **more: object) -> dict[str, object]:
    body = {
        "user_id": user,
        "character_ids": list(characters),
        "query": "What was that about my dog?",
        "persona": "You are A.",
        **more,
    }
    answer = system.post("/v1/context", body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def messages(answer: dict[str, object]) -> str:
    found = answer["messages"]
    assert isinstance(found, list)
    assert [message["role"] for message in found] == [
        "user" if at % 2 == 0 else "assistant" for at in range(len(found))
    ]
    assert found[-1]["role"] == "user"
    assert "What was that about my dog?" in found[-1]["content"]
    return "\n".join(message["content"] for message in found)


@pytest.mark.short
def test_talk_that_is_not_indexed_yet_is_recent_talk() -> None:
    with System(idle_close_seconds=0, recall_deadline_seconds=5) as system:
        system.start("ledger", "extractor", "recall")
        said = system.publish(talk("u", ("A",), TURNS))
        system.wait(lambda: system.counted() == len(said), "every message to be counted")
        system.wait(system.settled, "every window to be settled")
        assert len(system.created()) == TURNS // 5
        shown = messages(context(system, "u", "A"))
        assert all(one.text in shown for one in said)
        # With a budget the oldest go, and it is told.
        small = context(system, "u", "A", token_budget=600)
        assert small["degraded"] == "talk_dropped"
        assert said[0].text not in messages(small)
        assert said[-1].text in messages(small)

        system.start("indexer")
        pair = "/v1/users/u/characters/A"
        system.wait(
            lambda: system.get(pair).json()["threads"][0]["covered_position"] == len(said),
            "everything to be covered",
        )
        answer = context(system, "u", "A")
        shown = messages(answer)
        # The last six turns beside the memories.
        assert [one.text in shown for one in said] == [at >= len(said) - 12 for at in range(len(said))]
        assert answer["memories"]
        assert "day 001 of u" in str(answer["system"])

        system.kill("indexer")
        more = system.publish(talk("u", ("A",), 12, start=TURNS))
        system.wait(lambda: system.counted() == len(said) + len(more), "the rest to be counted")
        system.wait(system.settled, "the rest to be settled")
        shown = messages(context(system, "u", "A"))
        assert all(one.text in shown for one in more)


def test_there_is_no_hole_while_the_database_is_away() -> None:
    with System(idle_close_seconds=0, recall_deadline_seconds=2) as system:
        system.start("ledger", "extractor", "indexer", "recall")
        said = system.publish(talk("u", ("A",), 10))
        system.wait(lambda: system.counted() == len(said), "the first to be counted")
        system.wait(lambda: system.indexed() == 2, "the first memories to be indexed")
        system.engines.stop_postgres()
        more = system.publish(talk("u", ("A",), 20, start=10))
        system.wait(lambda: system.counted() == len(said) + len(more), "the rest to be counted")
        system.wait(system.settled, "the rest to be settled")
        answer = context(system, "u", "A")
        assert answer["degraded"] in ("index_unavailable", "index_timeout")
        assert answer["memories"] == []
        shown = messages(answer)
        assert all(one.text in shown for one in more)
        system.engines.start_postgres()
        covered = len(said) + len(more)
        system.wait(
            lambda: (
                system.get("/v1/users/u/characters/A").status_code == 200
                and system.get("/v1/users/u/characters/A").json()["threads"][0]["covered_position"] == covered
            ),
            "everything to be covered",
        )
        answer = context(system, "u", "A")
        assert answer["degraded"] is None
        assert answer["memories"]


def test_there_is_no_hole_in_scenes_and_with_a_parked_window() -> None:
    with System(
        idle_close_seconds=0,
        recall_deadline_seconds=5,
        extraction_attempts=1,
        extraction_model="openai:none",
        openai_base_url="http://127.0.0.1:9/v1",
    ) as system:
        system.start("ledger", "extractor", "indexer", "recall")
        alone = system.publish(talk("u", ("A",), 10))
        scene = system.publish(talk("u", ("A", "B"), 10, start=50))
        total = len(alone) + len(scene)
        system.wait(lambda: system.counted() == total, "every message to be counted")
        system.wait(
            lambda: system.get("/v1/users/u/characters/A").json()["threads"][0]["parked"] >= 2,
            "the windows to be parked",
        )
        shown = messages(context(system, "u", "A"))
        assert all(one.text in shown for one in (*alone, *scene))
        # B was not there when A and the user were alone.
        of_b = messages(context(system, "u", "B"))
        assert all(one.text in of_b for one in scene)
        assert not any(one.text in of_b for one in alone)
        several = context(system, "u", "A", "B")
        assert "know nothing of it" in str(several["system"])
        assert "know nothing of it" not in str(context(system, "u", "A")["system"])
