import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.candidates import Candidate, Candidates, Coverage, InvalidCursor, Scope
from models.index_rows import IndexRow, RelationshipRow, WindowRow
from models.published import RelationshipChanged, WindowChanged
from sql.index_store import IndexStore
from sql.migrate import migrate
from sql.pool import Pool, create_pool
from sql.recall_store import RecallStore
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


@pytest.fixture
async def pool(database: LocalEngines) -> AsyncIterator[Pool]:
    dsn = await new_database(database.database_url)
    await migrate(dsn)
    opened = await create_pool(dsn)
    yield opened
    await opened.close()


@pytest.fixture
def index(pool: Pool) -> IndexStore:
    return IndexStore(pool)


@pytest.fixture
def recall(pool: Pool) -> RecallStore:
    return RecallStore(pool)


MINA = Scope("u1", ("mina",))


async def find(
    recall: RecallStore,
    *characters: str,
    vector: Sequence[float] | None = None,
    tokens: Sequence[str] = (),
    model: str = MODEL,
    limit: int = 20,
    slots: int = 2,
    **filters: Any,
) -> Candidates:
    return await recall.candidates(
        replace(MINA, character_ids=characters or ("mina",), **filters),
        query_vector=vector,
        model=model,
        token_hashes=[token_hash(token) for token in tokens],
        limit=limit,
        slots=slots,
    )


def numbers(found: Sequence[Candidate] | Sequence[tuple[Candidate, float]]) -> list[int]:
    """The numbers that the memories were made with: their first positions."""
    memories = [hit[0] if isinstance(hit, tuple) else hit for hit in found]
    return [memory.source.first_position for memory in memories]


async def test_the_nearest_are_exact_within_the_scope(index: IndexStore, recall: RecallStore) -> None:
    rows: list[IndexRow] = []
    for number in range(1, 301):
        # Every other memory is another user's, and far more of theirs are near.
        rows.append(created_row(number, user="u1" if number % 10 == 0 else "u2"))
        rows.append(vector_row(number, unit_vector(number)))
    await index.apply(rows, {})
    query = unit_vector(1_000)
    found = await find(recall, vector=query)
    similarity = {n: float(np.dot(query, unit_vector(n))) for n in range(10, 301, 10)}
    expected = sorted(similarity, key=lambda n: -similarity[n])[:20]
    assert numbers(found.vector) == expected
    assert [score for _, score in found.vector] == pytest.approx([similarity[n] for n in expected], abs=2e-3)


async def test_vectors_of_another_model_are_never_compared(index: IndexStore, recall: RecallStore) -> None:
    rows: list[IndexRow] = [created_row(1), created_row(2), created_row(3)]
    rows += [
        vector_row(1, unit_vector(1), model="model-b"),
        vector_row(2, unit_vector(2)),
        vector_row(3, None),
    ]
    await index.apply(rows, {})
    assert numbers((await find(recall, vector=unit_vector(1))).vector) == [2]
    assert numbers((await find(recall, vector=unit_vector(1), model="model-b")).vector) == [1]
    assert (await find(recall, vector=None)).vector == ()


async def test_keywords_find_any_token_most_matches_first_ties_newest(
    index: IndexStore, recall: RecallStore
) -> None:
    rows: list[IndexRow] = [created_row(number) for number in range(1, 6)]
    rows += [
        tokens_row(1, "aa", "bb"),
        tokens_row(2, "aa"),
        tokens_row(3, "aa", "zz"),
        tokens_row(4, "zz"),
        tokens_row(5),
    ]
    await index.apply(rows, {})
    found = await find(recall, tokens=["aa", "bb", "cc"])
    assert numbers(found.keyword) == [1, 3, 2]
    assert (await find(recall, tokens=[])).keyword == ()
    assert numbers((await find(recall, tokens=["zz"], limit=1)).keyword) == [4]


