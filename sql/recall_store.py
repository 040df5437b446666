"""What a recall reads from PostgreSQL: the scope of a user and characters, exactly (R21, R22)."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from datetime import date, datetime
from uuid import UUID

import asyncpg
import orjson
from pgvector import HalfVector

from models.candidates import (
    Candidate,
    Candidates,
    InvalidCursor,
    MemoryPage,
    PairSummary,
    ParkedWindow,
    SealedRelationship,
)
from models.memory import MemoryKind, Source
from sql.index_store import character_seqs
from sql.loader import load_queries
from sql.pool import Pool, store_errors

MAX_PAGE = 200


class RecallStore:
    """Reads of the schema `memory`. Every method: StoreUnavailable when PostgreSQL is away."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._sql = load_queries("recall")

    async def candidates(
        self,
        user_id: str,
        character_ids: Sequence[str],
        *,
        query_vector: Sequence[float] | None,
        model: str,
        token_hashes: Sequence[str],
        limit: int = 20,
        slots: int = 2,
        slot_importance: int = 6,
        kinds: Sequence[MemoryKind] | None = None,
        date_from: date | None = None,
        date_to: date | None = None,
        source_modes: Sequence[str] | None = None,
    ) -> Candidates:
        """The best of each path within the memories that any of the characters owns, in one round trip.

        vector: the nearest by cosine among the vectors of `model`, without `query_vector` none; keyword: those
        with any of the tokens, most matches first, ties newest first; recent: the newest; important: the
        `slots` most important from `slot_importance` on. Kinds, dates (both ends included) and source
        modes are applied before. `limit` is for each path.
        """
        with store_errors():
            rows = await self._pool.fetch(
                self._sql["candidates"],
                user_id,
                list(dict.fromkeys(character_ids)),
                None if query_vector is None else HalfVector(list(query_vector)),
                model,
                _any_of(token_hashes),
                None if kinds is None else list(kinds),
                date_from,
                date_to,
                limit,
                slot_importance,
                slots,
                None if source_modes is None else list(source_modes),
            )
        found = [(row, _candidate(row)) for row in rows]
        near = [(memory, 1 - row["distance"]) for row, memory in found if row["distance"] is not None]
        worded = [(memory, float(row["rank"])) for row, memory in found if row["rank"] is not None]
        recent = [memory for row, memory in found if row["is_newest"]]
        important = [memory for row, memory in found if row["is_weighty"]]
        return Candidates(
            vector=tuple(sorted(near, key=lambda hit: (-hit[1], hit[0].memory_id))),
            keyword=tuple(sorted(worded, key=lambda hit: (-hit[1], *_newest(hit[0])))),
            recent=tuple(sorted(recent, key=_newest)),
            important=tuple(sorted(important, key=lambda memory: (-memory.importance, *_newest(memory)))),
            max_seq=(rows[0]["last_seqs"] or {}) if rows else {},
        )

    async def memories_page(
        self,
        user_id: str,
        character_id: str,
        *,
        kinds: Sequence[MemoryKind] | None = None,
        date_from: date | None = None,
        date_to: date | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> MemoryPage:
        """A pair's memories, newest first, at most `limit` (1 to 200). InvalidCursor: not one of ours."""
        size = max(1, min(limit, MAX_PAGE))
        at, identity = _read_cursor(cursor) if cursor else (None, None)
        with store_errors():
            rows = await self._pool.fetch(
                self._sql["memories_page"],
                user_id,
                character_id,
                None if kinds is None else list(kinds),
                date_from,
                date_to,
                size + 1,
                at,
                identity,
            )
        memories = tuple(_candidate(row) for row in rows[:size])
        return MemoryPage(memories, _make_cursor(memories[-1]) if len(rows) > size else None)

    async def pair_summary(self, user_id: str, character_id: str) -> PairSummary:
        """How much is stored of a pair, and its relationship state, still sealed."""
        with store_errors():
            [row] = await self._pool.fetch(self._sql["pair_summary"], user_id, character_id)
        related = SealedRelationship(row["payload"], row["epoch"], row["version"]) if row["related"] else None
        return PairSummary(row["memories"], row["last_seq"], row["last_memory_at"], related)

    async def covered_position(self, user_id: str, character_ids: Sequence[str], epoch: int) -> int:
        """The position of a thread up to which every message is covered (I11); 0: none is."""
        with store_errors():
            position: int = await self._pool.fetchval(
                self._sql["covered_position"], user_id, sorted(set(character_ids)), epoch
            )
            return position

    async def parked_windows(self, limit: int = 100) -> list[ParkedWindow]:
        """Windows that wait for an operator, oldest first."""
        with store_errors():
            rows = await self._pool.fetch(self._sql["parked_windows"], limit)
        return [
            ParkedWindow(
                **{
                    **dict(row),
                    "request_id": str(row["request_id"]),
                    "character_ids": tuple(row["character_ids"]),
                }
            )
            for row in rows
        ]


def _any_of(token_hashes: Sequence[str]) -> str | None:
    """A tsquery that any of the hashes matches; they are quoted, whatever they are made of."""
    quoted = (token.replace("\\", "\\\\").replace("'", "''") for token in dict.fromkeys(token_hashes))
    return " | ".join(f"'{token}'" for token in quoted) or None


def _candidate(row: asyncpg.Record) -> Candidate:
    return Candidate(
        memory_id=str(row["id"]),
        user_id=row["user_id"],
        kind=row["kind"],
        payload=row["payload"],
        characters=character_seqs(row),
        importance=row["importance"],
        pinned=row["pinned"],
        date=row["date"],
        created_at=row["created_at"],
        source=Source(
            session_ids=tuple(row["source_session_ids"]),
            first_message_id=row["first_message_id"],
            last_message_id=row["last_message_id"],
            first_position=row["first_position"],
            last_position=row["last_position"],
        ),
        source_mode=row["source_mode"],
        offline=row["offline"],
    )


def _newest(memory: Candidate) -> tuple[float, str]:
    return (-memory.created_at.timestamp(), memory.memory_id)


def _make_cursor(last: Candidate) -> str:
    place = orjson.dumps((last.created_at.isoformat(), last.memory_id))
    return urlsafe_b64encode(place).decode().rstrip("=")


def _read_cursor(cursor: str) -> tuple[datetime, UUID]:
    try:
        at, identity = orjson.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        moment = datetime.fromisoformat(at)
        if moment.tzinfo is None:
            raise ValueError("without a zone")
        return moment, UUID(identity)
    except (ValueError, TypeError, AttributeError):
        raise InvalidCursor(
            "the cursor is not one that this service gave: leave it out to start anew"
        ) from None
