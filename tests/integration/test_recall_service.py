"""The recall service on real engines: end to end, alone, and with either engine away."""

import asyncio
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from models.commands import Flush, parse_command
from models.topics import CHAT, COMMAND
from streams.partitioner import partition_for
from tests.engines import LocalEngines
from tests.integration.recall_service import PARTITIONS, World, make_world, ready

USER = "지수/1"
SUMMARIES = (
    "지수는 부산에서 언니와 산다",
    "Jisu likes red wine from Portugal",
    "지수의 강아지 이름은 보리다",
)
TERMS = ("부산 언니", "wine Portugal", "강아지 보리")
PAIR = f"/v1/users/{quote(USER, safe='')}/characters/mina"
TASKS = "/v1/admin/tasks"
ASKED = {"user_id": USER, "character_ids": ["mina"], "explain": True}


@pytest.fixture(scope="module")
def own_engines() -> Iterator[LocalEngines]:
    """Engines that a test may stop."""
    with LocalEngines() as running:
        yield running


@pytest.fixture(scope="module")
def world(own_engines: LocalEngines, tmp_path_factory: pytest.TempPathFactory) -> World:
    async def make() -> World:
        made = await make_world(
            tmp_path_factory.mktemp("data"), own_engines.bootstrap, own_engines.database_url
        )
        await made.talk(USER, len(SUMMARIES))
        await made.remember(USER, SUMMARIES, TERMS)
        return made

    return asyncio.run(make())


async def test_it_finds_by_meaning_and_by_word_and_explains(world: World) -> None:
    async with world.served() as client:
        await ready(client)
        for query, best in (
            ("where does she live? 부산", 0),
            ("와인 wine", 1),
            ("what is the dog called? 보리", 2),
        ):
            body = (await client.post("/v1/recall", json={**ASKED, "query": query})).json()
            assert body["memories"][0]["summary"] == SUMMARIES[best]
            assert (body["degraded"], body["offline"], len(body["memories"])) == (None, True, 3)
            for memory in body["memories"]:
                shares = [
                    memory["explain"][path]["share"]
                    for path in ("vector", "keyword")
                    if memory["explain"][path]
                ]
                assert memory["score"] == sum(shares)
        body = (await client.post("/v1/recall", json={**ASKED, "query": "x", "user_id": "another"})).json()
        assert body["memories"] == []


async def test_the_pair_and_its_memories(world: World) -> None:
    async with world.served() as client:
        await ready(client)
        body = (await client.get(PAIR)).json()
        assert body["relationship"]["summary"] == "friends"
        assert (body["memories"], body["last_seq"], body["last_message_at"]) == (3, 3, "2026-01-01T00:00:00Z")
        (thread,) = body["threads"]
        assert thread == {
            "character_ids": ["mina"],
            "last_position": 32,
            "closed_position": 30,
            # No closed window has come to the index: nothing is known to be covered (I11).
            "covered_position": 0,
            "buffered_user_messages": 2,
            "threshold": 5,
            "open": 0,
            "queued": 0,
            "parked": 0,
        }
        first = (await client.get(f"{PAIR}/memories?limit=2")).json()
        rest = (await client.get(f"{PAIR}/memories", params={"limit": 2, "cursor": first["cursor"]})).json()
        summaries = [memory["summary"] for memory in first["memories"] + rest["memories"]]
        assert (summaries, rest["cursor"]) == (list(reversed(SUMMARIES)), None)


