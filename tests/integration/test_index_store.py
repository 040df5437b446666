import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.index_rows import CreatedRow, IndexRow, RelationshipRow, VectorRow, WindowRow
from models.published import RelationshipChanged, WindowChanged
from models.store_errors import StoreRejected
from sql.index_store import IndexStore, token_key
from sql.migrate import migrate
from sql.pool import Pool, create_pool
from tests.engines import LocalEngines
from tests.integration.databases import (
    MODEL,
    created_row,
    memory_name,
    new_database,
    token_hash,
    tokens_row,
    unit_vector,
    vector_row,
)

TABLES = {
    "user_memories": "id",
    "user_memory_characters": "memory_id, character_id",
    "memory_tokens": "memory_id",
    "memory_vectors": "memory_id, embedding_model",
    "character_relationship_states": "user_id, character_id",
    "closed_windows": "user_id, character_ids, epoch, number",
    "applied_offsets": "topic, partition",
}


@pytest.fixture
async def pool(database: LocalEngines) -> AsyncIterator[Pool]:
    dsn = await new_database(database.database_url)
    await migrate(dsn)
    opened = await create_pool(dsn)
    yield opened
    await opened.close()


async def contents(pool: Pool) -> dict[str, list[tuple[object, ...]]]:
    found: dict[str, list[tuple[object, ...]]] = {}
    for table, order in TABLES.items():
        rows = await pool.fetch(f"SELECT * FROM {table} ORDER BY {order}")  # noqa: S608  # names of our own
        found[table] = [
            tuple(str(value) for name, value in row.items() if name != "indexed_at") for row in rows
        ]
    return found


def window(number: int, version: int, status: str, offset: int) -> WindowRow:
    return WindowRow(
        WindowChanged.model_validate(
            {
                "user_id": "u1",
                "character_ids": ("mina",),
                "epoch": 1,
                "number": number,
                "request_id": memory_name(number),
                "version": version,
                "status": status,
                "first_position": number,
                "last_position": number,
                "closed_at": datetime(2026, 1, 1, tzinfo=UTC),
            }
        ),
        offset,
    )


def relationship(epoch: int, version: int, payload: bytes | None, offset: int) -> RelationshipRow:
    changed = RelationshipChanged(
        user_id="u1", character_id="mina", epoch=epoch, version=version, payload=payload
    )
    return RelationshipRow(changed, offset)


# Two records of each memory, tokens and vectors of two versions, a vector sealed first and opened later.
ROWS: tuple[IndexRow, ...] = (
    created_row(1, offset=1, owners={"mina": 1, "yuna": 4}, payload=b"first"),
    created_row(1, offset=9, owners={"mina": 1}, payload=b"second"),
    created_row(2, offset=2, owners={"mina": 2}),
    tokens_row(1, "aa", "bb", offset=1),
    tokens_row(1, "cc", offset=7),
    tokens_row(1, "dd", version=1, offset=3),
    tokens_row(2, offset=4),
    vector_row(1, None, offset=5),
    vector_row(1, unit_vector(1), offset=5),
    vector_row(1, unit_vector(2), offset=6),
    vector_row(1, unit_vector(3), model="model-b", offset=5),
    vector_row(2, None, version=1, offset=8),
    vector_row(2, unit_vector(4), offset=7),
    window(1, 1, "parked", 11),
    window(1, 2, "queued", 12),
    window(1, 3, "remembered", 13),
    relationship(1, 5, b"old", 14),
    relationship(2, 1, b"new", 15),
    relationship(2, 1, None, 16),
)


@st.composite
def deliveries(draw: st.DrawFn) -> list[list[IndexRow]]:
    """All rows in any order, some of them several times, cut into batches anywhere."""
    again = draw(st.lists(st.sampled_from(ROWS), max_size=12))
    rows = draw(st.permutations([*ROWS, *again]))
    cuts = sorted(draw(st.sets(st.integers(0, len(rows)), max_size=5)))
    return [rows[start:end] for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True)]


