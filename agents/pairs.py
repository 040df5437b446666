"""Where a pair stands: its threads and relationship by the ledger's rows, its memories by the index."""

import asyncio
from datetime import UTC, datetime

from agents.opening import CannotBeOpened, MemoryOpener, answer_memory
from agents.ports import CannotOpen, Counters, RecallIndex, RowSource
from agents.row_codec import Overlay, RowCodec
from models.candidates import Coverage, Scope
from models.ids import split_cast
from models.memory import RelationshipState
from models.pair import PairStatus, ThreadStatus
from models.recall import MemoryList
from models.rows import PairKey, Rows, ThreadKey, ThreadQueue, ThreadRow, UserKey


class Pairs:
    """Answers what there is of a pair. `threshold` is the number of user messages that make a memory."""

    def __init__(
        self,
        *,
        index: RecallIndex,
        rows: RowSource,
        codec: RowCodec,
        opener: MemoryOpener,
        counters: Counters,
        threshold: int,
    ) -> None:
        self._index = index
        self._rows = rows
        self._codec = codec
        self._opener = opener
        self._counters = counters
        self._threshold = threshold

    async def status(self, user: str, character: str) -> PairStatus:
        """The pair's status; one that never spoke has no thread. StoreUnavailable when PostgreSQL is away."""
        rows = Overlay(self._rows.get, self._codec)
        owner = rows.get(UserKey(user))
        threads = [
            (cast, queue, thread)
            for cast, queue in sorted(owner.threads.items() if owner else ())
            if character in split_cast(cast) and (thread := rows.get(ThreadKey(user, cast))) is not None
        ]
        relationship, last_seq = self._pair(rows, user, character)
        summary, covered = await asyncio.gather(
            self._index.pair_summary(user, character),
            asyncio.gather(
                *(self._index.coverage(user, split_cast(cast), thread.epoch) for cast, _, thread in threads)
            ),
        )
        spoke = max((thread.last_timestamp for _, _, thread in threads), default=0)
        return PairStatus(
            threads=tuple(
                self._thread(cast, queue, thread, position)
                for (cast, queue, thread), position in zip(threads, covered, strict=True)
            ),
            relationship=relationship,
            memories=summary.memories,
            last_seq=max(last_seq, summary.last_seq),
            last_message_at=datetime.fromtimestamp(spoke / 1000, UTC) if spoke else None,
        )

    async def page(self, scope: Scope, *, limit: int, cursor: str | None) -> MemoryList:
        """A page of the memories of a pair (the scope names one character), opened. Those that do not open are left
        out; `degraded` tells a missing key. InvalidCursor; StoreUnavailable when PostgreSQL is away."""
        page = await self._index.memories_page(scope, limit=limit, cursor=cursor)
        memories = []
        unknown = offline = False
        for stored in page.memories:
            try:
                memories.append(answer_memory(stored, self._opener.open(stored)))
            except CannotBeOpened as error:
                self._counters.count(f"memory_{error.reason}")
                unknown = unknown or error.reason == "unknown_key"
            else:
                offline = offline or stored.offline
        return MemoryList(
            memories=tuple(memories),
            degraded="keys_unavailable" if unknown else None,
            offline=offline,
            cursor=page.cursor,
        )

    def _pair(self, rows: Rows, user: str, character: str) -> tuple[RelationshipState | None, int]:
        try:
            pair = rows.get(PairKey(user, character))
        except CannotOpen:
            self._counters.count("relationship_damaged")
            return None, 0
        return (pair.relationship, pair.last_seq) if pair else (None, 0)

    def _thread(self, cast: str, queue: ThreadQueue, thread: ThreadRow, covered: Coverage) -> ThreadStatus:
        return ThreadStatus(
            character_ids=split_cast(cast),
            last_position=thread.last_position,
            closed_position=thread.closed_position,
            # The index can be ahead of this view by a moment.
            covered_position=min(covered.position, thread.closed_position),
            buffered_user_messages=thread.user_messages,
            threshold=self._threshold,
            open=int(queue.open is not None),
            queued=len(queue.requeued) + max(0, queue.closed + 1 - queue.next),
            parked=queue.parked,
        )
