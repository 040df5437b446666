"""Numbered migrations: `migrations/NNNN_name.sql`, applied in order, each once, each in a transaction.

The first line of a file names its schema, `-- schema: memory`; what was applied is recorded in that schema, in
`schema_migrations`, so that a schema that is dropped to be rebuilt takes its record with it. Names in the
files are not qualified: they are made in that schema.
"""

import hashlib
import re
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import asyncpg

from models.store_errors import StoreUnavailable

MIGRATIONS = Path(__file__).parent / "migrations"
# Any constant will do, as long as all that migrate this database use the same one.
_LOCK = 0x6B656570
_FILE = re.compile(r"^(\d{4})_([a-z0-9_]+)\.sql$")
_SCHEMA = re.compile(r"\A-- schema: ([a-z_]+)\n")
# halfvec came with pgvector 0.7.
_PGVECTOR = (0, 7)


class MigrationError(Exception):
    """The database cannot be brought to what this version needs; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    schema: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


def read_migrations(directory: Path = MIGRATIONS) -> list[Migration]:
    """The migrations of a directory, in order. MigrationError: a file's name or first line is wrong."""
    found: list[Migration] = []
    for path in sorted(directory.glob("*.sql")):
        named = _FILE.match(path.name)
        text = path.read_text(encoding="utf-8")
        schema = _SCHEMA.match(text)
        if named is None or schema is None:
            raise MigrationError(
                f"{path.name}: a migration is named NNNN_name.sql and begins with `-- schema: name`"
            )
        found.append(Migration(int(named[1]), named[2], schema[1], text))
    numbers = [migration.number for migration in found]
    if len(set(numbers)) != len(numbers):
        raise MigrationError(f"two migrations have the same number: {numbers}")
    return found


async def migrate(dsn: str, directory: Path = MIGRATIONS) -> list[str]:
    """Apply what is not applied yet, and return the names of it, in order.

    Several at once wait for each other. MigrationError: an applied file was changed, the database is newer
    than this version, or pgvector is missing. StoreUnavailable: PostgreSQL cannot be reached.
    """
    migrations = read_migrations(directory)
    try:
        connection = await asyncpg.connect(dsn, timeout=10)
    except (OSError, TimeoutError, asyncpg.PostgresConnectionError, asyncpg.CannotConnectNowError) as error:
        raise StoreUnavailable(type(error).__name__) from error
    try:
        # Held by the session: it ends with the connection, also when this process is killed.
        await connection.execute("SELECT pg_advisory_lock($1)", _LOCK)
        await _need_pgvector(connection)
        applied: list[str] = []
        by_schema = sorted(migrations, key=lambda migration: (migration.schema, migration.number))
        for schema, group in groupby(by_schema, key=lambda migration: migration.schema):
            applied += await _migrate_schema(connection, schema, list(group))
        return applied
    finally:
        await connection.close()


async def _need_pgvector(connection: asyncpg.Connection) -> None:
    try:
        await connection.execute("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
    except asyncpg.InsufficientPrivilegeError:
        raise MigrationError(
            "this user may not create the extension vector: "
            "let a superuser run `CREATE EXTENSION vector SCHEMA public` in the database"
        ) from None
    except (asyncpg.UndefinedFileError, asyncpg.FeatureNotSupportedError):
        raise MigrationError(
            "PostgreSQL has no pgvector: install its package for this server (pgvector 0.7 or later)"
        ) from None
    version: str = await connection.fetchval("SELECT extversion FROM pg_extension WHERE extname = 'vector'")
    if tuple(int(part) for part in version.split(".")[:2]) < _PGVECTOR:
        raise MigrationError(
            f"pgvector {version} is too old: install 0.7 or later and run `ALTER EXTENSION vector UPDATE`"
        )


async def _migrate_schema(
    connection: asyncpg.Connection, schema: str, migrations: list[Migration]
) -> list[str]:
    await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    await connection.execute(
        f"""CREATE TABLE IF NOT EXISTS {schema}.schema_migrations (
            number integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL,
            applied_at timestamptz NOT NULL DEFAULT now())"""
    )
    rows = await connection.fetch(f"SELECT number, name, checksum FROM {schema}.schema_migrations")
    recorded = {row["number"]: row for row in rows}
    known = {migration.number: migration for migration in migrations}
    for number in sorted(recorded.keys() - known.keys()):
        raise MigrationError(
            f"the database is newer than this Keepsake: it has migration {number:04d}_{recorded[number]['name']} "
            f"in schema {schema}; run the version that made it"
        )
    applied: list[str] = []
    for migration in migrations:
        name = f"{migration.number:04d}_{migration.name}"
        if migration.number in recorded:
            if recorded[migration.number]["checksum"] != migration.checksum:
                raise MigrationError(
                    f"migration {name} was changed after it was applied: restore the file, "
                    "and put the change into a new migration"
                )
            continue
        async with connection.transaction():
            await connection.execute(f"SET LOCAL search_path = {schema}, public")
            await connection.execute(migration.sql)
            await connection.execute(
                f"INSERT INTO {schema}.schema_migrations (number, name, checksum) VALUES ($1, $2, $3)",
                migration.number,
                migration.name,
                migration.checksum,
            )
        applied.append(name)
    return applied
