"""The index step on real PostgreSQL: any order of arrival, values it does not take, a start without it."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from itertools import permutations
from uuid import NAMESPACE_OID, uuid5

import pytest

from agents.codec import MemoryCipher
from agents.index import REPEAT_SECONDS, Index, IndexBehind
from models.index_rows import CoveredWindow
from models.published import TOKENS, MemoryCreated, MemoryEmbedded, WindowChanged
from models.records import Record
from models.topics import CHANGED, CREATED, EMBEDDED
from sql.index_store import IndexStore
from sql.migrate import migrate
from sql.pool import Pool, create_pool
from tests.engines import LocalEngines
from tests.integration.databases import new_database
from tests.unit.test_embed import PAIRS, SEALER, Counts, DeadList, Keys, World, record, sealed


@pytest.fixture
async def pool(database: LocalEngines) -> AsyncIterator[Pool]:
    dsn = await new_database(database.database_url)
    await migrate(dsn)
    opened = await create_pool(dsn)
    yield opened
    await opened.close()


class Step:
    def __init__(self, pool: Pool, keys: Keys | None = None) -> None:
        self.pool = pool
        self.clock = 0.0
        self.dead = DeadList()
        self.covered: list[CoveredWindow] = []
        self.store = IndexStore(pool)
        self.index = Index(
            self.store,
            MemoryCipher(SEALER, PAIRS),
            keys or Keys(),
            self.dead,
            self,
            Counts(),
            lambda _: None,
            key_seconds=0.05,
            now=lambda: self.clock,
        )

    def report(self, windows: Sequence[CoveredWindow]) -> None:
        self.covered += windows

    async def count(self, table: str, where: str = "true") -> int:
        found: int = await self.pool.fetchval(f"SELECT count(*) FROM {table} WHERE {where}")  # noqa: S608 - a test's own words
        return found


async def test_a_vector_before_its_memory_is_opened_when_the_memory_comes(pool: Pool) -> None:
    step = Step(pool)
    memory = sealed(1)
    world = World()
    opened = world.embedding.open(memory)
    await world.embedding.send_vectors([opened])
    early = Record(EMBEDDED, 0, 0, 0, b"k", world.topic.sent[0].model_dump_json().encode())
    await step.index.handle_batch([early])
    assert await step.count("memory_vectors", "sealed IS NOT NULL") == 1
    await step.index.handle_batch([record(1, memory)])
    assert await step.count("memory_vectors", "embedding IS NOT NULL AND sealed IS NULL") == 1
    assert step.dead.reasons == []
    assert await step.store.applied_offsets() == {(EMBEDDED, 0): 1, (CREATED, 0): 2}


@pytest.mark.parametrize(("state", "reasons"), [("destroyed", []), ("unknown", ["unknown_key"])])
async def test_a_vector_without_a_key(pool: Pool, state: str, reasons: list[str]) -> None:
    memory = sealed(1)
    world = World()
    await world.embedding.send_vectors([world.embedding.open(memory)])
    vector = Record(EMBEDDED, 0, 0, 0, b"k", world.topic.sent[0].model_dump_json().encode())
    step = Step(pool, Keys(state))
    await step.index.handle_batch([record(1, memory), vector])
    assert step.dead.reasons == reasons
    assert (await step.count("user_memories"), await step.count("memory_vectors")) == (1, 0)


async def test_a_vector_of_another_memory_does_not_open(pool: Pool) -> None:
    world = World()
    await world.embedding.send_vectors([world.embedding.open(sealed(1))])
    other = sealed(2)
    moved = world.topic.sent[0].model_copy(update={"memory_id": other.memory_id})
    step = Step(pool)
    vector = Record(EMBEDDED, 0, 0, 0, b"k", moved.model_dump_json().encode())
    await step.index.handle_batch([record(2, other), vector])
    assert step.dead.reasons == ["cannot_open"]


async def test_values_that_the_database_does_not_take_are_a_dead_letter_and_the_rest_is_stored(
    pool: Pool,
) -> None:
    step = Step(pool)
    good = record(1)
    bad = MemoryCreated.model_validate_json(record(2).value or b"").model_copy(update={"importance": 99})
    unknown = MemoryCreated.model_validate_json(record(3).value or b"").memory_id
    nul = MemoryEmbedded(memory_id=unknown, user_id="u1", what="nul\x00", vector=b"?", offline=False)
    await step.index.handle_batch(
        [
            good,
            Record(CREATED, 0, 2, 0, b"k", bad.model_dump_json().encode()),
            Record(EMBEDDED, 0, 5, 0, b"k", nul.model_dump_json().encode()),
        ]
    )
    assert step.dead.reasons == ["rejected", "rejected"]
    assert await step.count("user_memories") == 1
    assert await step.store.applied_offsets() == {(CREATED, 0): 3, (EMBEDDED, 0): 6}


async def test_a_start_without_the_database_is_compared_with_it_before_anything_is_written(
    pool: Pool,
) -> None:
    step = Step(pool)
    await step.store.apply([], {(CREATED, 0): 4})
    step.index.started_unchecked({(CREATED, 0): 7})
    with pytest.raises(IndexBehind):
        await step.index.handle_batch([record(7)])
    assert await step.count("user_memories") == 0
    step.index.started_unchecked({(CREATED, 0): 4})
    await step.index.handle_batch([record(4)])
    assert await step.count("user_memories") == 1


def settled(
    memory: MemoryCreated | None, number: int, *, cast: tuple[str, ...] = ("mina",), offset: int = 0
) -> Record:
    """The record of a window that was remembered as this memory, or skipped."""
    window = WindowChanged(
        user_id="u1",
        character_ids=cast,
        epoch=1,
        number=number,
        request_id=memory.request_id if memory else str(uuid5(NAMESPACE_OID, f"{cast} {number}")),
        version=1,
        status="remembered" if memory else "skipped",
        first_position=number * 10 - 9,
        last_position=number * 10,
        memory_ids=(memory.memory_id,) if memory else (),
        closed_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    return Record(CHANGED, 0, offset, 0, b"k", window.model_dump_json().encode())


def tokens_of(memory: MemoryCreated) -> Record:
    tokens = MemoryEmbedded(memory_id=memory.memory_id, user_id="u1", what=TOKENS, tokens=(), offline=False)
    return Record(EMBEDDED, 0, 0, 0, b"k", tokens.model_dump_json().encode())


@pytest.mark.parametrize("order", list(permutations(("memory", "window", "tokens"))))
async def test_what_is_covered_is_reported_once_it_is_stored(pool: Pool, order: tuple[str, ...]) -> None:
    step = Step(pool)
    sealed_one = sealed(1)
    created = MemoryCreated.model_validate_json(record(1, sealed_one).value or b"")
    records = {
        "memory": record(1, sealed_one),
        "window": settled(created, 7),
        "tokens": tokens_of(created),
    }
    for what in order[:2]:
        await step.index.handle_batch([records[what]])
    assert step.covered == []
    await step.index.handle_batch([records[order[2]]])
    assert step.covered == [CoveredWindow("u1", ("mina",), 1, 7)]


async def numbers_reported(step: Step, *records: Record) -> list[int]:
    """What a batch brings about: the numbers of the windows that are reported, in order."""
    step.covered.clear()
    await step.index.handle_batch(list(records))
    return sorted(window.number for window in step.covered)


async def test_a_report_that_was_lost_is_made_up_for(pool: Pool) -> None:
    step = Step(pool)
    assert await numbers_reported(step, settled(None, 1), settled(None, 2)) == [1, 2]
    assert await numbers_reported(step, settled(None, 3)) == [3]
    # Another thread, and the same again: each is told of itself alone.
    assert await numbers_reported(step, settled(None, 1, cast=("mina", "yuna"))) == [1]
    assert await numbers_reported(step, settled(None, 3)) == [3]
    # Killed between the commit and the report: a new process does not see these records again.
    await Step(pool).index.handle_batch([settled(None, 4), settled(None, 5)])
    after = Step(pool)
    assert await numbers_reported(after, settled(None, 6)) == [1, 2, 3, 4, 5, 6]
    assert await numbers_reported(after, settled(None, 7)) == [7]
    # Cut off by a rebalance: the next assignment.
    after.index.started_unchecked({})
    assert await numbers_reported(after, settled(None, 8)) == [1, 2, 3, 4, 5, 6, 7, 8]
    # Lost by Kafka.
    after.clock = REPEAT_SECONDS - 1
    assert await numbers_reported(after, settled(None, 9)) == [9]
    after.clock = REPEAT_SECONDS
    assert await numbers_reported(after, settled(None, 10)) == list(range(1, 11))
    assert await numbers_reported(after, settled(None, 11)) == [11]


async def test_only_the_last_windows_are_reported_again(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.index.REPEAT_WINDOWS", 3)
    monkeypatch.setattr("agents.index.REPEAT_THREADS", 1)
    await Step(pool).index.handle_batch([settled(None, number) for number in range(1, 9)])
    step = Step(pool)
    assert await numbers_reported(step, settled(None, 9)) == [7, 8, 9]
    assert await numbers_reported(step, settled(None, 1, cast=("yuna",))) == [1]
    assert await numbers_reported(step, settled(None, 10)) == [8, 9, 10]  # the other thread took its place


async def test_a_request_id_that_is_written_otherwise_is_a_dead_letter_and_stops_nothing(pool: Pool) -> None:
    step = Step(pool)
    window = WindowChanged.model_validate_json(settled(None, 1).value or b"")
    odd = window.model_copy(update={"request_id": f"urn:uuid:{window.request_id}"})
    assert await numbers_reported(step, Record(CHANGED, 0, 0, 0, b"k", odd.model_dump_json().encode())) == []
    assert step.dead.reasons == ["invalid_changed"]
    assert await numbers_reported(step, settled(None, 2)) == [2]