class Opened:
    """A store in a loop of its own: hypothesis calls plain functions."""

    def __init__(self, url: str) -> None:
        self.runner = asyncio.Runner()
        self.runner.run(self._open(url))

    async def _open(self, url: str) -> None:
        dsn = await new_database(url)
        await migrate(dsn)
        self.pool = await create_pool(dsn)
        self.store = IndexStore(self.pool)

    async def outcome(self, batches: Sequence[Sequence[IndexRow]]) -> dict[str, list[tuple[object, ...]]]:
        await self.pool.execute(f"TRUNCATE {', '.join(TABLES)}")
        for batch in batches:
            await self.store.apply(batch, {("memory.created", 0): 10})
        return await contents(self.pool)

    def close(self) -> None:
        self.runner.run(self.pool.close())
        self.runner.close()


@pytest.fixture(scope="module")
def opened(database: LocalEngines) -> Iterator[Opened]:
    made = Opened(database.database_url)
    yield made
    made.close()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=deliveries())
def test_any_order_and_any_number_of_times_end_in_the_same_rows(
    opened: Opened, batches: list[list[IndexRow]]
) -> None:
    expected = opened.runner.run(opened.outcome([ROWS]))
    assert opened.runner.run(opened.outcome(batches)) == expected
    assert [row[0] for row in expected["user_memory_characters"]] == sorted([memory_name(1), memory_name(2)])


async def test_the_highest_version_and_then_the_later_record_wins(pool: Pool) -> None:
    await IndexStore(pool).apply(ROWS, {})
    [memory] = await pool.fetch("SELECT * FROM user_memories WHERE id = $1", memory_name(1))
    assert memory["payload"] == b"second"
    owners = await pool.fetch(
        "SELECT character_id FROM user_memory_characters WHERE memory_id = $1", memory_name(1)
    )
    assert [row["character_id"] for row in owners] == ["mina"]
    tokens = await pool.fetchval("SELECT tokens FROM memory_tokens WHERE memory_id = $1", memory_name(1))
    assert tokens == [token_key(token_hash("dd"))]
    [state] = await pool.fetch("SELECT * FROM character_relationship_states")
    assert (state["epoch"], state["version"], state["payload"]) == (2, 1, None)
    assert await pool.fetchval("SELECT status FROM closed_windows") == "remembered"


async def test_rows_and_offsets_are_all_or_nothing(pool: Pool) -> None:
    store = IndexStore(pool)
    await store.apply([created_row(1)], {("memory.created", 0): 5})
    bad = created_row(2, user="with\x00nul")
    with pytest.raises(StoreRejected):
        await store.apply([created_row(3), bad], {("memory.created", 0): 9})
    assert await pool.fetchval("SELECT count(*) FROM user_memories") == 1
    assert await store.applied_offsets() == {("memory.created", 0): 5}


async def test_an_offset_never_goes_back(pool: Pool) -> None:
    store = IndexStore(pool)
    await store.apply([], {("memory.created", 0): 9, ("memory.changed", 1): 3})
    await store.apply([], {("memory.created", 0): 4})
    assert await store.applied_offsets() == {("memory.created", 0): 9, ("memory.changed", 1): 3}


async def test_a_vector_that_came_first_can_be_opened_once_its_memory_is_there(pool: Pool) -> None:
    store = IndexStore(pool)
    await store.apply([vector_row(1, None, offset=5)], {})
    assert await store.sealed_memories([memory_name(1)]) == {}
    await store.apply([created_row(1, owners={"yuna": 3, "mina": 8})], {})
    memory = (await store.sealed_memories([memory_name(1)]))[memory_name(1)]
    assert [owner.character_id for owner in memory.characters] == ["yuna", "mina"]
    [waiting] = await store.sealed_vectors([memory_name(1)])
    assert waiting == vector_row(1, None, offset=5)
    await store.apply([vector_row(1, unit_vector(1), offset=5)], {})
    assert await store.sealed_vectors([memory_name(1)]) == []


async def test_memories_without_a_vector_of_the_model_are_found(pool: Pool) -> None:
    store = IndexStore(pool)
    rows: list[CreatedRow | VectorRow] = [created_row(number) for number in range(1, 8)]
    rows += [
        vector_row(1, unit_vector(1)),
        vector_row(2, None),
        vector_row(3, unit_vector(3), model="model-b"),
    ]
    await store.apply(rows, {})
    first = await store.without_vector(MODEL, [0], limit=4)
    rest = await store.without_vector(MODEL, [0], after=first[-1].memory_id)
    expected = sorted(memory_name(number) for number in range(2, 8))
    assert [memory.memory_id for memory in [*first, *rest]] == expected
    assert await store.without_vector(MODEL, [1]) == []
