import asyncio
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from models.store_errors import StoreUnavailable
from sql.migrate import MigrationError, migrate
from tests.engines import LocalEngines
from tests.integration.databases import new_database

FIRST = "-- schema: memory\nCREATE TABLE one (id integer);\n"
SECOND = "-- schema: memory\nALTER TABLE one ADD COLUMN name text;\n"
OURS = ["0002_config", "0001_memory"]  # a schema after the other


@pytest.fixture
async def dsn(database: LocalEngines) -> str:
    return await new_database(database.database_url)


def files(directory: Path, *texts: str) -> Path:
    for number, text in enumerate(texts, 1):
        (directory / f"{number:04d}_step.sql").write_text(text)
    return directory


async def execute(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def test_our_migrations_are_applied_once(dsn: str) -> None:
    assert await migrate(dsn) == OURS
    assert await migrate(dsn) == []
    await execute(dsn, "SELECT embedding FROM memory.memory_vectors")
    await execute(dsn, "SELECT model FROM config.llm_task_assignments")


async def test_those_that_are_new_are_applied(dsn: str, tmp_path: Path) -> None:
    assert await migrate(dsn, files(tmp_path, FIRST)) == ["0001_step"]
    assert await migrate(dsn, files(tmp_path, FIRST, SECOND)) == ["0002_step"]
    await execute(dsn, "SELECT name FROM memory.one")


async def test_several_at_once_apply_each_once(dsn: str) -> None:
    applied = await asyncio.gather(*(migrate(dsn) for _ in range(4)))
    assert sorted(applied) == [[], [], [], OURS]


async def test_a_schema_that_was_dropped_is_made_again(dsn: str) -> None:
    """And what people have decided, which is in another, stays."""
    await migrate(dsn)
    await execute(dsn, "INSERT INTO config.llm_task_assignments VALUES ('insight', 'openai:a', NULL, 'me')")
    await execute(dsn, "DROP SCHEMA memory CASCADE")
    assert await migrate(dsn) == ["0001_memory"]
    connection = await asyncpg.connect(dsn)
    try:
        assert await connection.fetchval("SELECT count(*) FROM config.llm_task_assignments") == 1
    finally:
        await connection.close()


async def test_a_changed_file_is_refused(dsn: str, tmp_path: Path) -> None:
    await migrate(dsn, files(tmp_path, FIRST))
    with pytest.raises(MigrationError, match="0001_step was changed"):
        await migrate(dsn, files(tmp_path, FIRST + "-- and more\n"))


async def test_a_newer_database_is_refused(dsn: str, tmp_path: Path) -> None:
    await migrate(dsn, files(tmp_path, FIRST, SECOND))
    (tmp_path / "0002_step.sql").unlink()
    with pytest.raises(MigrationError, match=r"newer than this Keepsake.*0002_step"):
        await migrate(dsn, tmp_path)


async def test_a_failing_migration_leaves_nothing(dsn: str, tmp_path: Path) -> None:
    broken = "-- schema: memory\nCREATE TABLE two (id integer);\nSELECT missing;\n"
    with pytest.raises(asyncpg.UndefinedColumnError):
        await migrate(dsn, files(tmp_path, FIRST, broken))
    assert await migrate(dsn, files(tmp_path, FIRST, SECOND)) == ["0002_step"]


async def test_without_the_right_to_make_the_extension_it_is_said_what_to_do(dsn: str) -> None:
    role = urlsplit(dsn).path[1:]
    await execute(dsn, f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
    await execute(dsn, f"GRANT CREATE ON DATABASE {role} TO {role}")
    parts = urlsplit(dsn)
    mine = urlunsplit(parts._replace(netloc=f"{role}:x@{parts.hostname}:{parts.port}"))
    with pytest.raises(MigrationError, match="CREATE EXTENSION vector"):
        await migrate(mine)
    await execute(dsn, "CREATE EXTENSION vector SCHEMA public")
    assert await migrate(mine) == OURS


async def test_a_database_that_is_away_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable):
        await migrate("postgresql://nobody@127.0.0.1:1/none")