async def test_a_shared_memory_is_found_by_both_and_once(index: IndexStore, recall: RecallStore) -> None:
    await index.apply(
        [
            created_row(1, owners={"yuna": 7, "mina": 2}),
            created_row(2, owners={"mina": 3}),
            created_row(3, owners={"other": 1}),
            vector_row(1, unit_vector(1)),
            tokens_row(1, "aa"),
        ],
        {},
    )
    found = await find(recall, "mina", "yuna", "nobody", vector=unit_vector(1), tokens=["aa"])
    assert numbers(found.recent) == [2, 1]
    assert (numbers(found.vector), numbers(found.keyword)) == ([1], [1])
    shared = found.recent[1]
    assert [(owner.character_id, owner.seq) for owner in shared.characters] == [("yuna", 7), ("mina", 2)]
    assert found.max_seq == {"mina": 3, "yuna": 7}
    assert numbers((await find(recall, "yuna")).recent) == [1]
    assert numbers((await find(recall, "mina")).recent) == [2, 1]


async def test_the_most_important_qualify_ties_newest_first(index: IndexStore, recall: RecallStore) -> None:
    levels = [6, 9, 5, 9, 9, 10, 6]
    rows = [created_row(number, importance=level) for number, level in enumerate(levels, 1)]
    await index.apply(rows, {})
    assert numbers((await find(recall)).important) == [6, 5]
    assert numbers((await find(recall, slots=9)).important) == [6, 5, 4, 2, 7, 1]
    assert (await find(recall, slots=0)).important == ()


async def test_filters_come_before_the_paths(index: IndexStore, recall: RecallStore) -> None:
    days = [date(2026, 6, day) for day in (27, 28, 29, 30)] + [date(2026, 7, 1)]
    rows: list[IndexRow] = []
    for number, day in enumerate(days, 1):
        rows.append(created_row(number, day=day, kind="log" if number == 4 else "window", importance=8))
        rows += [vector_row(number, unit_vector(number)), tokens_row(number, "aa")]
    await index.apply(rows, {})
    june: dict[str, Any] = {"date_from": date(2026, 6, 28), "date_to": date(2026, 6, 30)}
    found = await find(recall, vector=unit_vector(5), tokens=["aa"], limit=2, **june)
    for path in (
        numbers(found.vector),
        numbers(found.keyword),
        numbers(found.recent),
        numbers(found.important),
    ):
        assert len(path) == 2
        assert set(path) <= {2, 3, 4}
    assert found.max_seq == {"mina": 5}
    assert numbers((await find(recall, kinds=("log",), **june)).recent) == [4]


async def test_an_offline_vector_or_text_is_told(index: IndexStore, recall: RecallStore) -> None:
    await index.apply([created_row(1), created_row(2), vector_row(1, unit_vector(1), offline=True)], {})
    assert [memory.offline for memory in (await find(recall)).recent] == [False, True]
    assert [memory.offline for memory in (await find(recall, model="another")).recent] == [False, False]


async def test_pages_hold_every_memory_once_while_others_are_added(
    index: IndexStore, recall: RecallStore
) -> None:
    await index.apply([created_row(number) for number in range(1, 24)], {})
    seen: list[int] = []
    cursor: str | None = None
    for turn in range(100):
        page = await recall.memories_page(MINA, limit=5, cursor=cursor)
        seen += numbers(page.memories)
        cursor = page.cursor
        if cursor is None:
            break
        await index.apply([created_row(100 + turn)], {})
    assert seen == list(range(23, 0, -1))


async def test_pages_are_filtered_and_a_foreign_cursor_is_refused(
    index: IndexStore, recall: RecallStore
) -> None:
    await index.apply([created_row(1), created_row(2, kind="log"), created_row(3, user="u2")], {})
    page = await recall.memories_page(replace(MINA, kinds=("log",)))
    assert (numbers(page.memories), page.cursor) == ([2], None)
    assert (await recall.memories_page(replace(MINA, date_from=date(2027, 1, 1)))).memories == ()
    for cursor in ("%%%", "bm9uZQ", "WyIyMDI2LTAxLTAxIiwgIngiXQ", "한글"):
        with pytest.raises(InvalidCursor):
            await recall.memories_page(MINA, cursor=cursor)


