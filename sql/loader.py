"""Reads `queries/*.sql`: statements by name, each under a line `-- name: x`."""

import re
from functools import cache
from pathlib import Path

QUERIES = Path(__file__).parent / "queries"
_NAME = re.compile(r"^-- name: ([a-z][a-z0-9_]*)\s*$", re.MULTILINE)


class QueryFileError(ValueError):
    """A file of queries is not well formed."""


def parse_queries(text: str, source: str) -> dict[str, str]:
    """The statements of one file by name, without their closing semicolon."""
    head, *parts = _NAME.split(text)
    if [line for line in head.splitlines() if line.strip() and not line.startswith("--")]:
        raise QueryFileError(f"{source}: a statement stands before the first `-- name:` line")
    found: dict[str, str] = {}
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        statement = body.strip().removesuffix(";").rstrip()
        if not statement:
            raise QueryFileError(f"{source}: {name} is empty")
        if name in found:
            raise QueryFileError(f"{source}: {name} is there twice")
        found[name] = statement
    return found


@cache
def load_queries(file: str) -> dict[str, str]:
    """The statements of `queries/<file>.sql`."""
    path = QUERIES / f"{file}.sql"
    return parse_queries(path.read_text(encoding="utf-8"), path.name)
