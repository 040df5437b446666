"""Memories in bulk for the benchmark of recall: as the indexer would have stored them, but by COPY."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

import asyncpg
import numpy as np
from pgvector import HalfVector

from agents.codec import MemoryCipher
from infra.offline_embedder import OFFLINE_MODEL
from infra.sealing import AesGcmSealer
from models.memory import MemoryContent, Quote
from models.published import CharacterSeq
from models.tokens import index_tokens
from sql.index_store import token_key
from sql.pool import create_pool

NAMES = UUID(int=7)
START = datetime(2026, 1, 1, tzinfo=UTC)
CHARACTER = "mina"
# What multilingual-e5-small gives, in as many subjects as people talk of; zeros fill the rest.
DIMENSIONS, PADDED, SUBJECTS = 384, 768, 300
CHUNK = 10_000
WORDS = (
    *("고양이", "부산", "간호사", "떡볶이", "치과 예약", "마라톤", "한시우", "엄마 생신", "이직", "등산"),
    *("wine", "marathon", "Bristol", "dentist", "guitar lessons", "sister", "moving house", "insomnia"),
    *("寿司", "引っ越し", "猫", "仕事", "ピアノ", "京都", "花粉症", "誕生日"),
)
TABLES = {
    "user_memories": (
        *("id", "user_id", "kind", "request_id", "payload", "importance", "date", "created_at"),
        *("source_session_ids", "first_message_id", "last_message_id", "first_position", "last_position"),
        *("provenance", "offline", "topic_partition", "record_offset"),
    ),
    "user_memory_characters": (
        *("memory_id", "user_id", "character_id", "place", "seq", "epoch", "kind", "date", "created_at"),
        *("importance", "plan_dates"),
    ),
    "memory_tokens": ("memory_id", "text_version", "tokens", "offline", "record_offset"),
    "memory_vectors": (
        *("memory_id", "embedding_model", "user_id", "text_version", "embedding", "offline"),
        "record_offset",
    ),
}


@dataclass(frozen=True)
class Pair:
    """A user with so many memories; `key` is the wrapped pair key where their memories are to be opened."""

    user: str
    size: int
    key: bytes | None = None


def skewed(memories: int, pairs: int) -> list[int]:
    """Sizes of so many pairs that add up to about so many memories, the n-th in proportion to n^-0.9."""
    weights = np.arange(1, pairs + 1) ** -0.9
    return [max(1, int(size)) for size in weights / weights.sum() * memories]


class Population:
    """Rows of all pairs, interleaved as time would have it. The same for the same seed."""

    def __init__(self, pairs: Sequence[Pair], sealer: AesGcmSealer, cipher: MemoryCipher) -> None:
        self.pairs = pairs
        self._sealer = sealer
        self._cipher = cipher
        self._random = np.random.default_rng(5)
        self._subjects = self._random.normal(size=(SUBJECTS, DIMENSIONS))
        self._foreign: bytes | None = None
        self._hashes: dict[str, list[list[int]]] = {}
        owners = np.repeat(np.arange(len(pairs)), [pair.size for pair in pairs])
        self._random.shuffle(owners)
        self._owners = owners

    def __len__(self) -> int:
        return len(self._owners)

    def vector(self, subject: int) -> np.ndarray[Any, Any]:
        """A unit vector near a subject."""
        found = self._subjects[subject] + self._random.normal(size=DIMENSIONS)
        padded = np.zeros(PADDED)
        padded[:DIMENSIONS] = found / np.linalg.norm(found)
        return padded

    async def load(self, dsn: str, say: Callable[[str], None]) -> None:
        """Write all rows, with the indexes made afterwards, and the statistics that autovacuum would have made."""
        pool = await create_pool(dsn)
        try:
            async with pool.acquire() as connection:
                dropped = await connection.fetch(
                    "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'memory' "
                    "AND tablename = ANY ($1) AND indexdef NOT LIKE 'CREATE UNIQUE%'",
                    list(TABLES),
                )
                for row in dropped:
                    await connection.execute(f"DROP INDEX {row['indexname']}")
                for at, rows in enumerate(self._chunks()):
                    for table, records in rows.items():
                        await connection.copy_records_to_table(
                            table, schema_name="memory", records=records, columns=TABLES[table]
                        )
                    say(f"recall: {min((at + 1) * CHUNK, len(self)):,} of {len(self):,} memories stored")
                await connection.execute("SET maintenance_work_mem = '1GB'")
                for row in dropped:
                    say(f"recall: index {row['indexname']}")
                    await connection.execute(row["indexdef"], timeout=3_600)
                for table in TABLES:
                    await connection.execute(f"VACUUM ANALYZE {table}", timeout=3_600)
        finally:
            await pool.close()

    def _chunks(self) -> Iterator[dict[str, list[tuple[Any, ...]]]]:
        seqs = np.zeros(len(self.pairs), dtype=np.int64)
        for start in range(0, len(self), CHUNK):
            rows: dict[str, list[tuple[Any, ...]]] = {table: [] for table in TABLES}
            for number in range(start, min(start + CHUNK, len(self))):
                owner = int(self._owners[number])
                seqs[owner] += 1
                self._add(rows, number, self.pairs[owner], int(seqs[owner]))
            yield rows

    def _add(self, rows: dict[str, list[tuple[Any, ...]]], number: int, pair: Pair, seq: int) -> None:
        identity = uuid5(NAMES, str(number))
        at = START + timedelta(minutes=number)
        subject = int(self._random.integers(SUBJECTS))
        importance = int(self._random.integers(1, 11))
        rows["user_memories"].append(
            (
                *(identity, pair.user, "window", identity, self._payload(identity, pair, seq, subject)),
                *(importance, at.date(), at, ["s"], "a", "b", seq, seq + 9, {}, True, 0, number),
            )
        )
        rows["user_memory_characters"].append(
            (identity, pair.user, CHARACTER, 0, seq, 1, "window", at.date(), at, importance, [])
        )
        rows["memory_tokens"].append((identity, 0, self._tokens(pair.user, subject), False, number))
        vector = HalfVector(self.vector(subject).astype("<f2"))
        rows["memory_vectors"].append((identity, OFFLINE_MODEL, pair.user, 0, vector, True, number))

    def _payload(self, identity: UUID, pair: Pair, seq: int, subject: int) -> bytes:
        """Sealed as it must be where it is opened; of others the same bytes do, of the usual size."""
        if pair.key is None and self._foreign is not None:
            return self._foreign
        content = MemoryContent(
            summary=f"{WORDS[subject % len(WORDS)]}, the {seq}th thing that was said about it, in some words.",
            key_details=tuple(
                Quote(speaker="user", text=f"I told you about {WORDS[subject % len(WORDS)]}, part {part}")
                for part in range(4)
            ),
        )
        if pair.key is None:
            self._foreign = b"?" * 900
            return self._foreign
        owner = CharacterSeq(character_id=CHARACTER, seq=seq, epoch=1)
        return self._cipher.seal(str(identity), pair.user, (owner,), [pair.key], content)

    def _tokens(self, user: str, subject: int) -> list[int]:
        """The hashes of a few terms: some of the subject, some that much else has."""
        if user not in self._hashes:
            self._hashes[user] = [
                [token_key(self._sealer.hash_token(user, token)) for token in index_tokens([word])]
                for word in WORDS
            ]
        hashes = self._hashes[user]
        chosen = (subject % len(WORDS), *self._random.integers(len(WORDS), size=3))
        return list(dict.fromkeys(token for at in chosen for token in hashes[int(at)]))


async def nearest(dsn: str, user: str, query: np.ndarray[Any, Any], count: int) -> list[str]:
    """The memories of a user that are nearest to a query, by a full sort outside of the database."""
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetch(
            "SELECT memory_id, embedding::text FROM memory.memory_vectors WHERE user_id = $1", user
        )
    finally:
        await connection.close()
    stored = await asyncio.to_thread(
        lambda: np.array([np.fromstring(row["embedding"][1:-1], sep=",") for row in rows])
    )
    asked = query.astype("<f2").astype(float)
    cosine = stored @ asked / (np.linalg.norm(stored, axis=1) * np.linalg.norm(asked))
    return [str(rows[at]["memory_id"]) for at in np.argsort(-cosine)[:count]]