async def test_a_pair_is_summed_up(index: IndexStore, recall: RecallStore) -> None:
    empty = await recall.pair_summary("u1", "mina")
    assert (empty.memories, empty.last_seq, empty.last_memory_at, empty.relationship) == (0, 0, None, None)
    state = RelationshipChanged(user_id="u1", character_id="mina", epoch=1, version=4, payload=b"sealed")
    await index.apply([created_row(1), created_row(2), RelationshipRow(state, 1)], {})
    summary = await recall.pair_summary("u1", "mina")
    assert (summary.memories, summary.last_seq) == (2, 2)
    assert summary.last_memory_at == created_row(2).memory.created_at
    assert summary.relationship is not None
    assert (summary.relationship.payload, summary.relationship.version) == (b"sealed", 4)


def closed(
    number: int, status: str, *memories: int, cast: tuple[str, ...] = ("mina",), epoch: int = 1
) -> WindowRow:
    """The `number`-th window, of ten messages."""
    changed = WindowChanged.model_validate(
        {
            "user_id": "u1",
            "character_ids": cast,
            "epoch": epoch,
            "number": number,
            "request_id": memory_name(number),
            "version": 1,
            "status": status,
            "first_position": number * 10 - 9,
            "last_position": number * 10,
            "reason": "invalid_output" if status == "parked" else None,
            "attempts": 3,
            "memory_ids": [memory_name(memory) for memory in memories],
            "closed_at": datetime(2026, 1, number, tzinfo=UTC),
        }
    )
    return WindowRow(changed, number)


async def test_covered_are_skipped_windows_and_those_whose_memory_has_tokens(
    index: IndexStore, recall: RecallStore
) -> None:
    async def covered() -> int:
        return (await recall.coverage("u1", ["mina"], 1)).position

    assert await covered() == 0
    await index.apply([closed(1, "skipped"), closed(2, "remembered", 2), closed(4, "skipped")], {})
    assert await covered() == 10
    await index.apply([created_row(2)], {})
    assert await covered() == 10
    await index.apply([tokens_row(2)], {})
    assert await covered() == 20  # window 3 is not reported yet
    coverage = await recall.coverage("u1", ["mina"], 1)
    assert coverage == Coverage(20, ((31, 40),))
    assert [position in coverage for position in (1, 20, 21, 30, 31, 40, 41)] == [
        *(True, True, False, False),
        *(True, True, False),
    ]
    await index.apply([closed(3, "parked")], {})
    assert await covered() == 20
    await index.apply([WindowRow(closed(3, "skipped").changed.model_copy(update={"version": 2}), 3)], {})
    assert await covered() == 40
    assert (await recall.coverage("u1", ["mina"], 2)).position == 0
    assert (await recall.coverage("u1", ["mina", "yuna"], 1)).position == 0


async def test_tokens_before_their_memory_cover_nothing(index: IndexStore, recall: RecallStore) -> None:
    await index.apply([closed(1, "remembered", 1), tokens_row(1)], {})
    assert (await recall.coverage("u1", ["mina"], 1)).position == 0


async def test_a_scene_is_a_thread_whatever_the_order_of_its_cast(
    index: IndexStore, recall: RecallStore
) -> None:
    await index.apply([closed(1, "skipped", cast=("mina", "yuna"))], {})
    assert (await recall.coverage("u1", ["yuna", "mina"], 1)).position == 10


async def test_parked_windows_are_listed_oldest_first(index: IndexStore, recall: RecallStore) -> None:
    await index.apply([closed(3, "parked"), closed(1, "parked"), closed(2, "skipped")], {})
    parked = await recall.parked_windows()
    assert [(row.number, row.reason, row.attempts) for row in parked] == [
        (1, "invalid_output", 3),
        (3, "invalid_output", 3),
    ]
    assert parked[0].character_ids == ("mina",)


