"""What the indexer writes to PostgreSQL, and reads back to open vectors."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import numpy as np
from pgvector import HalfVector

from models.index_rows import (
    CoveredWindow,
    CreatedRow,
    IndexRow,
    RelationshipRow,
    SealedMemory,
    TokensRow,
    VectorRow,
    WindowRow,
)
from models.published import CharacterSeq
from sql.loader import load_queries
from sql.pool import Pool, store_errors

NIL = "00000000-0000-0000-0000-000000000000"


class IndexStore:
    """Rows of the schema `memory`. Every method: StoreUnavailable when PostgreSQL is away, StoreRejected when
    it does not take the values."""

    def __init__(self, pool: Pool, before_commit: Callable[[], None] = lambda: None) -> None:
        """`before_commit` is called inside the transaction, when all of it is written."""
        self._pool = pool
        self._sql = load_queries("index")
        self._before_commit = before_commit

    async def apply(self, rows: Sequence[IndexRow], offsets: Mapping[tuple[str, int], int]) -> None:
        """Write the rows, and for each (topic, partition) the next offset to read: all of it or nothing."""
        with store_errors():
            async with self._pool.acquire() as connection, connection.transaction():
                # Ordered, so that two workers that overlap for a moment do not wait for each other.
                for name, arguments in _grouped(rows).items():
                    ordered: list[tuple[Any, ...]] = sorted(arguments, key=_first_two)
                    await connection.executemany(self._sql[name], ordered)
                await connection.executemany(
                    self._sql["advance_offset"], [(*at, offset) for at, offset in sorted(offsets.items())]
                )
                self._before_commit()

    async def applied_offsets(self) -> dict[tuple[str, int], int]:
        """For each (topic, partition) the offset at which the indexer continues; what is not there starts at 0."""
        rows = await self._fetch("applied_offsets")
        return {(row["topic"], row["partition"]): row["next_offset"] for row in rows}

    async def covered(self, memory_ids: Sequence[str], request_ids: Sequence[str]) -> list[CoveredWindow]:
        """Those windows that are covered (I11), of the windows of these memories and requests."""
        # UUIDs, because the driver does not take every way to write one that a record may have.
        rows = await self._fetch(
            "covered", [UUID(one) for one in memory_ids], [UUID(one) for one in request_ids]
        )
        return [
            CoveredWindow(row["user_id"], tuple(row["character_ids"]), row["epoch"], row["number"])
            for row in rows
        ]

    async def covered_of_thread(
        self, user_id: str, character_ids: Sequence[str], epoch: int, limit: int
    ) -> list[CoveredWindow]:
        """The last `limit` windows of a thread that are covered, newest first."""
        rows = await self._fetch("covered_of_thread", user_id, sorted(character_ids), epoch, limit)
        return [CoveredWindow(user_id, tuple(character_ids), epoch, row["number"]) for row in rows]

    async def sealed_memories(self, memory_ids: Sequence[str]) -> dict[str, SealedMemory]:
        """Those of the memories that are stored, by id."""
        rows = await self._fetch("sealed_memories", list(memory_ids)) if memory_ids else []
        return {str(row["id"]): _sealed_memory(row) for row in rows}

    async def sealed_vectors(self, memory_ids: Sequence[str]) -> list[VectorRow]:
        """The vectors of these memories that came before them, and wait to be opened."""
        rows = await self._fetch("sealed_vectors", list(memory_ids)) if memory_ids else []
        return [
            VectorRow(
                memory_id=str(row["memory_id"]),
                model=row["embedding_model"],
                text_version=row["text_version"],
                offline=row["offline"],
                offset=row["record_offset"],
                opened=None,
                sealed=row["sealed"],
            )
            for row in rows
        ]

    async def without_vector(
        self,
        model: str,
        partitions: Sequence[int],
        after: str = NIL,
        age: timedelta = timedelta(),
        limit: int = 100,
    ) -> list[SealedMemory]:
        """Memories without a vector of `model`, stored for longer than `age`, by id past `after`."""
        rows = await self._fetch("memories_without_vector", list(partitions), model, after, age, limit)
        return [_sealed_memory(row) for row in rows]

    async def count_without_vector(self, model: str, partitions: Sequence[int]) -> int:
        """How many memories have no vector of `model`."""
        rows = await self._fetch("count_without_vector", list(partitions), model)
        return int(rows[0]["count"])

    async def _fetch(self, name: str, *arguments: object) -> list[asyncpg.Record]:
        with store_errors():
            found: list[asyncpg.Record] = await self._pool.fetch(self._sql[name], *arguments)
            return found


def _sealed_memory(row: asyncpg.Record) -> SealedMemory:
    return SealedMemory(
        memory_id=str(row["id"]),
        user_id=row["user_id"],
        characters=character_seqs(row),
        payload=row["payload"],
        text_version=row["text_version"],
    )


def character_seqs(row: asyncpg.Record) -> tuple[CharacterSeq, ...]:
    """The owners of a memory, from the columns characters, seqs and epochs."""
    owners = zip(row["characters"] or (), row["seqs"] or (), row["epochs"] or (), strict=True)
    return tuple(
        CharacterSeq(character_id=character, seq=seq, epoch=epoch) for character, seq, epoch in owners
    )


def token_key(token: str) -> int:
    """A token's keyed hash (16 hexadecimal digits) as a bigint."""
    return int.from_bytes(bytes.fromhex(token), "big", signed=True)


