"""The indexer on a real broker and PostgreSQL, as a process: killed, without its database, fed with garbage."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import asyncpg
import orjson
import pytest
from aiokafka import AIOKafkaProducer

from infra.offline_embedder import OFFLINE_MODEL, OfflineEmbedder
from models.candidates import Scope
from models.dead import DeadLetter
from models.published import TOKENS, embedded_key
from models.tokens import query_tokens
from models.topics import CHANGED, CREATED, DEAD, EMBEDDED
from sql.migrate import migrate
from sql.pool import create_pool
from sql.recall_store import RecallStore
from streams.provision import provision_topics
from streams.settings import Settings
from streams.topics import CHANGELOG
from tests.engines import LocalEngines
from tests.integration.brokers import delete_topic
from tests.integration.databases import new_database
from tests.integration.indexer_harness import (
    PARTITIONS,
    FakeLedger,
    IndexerProcess,
    count_rows,
    eventually,
    read_topic,
)

TABLES = ("user_memories", "user_memory_characters", "memory_tokens", "memory_vectors")


@pytest.fixture
def own_engines() -> Iterator[LocalEngines]:
    """Engines of one test: the indexer's group, offsets and topics are its own."""
    with LocalEngines() as running:
        yield running


@dataclass
class World:
    engines: LocalEngines
    dsn: str
    ledger: FakeLedger
    indexer: IndexerProcess

    async def indexed(self, memories: int) -> None:
        """Wait until this many memories are stored, with tokens and vectors."""
        for table in TABLES:

            async def complete(table: str = table) -> bool:
                return await count_rows(self.dsn, table) == memories

            await eventually(complete, f"{memories} rows in {table}\n{self.indexer.log[-3000:]}")
        assert await count_rows(self.dsn, "memory_vectors", "sealed IS NOT NULL") == 0

    async def reasons(self) -> list[str]:
        letters = [
            DeadLetter.model_validate_json(record.value)
            for record in await read_topic(self.engines.bootstrap, DEAD)
        ]
        return sorted(letter.reason for letter in letters)


@pytest.fixture
async def world(own_engines: LocalEngines, tmp_path: Path) -> AsyncIterator[World]:
    settings = Settings(kafka_bootstrap=own_engines.bootstrap, partitions=PARTITIONS)
    await provision_topics(settings, lambda _: None)
    dsn = await new_database(own_engines.database_url)
    await migrate(dsn)
    indexer = IndexerProcess(tmp_path, own_engines.bootstrap, dsn)
    async with AIOKafkaProducer(bootstrap_servers=own_engines.bootstrap, acks="all") as producer:
        try:
            yield World(own_engines, dsn, FakeLedger(producer, tmp_path), indexer)
        finally:
            indexer.kill()


async def test_memories_become_findable_by_meaning_and_by_word(world: World) -> None:
    await world.indexer.start()
    await world.ledger.publish_key("u1", "mina")
    cat = await world.ledger.publish_memory(
        1, "u1", "사용자는 나비라는 고양이를 키운다.", terms=["고양이", "나비"]
    )
    run = await world.ledger.publish_memory(2, "u1", "사용자는 10월에 마라톤을 뛴다.", terms=["마라톤"])
    await world.indexed(2)
    pool = await create_pool(world.dsn)
    embedder = OfflineEmbedder()
    try:
        hashes = [world.ledger.sealer.hash_token("u1", token) for token in query_tokens(["마라톤을"])]
        found = await RecallStore(pool).candidates(
            Scope("u1", ("mina",)),
            query_vector=await embedder.embed_query("내 고양이 이름이 뭐였지?"),
            model=OFFLINE_MODEL,
            token_hashes=hashes,
        )
    finally:
        await embedder.close()
        await pool.close()
    assert [memory.memory_id for memory, _ in found.vector] == [cat, run]
    assert [memory.memory_id for memory, _ in found.keyword] == [run]
    assert found.vector[0][0].offline
    keys = {record.key for record in await read_topic(world.engines.bootstrap, EMBEDDED)}
    assert keys == {embedded_key(name, 0, what) for name in (cat, run) for what in (TOKENS, OFFLINE_MODEL)}
    assert await world.indexer.stop() == 0


async def test_a_key_that_comes_late_is_waited_for_and_a_destroyed_one_passed_over(world: World) -> None:
    await world.indexer.start()
    await world.ledger.publish_memory(1, "late", "The user likes tea.", terms=["tea"])
    await world.ledger.publish_memory(1, "gone", "The user likes coffee.", terms=["coffee"])

    async def stored() -> bool:
        return await count_rows(world.dsn, "user_memories") == 2

    await eventually(stored, "both memories stored, sealed")
    await world.ledger.publish_key("gone", "mina", epoch=2)
    await world.ledger.publish_key("late", "mina")

    async def embedded() -> bool:
        return (
            await count_rows(world.dsn, "memory_vectors") == 1
            and await count_rows(world.dsn, "memory_tokens") == 1
        )

    await eventually(embedded, "vector and tokens of the late one")
    assert await world.reasons() == []
    assert await world.indexer.stop() == 0


