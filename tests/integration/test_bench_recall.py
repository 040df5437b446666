"""The benchmark of recall, small: that it loads what the service opens, and asks service and baseline alike."""

import asyncio
from collections.abc import Iterator

import asyncpg
import pytest

from tests.bench.beside import plan, writing
from tests.bench.compared import compared, user_of
from tests.bench.population import LARGEST, Population, skewed
from tests.bench.recall import exactness, measured_sizes, populated, taking_turns
from tests.bench.talk import queries
from tests.engines import LocalEngines
from tests.integration.recall_service import World, make_world

MEMORIES = 2_000
SIZES = measured_sizes(MEMORIES)


@pytest.fixture(scope="module")
def own_engines() -> Iterator[LocalEngines]:
    """With the topics of a deployment, which the shared broker has but once."""
    with LocalEngines() as running:
        yield running


@pytest.fixture(scope="module")
def loaded(own_engines: LocalEngines, tmp_path_factory: pytest.TempPathFactory) -> tuple[World, Population]:
    async def make() -> tuple[World, Population]:
        world = await make_world(
            tmp_path_factory.mktemp("data"), own_engines.bootstrap, own_engines.database_url
        )
        return world, await populated(world, MEMORIES)

    return asyncio.run(make())


def test_sizes_add_up_and_are_skewed() -> None:
    sizes = skewed(100_000, 2_000)
    assert abs(sum(sizes) - 100_000) < 500
    assert (len(sizes), sizes) == (2_000, sorted(sizes, reverse=True))
    assert sizes[0] == LARGEST
    assert sizes[1_000] < 50 < sizes[100]
    assert sizes[-1] >= 1


async def test_every_row_is_stored(loaded: tuple[World, Population]) -> None:
    world, population = loaded
    assert len(population) == pytest.approx(MEMORIES, rel=0.05)
    connection = await asyncpg.connect(world.database_url)
    try:
        sizes = await connection.fetch(
            "SELECT c.user_id, count(*) FROM memory.user_memory_characters c "
            "JOIN memory.user_memories m ON m.id = c.memory_id AND m.user_id = c.user_id "
            "JOIN memory.memory_tokens t ON t.memory_id = c.memory_id "
            "JOIN memory.memory_vectors v ON v.memory_id = c.memory_id AND v.user_id = c.user_id "
            "WHERE v.embedding IS NOT NULL GROUP BY c.user_id"
        )
        [indexes] = await connection.fetch(
            "SELECT count(*) FROM pg_indexes WHERE schemaname = 'memory' AND indexdef LIKE '%USING gin (tokens)%'"
        )
    finally:
        await connection.close()
    assert {row[0]: row[1] for row in sizes} == {pair.user: pair.size for pair in population.pairs}
    assert indexes[0] == 1


async def test_the_vector_path_is_exact(loaded: tuple[World, Population]) -> None:
    assert await exactness(*loaded, SIZES) == dict.fromkeys(SIZES, 1.0)


async def test_service_and_baseline_are_asked_alike(loaded: tuple[World, Population]) -> None:
    world, _ = loaded
    async with compared(world, SIZES) as services:
        for size in SIZES:
            for query in queries():
                answered = await services.service(size)(query)
                candidates = await services.bare(size)(query)
                # The service ranks what the SQL gives: with other arguments there would be others among it.
                assert set(answered) <= set(candidates)
                assert answered == await services.newcomer(size)(query)
        times = await taking_turns(
            {"plain": services.service(200), "explain": services.service(200, explain=True)}, rounds=2
        )
        assert {name: len(each) for name, each in times.items()} == dict.fromkeys(times, 2 * len(queries()))
        lines = await plan(world.database_url, services.arguments[user_of(200), queries()[0]])
    assert any("memory_vectors_scope" in line for line in lines)
    assert "Execution Time" in lines[-1]


async def test_the_writer_writes(loaded: tuple[World, Population]) -> None:
    world, _ = loaded
    async with writing(world.database_url) as written:
        assert await written.count() > 0
