"""What a recall reads from PostgreSQL: the scope of a user and characters, exactly (R21, R22)."""

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from datetime import date, datetime
from typing import Any
from uuid import UUID

import asyncpg
import orjson
from pgvector import HalfVector

from models.candidates import (
    Candidate,
    Candidates,
    Coverage,
    InScope,
    InvalidCursor,
    MemoryPage,
    PairSummary,
    ParkedWindow,
    Scope,
    ScopePage,
    SealedRelationship,
)
from models.memory import Source
from sql.index_store import character_seqs, token_key
from sql.loader import load_queries
from sql.pool import Pool, store_errors

MAX_PAGE = 200
GIVE_BACK_SECONDS = 2.0


class RecallStore:
    """Reads of the schema `memory`. Every method: StoreUnavailable when PostgreSQL is away."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._sql = load_queries("recall")

    async def candidates(
        self,
        scope: Scope,
        *,
        query_vector: Sequence[float] | None,
        model: str,
        token_hashes: Sequence[str],
        limit: int = 20,
        slots: int = 2,
        slot_importance: int = 6,
    ) -> Candidates:
        """The best of each path within the scope.

        vector: the nearest by cosine among the vectors of `model`, without `query_vector` none; keyword: those
        with any of the tokens, by the sum of their weights (IDF within the scope), ties newest first; recent: the
        newest; important: the `slots` most important from `slot_importance` on. `limit` is for each path.
        """
        characters = list(dict.fromkeys(scope.character_ids))
        rows = await self._fetch(
            "candidates",
            scope.user_id,
            characters,
            None if query_vector is None else HalfVector(list(query_vector)),
            model,
            [token_key(token) for token in dict.fromkeys(token_hashes)],
            list(scope.kinds) or None,
            scope.date_from,
            scope.date_to,
            limit,
            slot_importance,
            slots,
            list(scope.source_modes) or None,
            list(scope.categories) or None,
        )
        found = [(row, _candidate(row, offline_vector=row["offline_vector"])) for row in rows]
        near = [(memory, 1 - row["distance"]) for row, memory in found if row["distance"] is not None]
        worded = [(memory, float(row["rank"])) for row, memory in found if row["rank"] is not None]
        recent = [memory for row, memory in found if row["is_newest"]]
        important = [memory for row, memory in found if row["is_weighty"]]
        return Candidates(
            vector=tuple(sorted(near, key=lambda hit: (-hit[1], hit[0].memory_id))),
            keyword=tuple(sorted(worded, key=lambda hit: (-hit[1], *_newest(hit[0])))),
            recent=tuple(sorted(recent, key=_newest)[:limit]),
            important=tuple(
                sorted(important, key=lambda memory: (-memory.importance, *_newest(memory)))[:slots]
            ),
            max_seq=rows[0]["last_seqs"] if rows else {},
        )

    async def exhaustive(self, scope: Scope, *, limit: int, cursor: str | None) -> MemoryPage:
        """Everything in the scope, a page at a time, by date, oldest first; each memory once.

        A memory never changes its place, so that what was there at the first page is on exactly one. InvalidCursor:
        not one of ours, or of another scope.
        """
        past = _read_cursor(cursor, scope, date, datetime, UUID) if cursor else (None, None, None)
        rows = await self._fetch(
            "exhaustive",
            scope.user_id,
            list(scope.character_ids),
            list(scope.kinds) or None,
            scope.date_from,
            scope.date_to,
            list(scope.source_modes) or None,
            list(scope.categories) or None,
            limit + 1,
            *past,
        )
        memories = tuple(_candidate(row) for row in rows[:limit])
        more = len(rows) > limit
        last = memories[-1] if more else None
        return MemoryPage(
            memories, _make_cursor(scope, last.date, last.created_at, last.memory_id) if last else None
        )

    async def in_scope(
        self,
        scope: Scope,
        *,
        query_vector: Sequence[float] | None,
        model: str,
        limit: int,
        cursor: str | None,
    ) -> ScopePage:
        """Every memory of the user with the characters, newest first, those too that the filters keep out.

        InvalidCursor: not one of ours, or of another scope.
        """
        past = _read_cursor(cursor, scope, datetime, UUID) if cursor else (None, None)
        rows = await self._fetch(
            "in_scope",
            scope.user_id,
            list(scope.character_ids),
            list(scope.kinds) or None,
            scope.date_from,
            scope.date_to,
            list(scope.source_modes) or None,
            list(scope.categories) or None,
            None if query_vector is None else HalfVector(list(query_vector)),
            model,
            *past,
            limit + 1,
        )
        memories = tuple(
            InScope(
                memory=_candidate(row),
                filtered=row["filtered"],
                embedded=row["embedded"] is not None,
                similarity=None if row["distance"] is None else 1 - row["distance"],
            )
            for row in rows[:limit]
        )
        last = memories[-1].memory if len(rows) > limit else None
        return ScopePage(memories, _make_cursor(scope, last.created_at, last.memory_id) if last else None)

    async def memories_page(self, scope: Scope, *, limit: int = 50, cursor: str | None = None) -> MemoryPage:
        """A pair's memories (the scope names one character), newest first, at most `limit` (1 to 200).

        InvalidCursor: not one of ours, or of another scope.
        """
        size = max(1, min(limit, MAX_PAGE))
        past = _read_cursor(cursor, scope, datetime, UUID) if cursor else (None, None)
        rows = await self._fetch(
            "memories_page",
            scope.user_id,
            scope.character_ids[0],
            list(scope.kinds) or None,
            scope.date_from,
            scope.date_to,
            size + 1,
            *past,
            list(scope.categories) or None,
        )
        memories = tuple(_candidate(row) for row in rows[:size])
        last = memories[-1] if len(rows) > size else None
        return MemoryPage(memories, _make_cursor(scope, last.created_at, last.memory_id) if last else None)

    async def with_plans(
        self, user_id: str, character_ids: Sequence[str], first: date, last: date, limit: int
    ) -> list[Candidate]:
        """The newest memories that have a plan for one of the days, both ends included; each once."""
        rows = await self._fetch("with_plans", user_id, list(character_ids), first, last, limit)
        return [_candidate(row) for row in rows]

    async def pair_summary(self, user_id: str, character_id: str) -> PairSummary:
        """How much is stored of a pair, and its relationship state, still sealed."""
        [row] = await self._fetch("pair_summary", user_id, character_id)
        related = SealedRelationship(row["payload"], row["epoch"], row["version"]) if row["related"] else None
        return PairSummary(row["memories"], row["last_seq"], row["last_memory_at"], related)

    async def coverage(self, user_id: str, character_ids: Sequence[str], epoch: int) -> Coverage:
        """Which positions of a thread are covered (I11)."""
        [row] = await self._fetch("coverage", user_id, sorted(set(character_ids)), epoch)
        return Coverage(row["position"], tuple(zip(row["firsts"], row["lasts"], strict=True)))

    async def parked_windows(self, limit: int = 100) -> list[ParkedWindow]:
        """Windows that wait for an operator, oldest first."""
        rows = await self._fetch("parked_windows", limit)
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

    async def _fetch(self, name: str, *arguments: object) -> list[asyncpg.Record]:
        """The rows of a query. One that is cancelled gives its connection back within GIVE_BACK_SECONDS: the driver
        then waits for the server to end the query, which one that hangs never does, and the pool would run dry."""
        with store_errors():
            async with self._pool.acquire(timeout=GIVE_BACK_SECONDS) as connection:
                found: list[asyncpg.Record] = await connection.fetch(self._sql[name], *arguments)
                return found


def _candidate(row: asyncpg.Record, *, offline_vector: bool = False) -> Candidate:
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
        offline=row["offline"] or offline_vector,
    )


def _newest(memory: Candidate) -> tuple[float, str]:
    return (-memory.created_at.timestamp(), memory.memory_id)


def _make_cursor(scope: Scope, *place: object) -> str:
    """A cursor: the place of the last row of a page, and which scope it is a place in."""
    return urlsafe_b64encode(orjson.dumps((_digest(scope), *place))).decode().rstrip("=")


def _read_cursor(cursor: str, scope: Scope, *types: type) -> tuple[Any, ...]:
    try:
        digest, *place = orjson.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if digest != _digest(scope):
            raise InvalidCursor(
                "the cursor is of another request: user, characters and filters must be the same"
            )
        return tuple(_READ[kind](value) for kind, value in zip(types, place, strict=True))
    except (ValueError, TypeError, AttributeError) as error:
        if isinstance(error, InvalidCursor):
            raise
        raise InvalidCursor(
            "the cursor is not one that this service gave: leave it out to start anew"
        ) from None


def _moment(value: str) -> datetime:
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError("without a zone")
    return moment


_READ: dict[type, Callable[[str], object]] = {date: date.fromisoformat, datetime: _moment, UUID: UUID}


def _digest(scope: Scope) -> str:
    return hashlib.blake2b(orjson.dumps(scope), digest_size=8).hexdigest()