def _grouped(rows: Sequence[IndexRow]) -> dict[str, list[tuple[Any, ...]]]:
    """Statements by name, in the order in which they must run, with the arguments of each row."""
    calls: dict[str, list[tuple[Any, ...]]] = {}

    def add(name: str, *arguments: Any) -> None:
        calls.setdefault(name, []).append(arguments)

    memories = [row for row in rows if isinstance(row, CreatedRow)]
    for created in memories:
        _add_memory(add, created)
    for row in rows:
        match row:
            case TokensRow():
                tokens = [token_key(token) for token in dict.fromkeys(row.tokens)]
                add("upsert_tokens", UUID(row.memory_id), row.text_version, tokens, row.offline, row.offset)
            case VectorRow():
                add(
                    "upsert_vector",
                    UUID(row.memory_id),
                    row.model,
                    row.text_version,
                    None if row.opened is None else _halfvec(row.opened),
                    row.sealed if row.opened is None else None,
                    row.offline,
                    row.offset,
                    row.user_id,
                )
            case RelationshipRow(changed, offset):
                add(
                    "upsert_relationship",
                    changed.user_id,
                    changed.character_id,
                    changed.epoch,
                    changed.version,
                    changed.payload,
                    offset,
                )
            case WindowRow():
                _add_window(add, row)
            case CreatedRow():
                pass
    return calls


def _add_memory(add: Any, row: CreatedRow) -> None:
    memory, source = row.memory, row.memory.source
    identity = UUID(memory.memory_id)
    add(
        "upsert_memory",
        identity,
        memory.user_id,
        memory.kind,
        UUID(memory.request_id),
        memory.payload,
        memory.importance,
        memory.date,
        memory.created_at,
        list(source.session_ids),
        source.first_message_id,
        source.last_message_id,
        source.first_position,
        source.last_position,
        memory.source_mode,
        memory.provenance.model_dump(),
        memory.provenance.offline,
        row.partition,
        row.offset,
        memory.category,
    )
    names = [owner.character_id for owner in memory.characters]
    add("delete_other_owners", identity, row.offset, names)
    for place, owner in enumerate(memory.characters):
        add(
            "upsert_owner",
            identity,
            row.offset,
            memory.user_id,
            owner.character_id,
            place,
            owner.seq,
            owner.epoch,
            memory.kind,
            memory.date,
            memory.created_at,
            memory.importance,
            memory.category,
            memory.source_mode,
            list(memory.plan_dates),
        )


def _add_window(add: Any, row: WindowRow) -> None:
    window = row.changed
    add(
        "upsert_window",
        window.user_id,
        sorted(window.character_ids),
        window.epoch,
        window.number,
        UUID(window.request_id),
        window.version,
        window.status,
        window.first_position,
        window.last_position,
        window.reason,
        window.attempts,
        [UUID(memory) for memory in window.memory_ids],
        window.closed_at,
        row.offset,
    )


def _first_two(arguments: tuple[Any, ...]) -> Any:
    return arguments[:2]


def _halfvec(data: bytes) -> HalfVector:
    return HalfVector(np.frombuffer(data, dtype="<f4").astype("<f2"))