async def test_what_is_published_is_in_the_log_and_flush_names_its_end(world: World) -> None:
    message = {
        "message_id": "m1",
        "user_id": USER,
        "character_ids": ["mina"],
        "session_id": "s",
        "role": "user",
        "text": "안녕",
    }
    async with world.served() as client:
        answer = await client.post("/v1/messages", json=[message, {**message, "message_id": "m2"}])
        assert answer.status_code == 200
        first, second = answer.json()["positions"]
        assert first["partition"] == partition_for(USER, PARTITIONS)
        assert second["offset"] == first["offset"] + 1
        flushed = (await client.post(f"{PAIR}/flush")).json()
    consumer = AIOKafkaConsumer(bootstrap_servers=world.bootstrap, group_id=None, enable_auto_commit=False)
    await consumer.start()
    try:
        chat = TopicPartition(CHAT, first["partition"])
        command = TopicPartition(COMMAND, first["partition"])
        consumer.assign([chat, command])
        consumer.seek(chat, second["offset"])
        consumer.seek(command, flushed["position"]["offset"])
        said = await consumer.getone(chat)
        told = await consumer.getone(command)
    finally:
        await consumer.stop()
    assert (said.key, b"m2" in said.value) == (USER.encode(), True)
    flush = parse_command(told.value)
    assert isinstance(flush, Flush)
    assert (flush.command_id, flush.chat_offset) == (flushed["command_id"], second["offset"] + 1)


async def test_the_models_of_tasks_are_assigned(world: World) -> None:
    change = {"task": "consolidation", "model": "openai:local:8b", "fallback": "offline:keepsake-rules"}
    async with world.served() as client:
        answer = await client.put(TASKS, json=change)
        assert answer.status_code == 200
    async with world.served() as client:
        tasks = {one["task"]: one for one in (await client.get(TASKS)).json()["tasks"]}
    assert {name: tasks["consolidation"][name] for name in change} == change
    assert (tasks["consolidation"]["assigned_by"], tasks["insight"]["source"]) == ("api", "default")


async def test_it_starts_and_serves_without_postgresql(world: World, own_engines: LocalEngines) -> None:
    own_engines.stop_postgres()
    try:
        async with world.served() as client:
            body = (await client.post("/v1/recall", json={**ASKED, "query": "wine"})).json()
            assert (body["degraded"], body["memories"]) == ("index_unavailable", [])
            refused = await client.get(TASKS)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")
            await asyncio.to_thread(own_engines.start_postgres)
            await ready(client)
            assert (await client.get(TASKS)).status_code == 200
    finally:
        own_engines.start_postgres()


async def test_it_serves_whatever_is_away_and_recovers(world: World, own_engines: LocalEngines) -> None:
    message = {
        "message_id": "m9",
        "user_id": USER,
        "character_ids": ["mina"],
        "session_id": "s",
        "role": "user",
        "text": "hi",
    }
    own_engines.stop_kafka()
    async with world.served() as client:
        # The view was built by an earlier process: with the log away, memories still open.
        body = (await client.post("/v1/recall", json={**ASKED, "query": "wine"})).json()
        assert (body["degraded"], len(body["memories"])) == (None, 3)
        assert set((await ready(client, 503))["checks"]) == {"kafka", "view"}
        assert (await client.post("/v1/messages", json=message)).status_code == 503
        assert (await client.get("/healthz")).status_code == 200
        await asyncio.to_thread(own_engines.start_kafka)
        await ready(client)
        assert (await client.post("/v1/messages", json=message)).status_code == 200
        await asyncio.to_thread(own_engines.stop_postgres)
        body = (await client.post("/v1/recall", json={**ASKED, "query": "wine"})).json()
        assert (body["degraded"], body["memories"]) == ("index_unavailable", [])
        assert set((await ready(client, 503))["checks"]) == {"database"}
        assert (await client.get(PAIR)).status_code == 503
        await asyncio.to_thread(own_engines.start_postgres)
        await ready(client)
        body = (await client.post("/v1/recall", json={**ASKED, "query": "wine"})).json()
        assert (body["degraded"], len(body["memories"])) == (None, 3)


async def test_a_second_one_in_the_same_directory_is_refused(world: World) -> None:
    async with world.served():
        with pytest.raises(AssertionError, match="ended with 1"):
            async with world.served():
                pass