async def test_a_rare_token_says_more_than_a_common_one(index: IndexStore, recall: RecallStore) -> None:
    rows: list[IndexRow] = [created_row(number) for number in range(1, 11)]
    rows += [tokens_row(number, "common", "usual") for number in range(2, 11)]
    rows.append(tokens_row(1, "rare"))
    await index.apply(rows, {})
    found = await find(recall, tokens=["common", "rare"])
    assert numbers(found.keyword) == [1, *range(10, 1, -1)]
    # Within the scope: nine of ten have it, whatever others have.
    assert found.keyword[1][1] == pytest.approx(math.log(1 + (10 - 9 + 0.5) / (9 + 0.5)), abs=1e-6)
    assert numbers((await find(recall, tokens=["common", "usual", "rare"])).keyword)[0] == 1


async def test_tokens_find_only_what_is_in_scope(index: IndexStore, recall: RecallStore) -> None:
    await index.apply(
        [
            created_row(1),
            created_row(2, owners={"yuna": 1}),
            created_row(3, user="u2"),
            *(tokens_row(number, "aa") for number in (1, 2, 3)),
        ],
        {},
    )
    assert numbers((await find(recall, tokens=["aa"])).keyword) == [1]


async def test_a_category_is_a_filter(index: IndexStore, recall: RecallStore) -> None:
    await index.apply(
        [
            created_row(1, category="food", kind="log"),
            created_row(2, category="work", kind="log"),
            created_row(3),
        ],
        {},
    )
    assert numbers((await find(recall, categories=("food",))).recent) == [1]
    assert numbers((await find(recall, categories=("food", "work"))).recent) == [2, 1]
    page = await recall.memories_page(replace(MINA, categories=("work",)))
    assert numbers(page.memories) == [2]
    assert numbers(await everything(recall, replace(MINA, categories=("work",)))) == [2]


async def everything(recall: RecallStore, scope: Scope, limit: int = 2) -> list[Candidate]:
    """All pages of mode exhaustive."""
    found: list[Candidate] = []
    cursor: str | None = None
    while True:
        page = await recall.exhaustive(scope, limit=limit, cursor=cursor)
        assert len(page.memories) <= limit
        found += page.memories
        cursor = page.cursor
        if cursor is None:
            return found


async def test_a_period_holds_everything_of_its_days_once(index: IndexStore, recall: RecallStore) -> None:
    days = [date(2026, 6, day) for day in (27, 30, 29, 29, 28)] + [date(2026, 7, 1)]
    await index.apply(
        [
            created_row(number, day=day, owners={"mina": number, "yuna": number})
            for number, day in enumerate(days, 1)
        ],
        {},
    )
    june = Scope("u1", ("mina", "yuna"), date_from=date(2026, 6, 28), date_to=date(2026, 6, 30))
    for limit in (1, 2, 3, 50):
        assert numbers(await everything(recall, june, limit)) == [5, 3, 4, 2]
    assert numbers(await everything(recall, replace(june, character_ids=("nobody",)))) == []


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_pages_of_a_period_miss_nothing_and_repeat_nothing_while_others_come(
    pool: Pool, data: st.DataObject
) -> None:
    await pool.execute("TRUNCATE user_memories CASCADE")
    store, recall = IndexStore(pool), RecallStore(pool)
    day = st.integers(1, 28).map(lambda number: date(2026, 6, number))
    before = data.draw(st.lists(day, min_size=1, max_size=12))
    await store.apply([created_row(number, day=one) for number, one in enumerate(before, 1)], {})
    limit = data.draw(st.integers(1, 5))
    seen: list[int] = []
    cursor, number = None, len(before)
    while True:
        page = await recall.exhaustive(MINA, limit=limit, cursor=cursor)
        seen += numbers(page.memories)
        cursor = page.cursor
        if cursor is None:
            break
        if number < 30:
            number += 1
            await store.apply([created_row(number, day=data.draw(day))], {})
    assert len(seen) == len(set(seen))
    assert set(range(1, len(before) + 1)) <= set(seen)


