"""Databases of their own for tests, in the shared server, and rows to put into them."""

import hashlib
from datetime import UTC, date, datetime, timedelta
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID, uuid4, uuid5

import asyncpg
import numpy as np

from models.index_rows import CreatedRow, TokensRow, VectorRow
from models.memory import MemoryKind, Provenance, Source
from models.published import CharacterSeq, MemoryCreated

MODEL = "model-a"
START = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = UUID(int=1)


async def new_database(url: str) -> str:
    """A fresh, empty database in the server of `url`; its URL."""
    name = f"test_{uuid4().hex}"
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f"CREATE DATABASE {name}")
    finally:
        await connection.close()
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def memory_name(number: int) -> str:
    return str(uuid5(NAMES, str(number)))


def created_row(
    number: int,
    *,
    user: str = "u1",
    owners: dict[str, int] | None = None,
    importance: int = 5,
    kind: MemoryKind = "window",
    day: date | None = None,
    offset: int | None = None,
    payload: bytes = b"sealed",
    category: str | None = None,
    source_mode: str | None = None,
) -> CreatedRow:
    """The `number`-th memory; `owners` gives its seq with each character. Each is a minute newer than the last."""
    at = START + timedelta(minutes=number)
    return CreatedRow(
        memory=MemoryCreated(
            memory_id=memory_name(number),
            user_id=user,
            kind=kind,
            request_id=str(uuid5(NAMES, f"request {number}")),
            characters=tuple(
                CharacterSeq(character_id=name, seq=seq, epoch=1)
                for name, seq in (owners or {"mina": number}).items()
            ),
            importance=importance,
            date=day or at.date(),
            created_at=at,
            category=category,
            source_mode=source_mode,
            source=Source(
                session_ids=("s1",),
                first_message_id=f"m{number}",
                last_message_id=f"m{number + 9}",
                first_position=number,
                last_position=number + 9,
            ),
            provenance=Provenance(
                task="extraction",
                prompt="pipeline/memory-summarize",
                prompt_version="1",
                provider="offline",
                model="rules",
                offline=False,
            ),
            payload=payload,
        ),
        partition=0,
        offset=number if offset is None else offset,
    )


def token_hash(token: str) -> str:
    """16 hexadecimal digits that stand for a token, as a sealer's hash does."""
    return hashlib.blake2b(token.encode(), digest_size=8).hexdigest()


def tokens_row(number: int, *tokens: str, version: int = 0, offset: int | None = None) -> TokensRow:
    hashes = tuple(token_hash(token) for token in tokens)
    return TokensRow(memory_name(number), version, hashes, False, number if offset is None else offset)


def unit_vector(seed: int) -> list[float]:
    values = np.random.default_rng(seed).normal(size=768)
    return [float(value) for value in values / np.linalg.norm(values)]


def vector_row(
    number: int,
    vector: list[float] | None,
    *,
    model: str = MODEL,
    version: int = 0,
    offset: int | None = None,
    offline: bool = False,
    user: str = "u1",
) -> VectorRow:
    """An opened vector; a sealed one where `vector` is None."""
    return VectorRow(
        memory_id=memory_name(number),
        model=model,
        text_version=version,
        offline=offline,
        offset=number if offset is None else offset,
        opened=None if vector is None else np.asarray(vector, dtype="<f4").tobytes(),
        sealed=b"sealed vector" if vector is None else None,
        user_id=None if vector is None else user,
    )
