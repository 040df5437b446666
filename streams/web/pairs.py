"""`/v1/users/{user}/characters/{character}`: where a pair stands, its memories, and closing its window now."""

from datetime import date
from typing import Annotated
from uuid import uuid4

from fastapi import APIRouter, Query
from pydantic import BaseModel

from agents.pairs import Pairs
from agents.ports import Counters
from models.candidates import InvalidCursor, Scope
from models.commands import Flush
from models.memory import MemoryKind
from models.pair import PairStatus
from models.recall import Id, MemoryList
from models.store_errors import StoreUnavailable
from models.topics import CHAT, COMMAND
from streams.partitioner import partition_for
from streams.publisher import Draft, LogUnavailable
from streams.web.messages import Position, publish
from streams.web.ports import EventLog, ViewState
from streams.web.problems import Problem
from streams.web.requests import CharacterId, UserId

MAX_PAGE = 200
PAIR = "/v1/users/{user}/characters/{character}"


class Accepted(BaseModel):
    """A command that the log has; the ledger carries it out in its turn."""

    command_id: str
    position: Position


def pairs_router(
    pairs: Pairs, log: EventLog, view: ViewState, counters: Counters, partitions: int
) -> APIRouter:
    router = APIRouter(tags=["pairs"])

    @router.get(PAIR)
    async def get_pair(user: UserId, character: CharacterId) -> PairStatus:
        """Threads, relationship state and memories of a pair; one that never spoke has none of them."""
        if not view.complete:
            raise _unavailable("The view of the ledger's state is still being built.")
        try:
            return await pairs.status(user, character)
        except StoreUnavailable:
            raise _unavailable("PostgreSQL cannot be reached.") from None

    @router.get(f"{PAIR}/memories")
    async def get_memories(
        user: UserId,
        character: CharacterId,
        kind: Annotated[list[MemoryKind] | None, Query(description="may be repeated")] = None,
        category: Annotated[list[Id] | None, Query(description="may be repeated")] = None,
        date_from: date | None = None,
        date_to: date | None = None,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
        cursor: Annotated[str | None, Query(max_length=1_000)] = None,
    ) -> MemoryList:
        """A pair's memories, newest first; both dates are included."""
        scope = Scope(
            user_id=user,
            character_ids=(character,),
            kinds=tuple(kind or ()),
            categories=tuple(category or ()),
            date_from=date_from,
            date_to=date_to,
        )
        try:
            page = await pairs.page(scope, limit=limit, cursor=cursor)
        except InvalidCursor as error:
            raise Problem(422, f"{str(error)[0].upper()}{str(error)[1:]}.") from None
        except StoreUnavailable:
            raise _unavailable("PostgreSQL cannot be reached.") from None
        return page

    @router.post(f"{PAIR}/flush", status_code=202)
    async def post_flush(user: UserId, character: CharacterId) -> Accepted:
        """Close the windows that hold a user message now, at the messages that the log has by now."""
        partition = partition_for(user, partitions)
        try:
            end = await log.end_offset(CHAT, partition)
        except LogUnavailable:
            raise _unavailable("Kafka did not answer in time.") from None
        flush = Flush(command_id=str(uuid4()), user_id=user, character_id=character, chat_offset=end)
        draft = Draft(COMMAND, partition, user.encode(), flush.model_dump_json().encode())
        (position,) = await publish(log, [draft])
        counters.count("flushes")
        return Accepted(command_id=flush.command_id, position=position)

    return router


def _unavailable(detail: str) -> Problem:
    return Problem(503, f"{detail} Try again in a moment.", headers={"Retry-After": "2"})
