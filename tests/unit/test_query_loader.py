import re
from pathlib import Path

import pytest

from sql.loader import QUERIES, QueryFileError, load_queries, parse_queries
from sql.migrate import MigrationError, read_migrations


def test_statements_are_found_by_name() -> None:
    text = "-- about the file\n\n-- name: one\n-- why\nSELECT 1;\n\n-- name: two\nSELECT ';'\n"
    assert parse_queries(text, "x.sql") == {"one": "-- why\nSELECT 1", "two": "SELECT ';'"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT 1;\n-- name: one\nSELECT 1;", "before the first"),
        ("-- name: one\n\n-- name: two\nSELECT 1;", "one is empty"),
        ("-- name: one\nSELECT 1;\n-- name: one\nSELECT 2;", "one is there twice"),
    ],
)
def test_a_malformed_file_is_refused(text: str, said: str) -> None:
    with pytest.raises(QueryFileError, match=re.escape(said)):
        parse_queries(text, "x.sql")


def test_our_files_and_migrations_are_well_formed() -> None:
    assert all(load_queries(path.stem) for path in QUERIES.glob("*.sql"))
    assert [migration.number for migration in read_migrations()] == [1, 2]


@pytest.mark.parametrize("name", ["0001_first.sql", "1_first.sql"])
def test_a_migration_that_is_not_named_or_headed_as_it_must_be_is_refused(tmp_path: Path, name: str) -> None:
    head = "" if name.startswith("0001") else "-- schema: memory\n"
    (tmp_path / name).write_text(f"{head}SELECT 1;")
    with pytest.raises(MigrationError, match=r"NNNN_name\.sql"):
        read_migrations(tmp_path)
