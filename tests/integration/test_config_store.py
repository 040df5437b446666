"""Assignments, their history, and usage, in a real PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator
from datetime import date
from itertools import pairwise
from uuid import UUID

import asyncpg
import pytest

from models.assignments import Assignment
from models.store_errors import StoreUnavailable
from models.usage import UsageKey, UsageTotals
from sql.config_store import SCHEMA, ConfigStore
from sql.migrate import migrate
from sql.pool import Pool, create_pool
from tests.engines import LocalEngines
from tests.integration.databases import new_database

A = Assignment.parse("extraction", "openai:a")
DAY = date(2026, 3, 1)
KEY = UsageKey(DAY, "extraction", "openai", "a")
ME, OTHER = UUID(int=1), UUID(int=2)


@pytest.fixture
async def pool(database: LocalEngines) -> AsyncIterator[Pool]:
    dsn = await new_database(database.database_url)
    await migrate(dsn)
    opened = await create_pool(dsn, schema=SCHEMA)
    yield opened
    await opened.close()


@pytest.fixture
def store(pool: Pool) -> ConfigStore:
    return ConfigStore(pool)


async def test_an_assignment_is_kept_with_who_and_what_was_before(store: ConfigStore) -> None:
    assert await store.assignments() == {}
    both = Assignment.parse("extraction", "gemini:g", "offline:keepsake-rules")
    assert await store.assign(A, "cli:me")
    assert await store.assign(both, "api")
    assert not await store.assign(both, "again")
    assert await store.assign(Assignment.parse("insight", "openai:i"), "api")
    standing = await store.assignments()
    assert standing.keys() == {"extraction", "insight"}
    assert (standing["extraction"].assignment, standing["extraction"].by) == (both, "api")
    second, first = await store.history("extraction")
    assert (first.by, first.from_model, first.from_fallback) == ("cli:me", None, None)
    assert (first.to_model, first.to_fallback) == ("openai:a", None)
    assert (second.from_model, second.to_model) == ("openai:a", "gemini:g")
    assert (second.to_fallback, second.at) == ("offline:keepsake-rules", standing["extraction"].at)
    assert [change.task for change in await store.history(limit=2)] == ["insight", "extraction"]


async def test_changes_at_once_make_one_chain(store: ConfigStore) -> None:
    wanted = [Assignment.parse("extraction", f"openai:{number}") for number in range(8)]
    await asyncio.gather(*(store.assign(one, "me") for one in wanted))
    newest_first = await store.history()
    assert len(newest_first) == 8
    followed = pairwise(newest_first)
    assert all(later.from_model == earlier.to_model for later, earlier in followed)
    assert newest_first[-1].from_model is None


async def test_what_this_version_cannot_read_is_left_out(store: ConfigStore, pool: Pool) -> None:
    await store.assign(A, "me")
    await pool.execute("INSERT INTO llm_task_assignments VALUES ('insight', 'newer:model', NULL, 'me')")
    assert (await store.assignments()).keys() == {"extraction"}


async def test_usage_is_written_as_totals_and_counted_once(store: ConfigStore) -> None:
    await store.put_usage(ME, {KEY: UsageTotals(1, 100, 10)})
    await store.put_usage(ME, {KEY: UsageTotals(3, 300, 30)})
    for late in (UsageTotals(3, 300, 30), UsageTotals(1, 100, 10)):
        await store.put_usage(ME, {KEY: late})
    assert await store.spent_by_others(OTHER, DAY) == 330
    assert await store.spent_by_others(ME, DAY) == 0
    other = UsageKey(DAY, "insight", "gemini", "g")
    await store.put_usage(OTHER, {KEY: UsageTotals(1, 5, 0), other: UsageTotals(1, 0, 7)})
    assert await store.spent_by_others(ME, DAY) == 12
    assert await store.spent_by_others(ME, date(2026, 3, 2)) == 0


async def test_without_its_migrations_it_is_away(database: LocalEngines) -> None:
    """An upgraded role may start before the migrations ran."""
    dsn = await new_database(database.database_url)
    connection = await asyncpg.connect(dsn)
    await connection.execute("CREATE EXTENSION vector SCHEMA public")
    await connection.close()
    pool = await create_pool(dsn, schema=SCHEMA)
    store = ConfigStore(pool)
    for call in (store.assignments(), store.assign(A, "me"), store.history(), store.spent_by_others(ME, DAY)):
        with pytest.raises(StoreUnavailable, match="keepsake provision"):
            await call
    await pool.close()


async def test_a_database_that_is_away_is_unavailable() -> None:
    pool = await create_pool("postgresql://nobody@127.0.0.1:1/none", schema=SCHEMA)
    with pytest.raises(StoreUnavailable):
        await ConfigStore(pool).assignments()
    pool.terminate()