async def test_garbage_goes_to_the_dead_letters_and_the_rest_on(world: World) -> None:
    await world.indexer.start()
    await world.ledger.publish_key("u1", "mina")
    for topic in (CREATED, EMBEDDED, CHANGED):
        await world.ledger.publish_raw(topic, "u1", b"garbage", b"\xff\x00{not json")
    tampered = embedded_key(str(uuid4()), 0, TOKENS)
    await world.ledger.publish_raw(EMBEDDED, "u1", tampered, b'{"memory_id": "no uuid"}')
    await world.ledger.publish_memory(1, "u1", "The user likes tea.", terms=["tea"])
    await world.indexed(1)
    # Both agents read memory.created, and each says what it could not read.
    assert await world.reasons() == sorted(
        ["invalid_created"] * 2 + ["invalid_embedded"] * 2 + ["invalid_changed"]
    )
    assert await world.indexer.stop() == 0


@pytest.mark.parametrize(
    "point", ["indexer.before_embedded", "indexer.before_commit", "indexer.after_commit:2"]
)
async def test_a_kill_loses_and_doubles_nothing(world: World, point: str) -> None:
    await world.ledger.publish_key("u1", "mina")
    for number in range(1, 6):
        await world.ledger.publish_memory(number, "u1", f"Fact number {number}.", terms=[f"term{number}"])
    await world.indexer.start(KEEPSAKE_FAULT=point)
    assert await world.indexer.ended() == -9
    await world.indexer.start()
    await world.ledger.publish_memory(6, "u1", "Fact number 6.", terms=["term6"])
    await world.indexed(6)
    assert await world.reasons() == []
    assert await world.indexer.stop() == 0


async def test_an_emptied_database_is_filled_again_without_embedding_again(world: World) -> None:
    await world.ledger.publish_key("u1", "mina")
    await world.indexer.start()
    for number in range(1, 6):
        await world.ledger.publish_memory(number, "u1", f"Fact number {number}.", terms=[f"term{number}"])
    await world.indexed(5)
    assert await world.indexer.stop() == 0
    before = len(await read_topic(world.engines.bootstrap, EMBEDDED))
    connection = await asyncpg.connect(world.dsn)
    await connection.execute("DROP SCHEMA memory CASCADE")
    await connection.close()
    await migrate(world.dsn)
    await world.indexer.start()
    await world.indexed(5)
    assert await world.indexer.stop() == 0
    assert len(await read_topic(world.engines.bootstrap, EMBEDDED)) == before == 10


async def test_embedding_goes_on_while_the_database_is_away_and_nothing_is_lost(world: World) -> None:
    await world.ledger.publish_key("u1", "mina")
    await world.indexer.start()
    await world.ledger.publish_memory(1, "u1", "Fact number 1.", terms=["term1"])
    await world.indexed(1)
    world.engines.stop_postgres()
    for number in range(2, 5):
        await world.ledger.publish_memory(number, "u1", f"Fact number {number}.", terms=[f"term{number}"])

    async def embedded() -> bool:
        return len(await read_topic(world.engines.bootstrap, EMBEDDED)) == 8

    await eventually(embedded, "four tokens and four vectors in the log")
    world.engines.start_postgres()
    await world.indexed(4)
    assert await world.indexer.stop() == 0


async def test_a_topic_that_was_made_anew_is_refused(world: World) -> None:
    connection = await asyncpg.connect(world.dsn)
    await connection.execute("INSERT INTO memory.applied_offsets VALUES ($1, 0, 99)", CREATED)
    await connection.close()
    await world.indexer.start()
    assert await world.indexer.ended() == 1
    assert "drop the schema `memory`" in world.indexer.log


async def test_it_can_be_stopped_while_it_waits_for_the_keys_and_gives_signs_of_life(
    world: World, tmp_path: Path
) -> None:
    await delete_topic(world.engines.bootstrap, CHANGELOG)
    await world.indexer.start()
    beat = tmp_path / "run" / "indexer-0.json"

    async def waiting() -> bool:
        return "The changelog cannot be read" in world.indexer.log and beat.exists()

    await eventually(waiting, "the indexer waits for the changelog")
    assert orjson.loads(beat.read_bytes())["state"] == "starting"
    assert await world.indexer.stop() == 0
    assert not beat.exists()
