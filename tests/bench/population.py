"""Memories in bulk for the benchmark of recall: as the indexer would have stored them, but by COPY."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

import numpy as np
from pgvector import HalfVector

from agents.codec import MemoryCipher
from infra.offline_embedder import OFFLINE_MODEL
from infra.sealing import AesGcmSealer
from models.memory import MemoryContent, Quote
from models.published import CharacterSeq
from sql.index_store import token_key
from sql.pool import Pool, create_pool
from tests.bench.talk import Window, windows

Array = np.ndarray[Any, Any]
NAMES = UUID(int=7)
START = datetime(2026, 1, 1, tzinfo=UTC)
CHARACTER = "mina"
# multilingual-e5-small has 384 dimensions, and zeros fill the rest.
DIMENSIONS, PADDED = 384, 768
# No pair but the measured one of 20,000 has more.
LARGEST = 2_000
PAYLOAD_BYTES = 1_100
CHUNK = 10_000
TABLES = {
    "user_memories": (
        *("id", "user_id", "kind", "request_id", "payload", "importance", "category", "date", "created_at"),
        *("source_session_ids", "first_message_id", "last_message_id", "first_position", "last_position"),
        *("provenance", "offline", "topic_partition", "record_offset"),
    ),
    "user_memory_characters": (
        *("memory_id", "user_id", "character_id", "place", "seq", "epoch", "kind", "date", "created_at"),
        *("importance", "category", "plan_dates"),
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
    """Sizes that add up to about so many memories, the n-th in proportion to n^-0.9, from 1 to LARGEST each."""
    weights = np.arange(1, pairs + 1) ** -0.9
    low, high = 0.0, float(memories * pairs)
    for _ in range(60):
        scale = (low + high) / 2
        total = np.clip(weights * scale, 1, LARGEST).sum()
        low, high = (scale, high) if total < memories else (low, scale)
    return [int(size) for size in np.clip(weights * low, 1, LARGEST).round()]


class Population:
    """Rows of all pairs, interleaved as time would have it. The same every time, but for what is sealed."""

    def __init__(self, pairs: Sequence[Pair], sealer: AesGcmSealer, cipher: MemoryCipher) -> None:
        self.pairs = pairs
        self._sealer = sealer
        self._cipher = cipher
        self._random = np.random.default_rng(5)
        self._windows = windows()
        subjects = 1 + max(window.subject for window in self._windows)
        self._centres = self._random.normal(size=(subjects, DIMENSIONS))
        self._foreign_tokens = [_digests(window.tokens) for window in self._windows]
        self._foreign_payload = self._random.bytes(PAYLOAD_BYTES)
        self._hashes: dict[tuple[str, str], int] = {}
        self._owners = np.repeat(np.arange(len(pairs)), [pair.size for pair in pairs])
        self._random.shuffle(self._owners)
        # Everybody has subjects that they come back to.
        self._favourites = self._random.integers(len(self._windows), size=len(pairs))

    def __len__(self) -> int:
        return len(self._owners)

    def vectors(self, subjects: Sequence[int]) -> Array:
        """A unit vector near each subject, as halfvec keeps it: float16, (n, PADDED)."""
        near = self._centres[list(subjects)] + self._random.normal(size=(len(subjects), DIMENSIONS))
        padded = np.zeros((len(subjects), PADDED), dtype="<f2")
        padded[:, :DIMENSIONS] = near / np.linalg.norm(near, axis=1, keepdims=True)
        return padded

    async def load(self, dsn: str, say: Callable[[str], None] = lambda _: None) -> None:
        """Write all rows; vacuumed and analysed at the end, as autovacuum would have done.

        The B-trees grow with the rows, so that a scope lies in as many pages, and as far apart, as it would. What
        the GIN index looks like depends little on that: it is made afterwards, which is quicker.
        """
        pool = await create_pool(dsn)
        try:
            async with pool.acquire() as connection:
                postponed = await connection.fetch(
                    "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'memory' "
                    "AND tablename = ANY ($1) AND indexdef LIKE '%USING gin%'",
                    list(TABLES),
                )
                for row in postponed:
                    await connection.execute(f"DROP INDEX {row['indexname']}")
                await self._copy(pool, say)
                await connection.execute("SET maintenance_work_mem = '1GB'")
                for row in postponed:
                    say(f"recall: index {row['indexname']}")
                    await connection.execute(row["indexdef"], timeout=3_600)
                for table in TABLES:
                    say(f"recall: vacuum of {table}")
                    await connection.execute(f"VACUUM ANALYZE {table}", timeout=3_600)
                await connection.execute("CHECKPOINT", timeout=3_600)
        finally:
            await pool.close()

    async def _copy(self, pool: Pool, say: Callable[[str], None]) -> None:
        for at, rows in enumerate(self._chunks(), start=1):
            for table, records in rows.items():
                await pool.copy_records_to_table(
                    table, schema_name="memory", records=records, columns=TABLES[table], timeout=3_600
                )
            say(f"recall: {min(at * CHUNK, len(self)):,} of {len(self):,} memories stored")

    def _chunks(self) -> Iterator[dict[str, list[tuple[Any, ...]]]]:
        seqs = np.zeros(len(self.pairs), dtype=np.int64)
        for start in range(0, len(self), CHUNK):
            owners = self._owners[start : start + CHUNK]
            skew = (len(self._windows) * self._random.random(len(owners)) ** 2).astype(int)
            places = ((self._favourites[owners] + skew) % len(self._windows)).tolist()
            chosen = [self._windows[place] for place in places]
            importance = self._random.integers(1, 11, size=len(owners))
            vectors = self.vectors([window.subject for window in chosen])
            rows: dict[str, list[tuple[Any, ...]]] = {table: [] for table in TABLES}
            for at, (owner, window) in enumerate(zip(owners.tolist(), chosen, strict=True)):
                pair = self.pairs[owner]
                seqs[owner] += 1
                identity, number = uuid5(NAMES, str(start + at)), start + at
                _add(
                    rows,
                    (identity, number, pair.user, int(seqs[owner]), int(importance[at]), window.category),
                    self._payload(identity, pair, int(seqs[owner]), window),
                    self._tokens(pair, places[at]),
                    HalfVector(vectors[at]),
                )
            yield rows

    def _payload(self, identity: UUID, pair: Pair, seq: int, window: Window) -> bytes:
        """Sealed as it must be where it is opened; for others the same bytes do, of the usual size."""
        if pair.key is None:
            return self._foreign_payload
        content = MemoryContent(
            summary=" ".join(window.lines)[:300],
            key_details=tuple(Quote(speaker="user", text=line) for line in window.lines),
            search_terms=window.terms,
            category=window.category,
        )
        owner = CharacterSeq(character_id=CHARACTER, seq=seq, epoch=1)
        return self._cipher.seal(str(identity), pair.user, (owner,), [pair.key], content)

    def _tokens(self, pair: Pair, place: int) -> list[int]:
        """The window's tokens, hashed with the user; a quicker hash does for those whom nobody asks about."""
        if pair.key is None:
            # Multiplying by an odd number mixes 64 bits, and parts the users' hashes.
            salt = np.uint64(int.from_bytes(hashlib.blake2b(pair.user.encode(), digest_size=8).digest()))
            mixed = (self._foreign_tokens[place] ^ salt) * np.uint64(0x9E3779B97F4A7C15)
            hashes: list[int] = mixed.view(np.int64).tolist()
            return hashes
        found = []
        for token in self._windows[place].tokens:
            key = (pair.user, token)
            if key not in self._hashes:
                self._hashes[key] = token_key(self._sealer.hash_token(*key))
            found.append(self._hashes[key])
        return found


def _add(
    rows: dict[str, list[tuple[Any, ...]]],
    memory: tuple[UUID, int, str, int, int, str],
    payload: bytes,
    tokens: list[int],
    vector: HalfVector,
) -> None:
    identity, number, user, seq, importance, category = memory
    at = START + timedelta(seconds=20 * number)
    rows["user_memories"].append(
        (
            *(identity, user, "window", identity, payload, importance, category, at.date(), at),
            *(["session"], f"m{seq}", f"m{seq + 9}", seq, seq + 9, {"provider": "offline"}, True, 0, number),
        )
    )
    rows["user_memory_characters"].append(
        (identity, user, CHARACTER, 0, seq, 1, "window", at.date(), at, importance, category, [])
    )
    rows["memory_tokens"].append((identity, 0, tokens, True, number))
    rows["memory_vectors"].append((identity, OFFLINE_MODEL, user, 0, vector, True, number))


def _digests(tokens: Sequence[str]) -> Array:
    """A token each as 64 bits."""
    digests = (hashlib.blake2b(token.encode(), digest_size=8).digest() for token in tokens)
    return np.frombuffer(b"".join(digests), dtype=np.uint64)