async def test_a_cursor_is_of_one_request(index: IndexStore, recall: RecallStore) -> None:
    await index.apply([created_row(number) for number in range(1, 5)], {})
    page = await recall.exhaustive(MINA, limit=1, cursor=None)
    assert page.cursor is not None
    for other in (replace(MINA, user_id="u2"), replace(MINA, kinds=("log",))):
        with pytest.raises(InvalidCursor, match="another request"):
            await recall.exhaustive(other, limit=1, cursor=page.cursor)
    with pytest.raises(InvalidCursor):
        await recall.memories_page(MINA, cursor=page.cursor)


async def test_every_memory_in_scope_is_told_with_what_is_known_of_it(
    index: IndexStore, recall: RecallStore
) -> None:
    await index.apply(
        [
            created_row(1, day=date(2026, 6, 1)),
            created_row(2, day=date(2026, 6, 30), kind="log"),
            created_row(3, day=date(2026, 6, 30), source_mode="story"),
            created_row(4, day=date(2026, 7, 2), owners={"mina": 4, "yuna": 4}),
            created_row(5, user="u2"),
            vector_row(1, unit_vector(1)),
            vector_row(3, unit_vector(3), model="another"),
        ],
        {},
    )
    scope = Scope("u1", ("mina", "yuna"), date_to=date(2026, 6, 30), source_modes=("story",))
    asked: dict[str, Any] = {"query_vector": unit_vector(1), "model": MODEL, "limit": 3}
    first = await recall.in_scope(scope, **asked, cursor=None)
    second = await recall.in_scope(scope, **asked, cursor=first.cursor)
    assert second.cursor is None
    told = [*first.memories, *second.memories]
    assert numbers([one.memory for one in told]) == [4, 3, 2, 1]
    assert [one.filtered for one in told] == ["date_to", None, "source_modes", "source_modes"]
    assert [one.embedded for one in told] == [False, False, False, True]
    assert told[3].similarity == pytest.approx(1, abs=1e-3)
    assert (await recall.in_scope(replace(scope, kinds=("window",)), **asked, cursor=None)).memories[
        2
    ].filtered == "kinds"


async def test_plans_are_found_by_their_day(index: IndexStore, recall: RecallStore) -> None:
    rows = [created_row(number, owners={"mina": number, "yuna": number}) for number in range(1, 5)]
    for number, days in ((1, (date(2026, 7, 1),)), (2, (date(2026, 7, 3), date(2026, 8, 1))), (3, ())):
        memory = rows[number - 1].memory.model_copy(update={"plan_dates": days})
        rows[number - 1] = replace(rows[number - 1], memory=memory)
    await index.apply(rows, {})
    both = ("mina", "yuna")
    assert numbers(await recall.with_plans("u1", both, date(2026, 7, 1), date(2026, 7, 3), 9)) == [2, 1]
    assert numbers(await recall.with_plans("u1", both, date(2026, 7, 1), date(2026, 7, 3), 1)) == [2]
    assert numbers(await recall.with_plans("u1", both, date(2026, 7, 2), date(2026, 7, 2), 9)) == []
    assert numbers(await recall.with_plans("u2", both, date(2026, 7, 1), date(2026, 7, 3), 9)) == []


async def test_windows_are_covered_by_memory_or_request(index: IndexStore) -> None:
    await index.apply([closed(1, "skipped"), closed(2, "remembered", 2), closed(3, "parked")], {})
    requests = [closed(number, "skipped").changed.request_id for number in (1, 2, 3)]
    assert [window.number for window in await index.covered([], requests)] == [1]
    assert await index.covered([memory_name(2)], []) == []
    await index.apply([created_row(2), tokens_row(2)], {})
    assert [window.number for window in await index.covered([memory_name(2), memory_name(9)], [])] == [2]
    assert sorted(window.number for window in await index.covered([], requests)) == [1, 2]
