"""The index step: `memory.created`, `.embedded` and `.changed` to PostgreSQL (I6).

It opens vectors only. A memory's key, which opens its vector, is in the memory's own record; the two can
come in either order, so a vector whose memory is not stored yet is stored sealed, and opened with it.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from agents.codec import DestroyedKey, MemoryCipher, PairKeys
from agents.patience import when_available, when_known
from agents.ports import CannotOpen, Counters, DeadLetters, Fault
from agents.published import parse_changed, parse_created, parse_embedded
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
from models.messages import InvalidEvent
from models.published import TOKENS, MemoryEmbedded, WindowChanged
from models.records import Record
from models.store_errors import StoreRejected
from models.topics import CREATED, EMBEDDED

log = logging.getLogger(__name__)

KEY_SECONDS = 30.0
# 768 float32.
VECTOR_BYTES = 768 * 4
# A report can be lost: at a kill or a rebalance after the commit, while Kafka is away, in a topic that expires. So the
# first report of a thread since this worker was assigned, and one an hour later, says again what is covered already;
# the last so many windows, which the ledger looks up in 10 ms, are more than one lost batch can hold.
REPEAT_WINDOWS = 1_000
REPEAT_SECONDS = 3_600.0
# Of so many threads it is remembered when that was; an older one is repeated early, which does no harm.
REPEAT_THREADS = 10_000

Place = tuple[str, int]
Thread = tuple[str, tuple[str, ...], int]


class IndexBehind(Exception):
    """PostgreSQL has applied less than the offset that was started from while it was away."""


class IndexStore(Protocol):
    """Rows of the index (sql/index_store.py). StoreUnavailable, StoreRejected."""

    async def apply(self, rows: Sequence[IndexRow], offsets: Mapping[Place, int]) -> None: ...

    async def applied_offsets(self) -> dict[Place, int]: ...

    async def sealed_memories(self, memory_ids: Sequence[str]) -> dict[str, SealedMemory]: ...

    async def sealed_vectors(self, memory_ids: Sequence[str]) -> list[VectorRow]: ...

    async def covered(self, memory_ids: Sequence[str], request_ids: Sequence[str]) -> list[CoveredWindow]: ...

    async def covered_of_thread(
        self, user_id: str, character_ids: Sequence[str], epoch: int, limit: int
    ) -> list[CoveredWindow]: ...


class CoverageReports(Protocol):
    """Tells the ledger which windows are covered; neither waits nor fails (streams/coverage_reports.py)."""

    def report(self, windows: Sequence[CoveredWindow]) -> None: ...


class Index:
    """Handles batches of the three topics, of one partition number each."""

    def __init__(
        self,
        store: IndexStore,
        cipher: MemoryCipher,
        keys: PairKeys,
        dead: DeadLetters,
        coverage: CoverageReports,
        counters: Counters,
        fault: Fault,
        *,
        key_seconds: float = KEY_SECONDS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._cipher = cipher
        self._keys = keys
        self._dead = dead
        self._coverage = coverage
        self._counters = counters
        self._fault = fault
        self._key_seconds = key_seconds
        self._now = now
        self._unchecked: dict[Place, int] = {}
        self._repeated: OrderedDict[Thread, float] = OrderedDict()

    def started_unchecked(self, positions: Mapping[Place, int]) -> None:
        """Called at each assignment: these positions were taken without PostgreSQL, and are compared with it before
        anything is written.

        IndexBehind then leaves `handle_batch`, and a new start takes the right ones.
        """
        self._unchecked = dict(positions)
        # What was in flight may be stored and not reported, here or at the worker that had the partition before.
        self._repeated.clear()

    async def handle_batch(self, records: Sequence[Record]) -> None:
        if self._unchecked:
            await self._check()
        parsed = [(record, row) for record in records if (row := await self._parse(record)) is not None]
        opened = await self._open_vectors(parsed)
        offsets: dict[Place, int] = {}
        for record in records:
            offsets[record.topic, record.partition] = record.offset + 1
        await self._write(opened, offsets)
        await self._report_covered(opened)
        self._counters.count("records_indexed", len(records))

    async def _check(self) -> None:
        applied = await when_available(self._store.applied_offsets)
        for place, position in self._unchecked.items():
            if applied.get(place, 0) < position:
                raise IndexBehind(f"{place[0]}[{place[1]}] stands at {applied.get(place, 0)}, not {position}")
        self._unchecked = {}

    async def _parse(self, record: Record) -> IndexRow | None:
        """The row of a record; None where there is none, which a dead letter may tell."""
        if record.value is None:
            return None  # a tombstone: nothing of ours to write
        try:
            if record.topic == CREATED:
                return CreatedRow(parse_created(record), record.partition, record.offset)
            if record.topic == EMBEDDED:
                return _embedded_row(parse_embedded(record), record.offset)
            changed = parse_changed(record)
        except InvalidEvent as invalid:
            await self._dead.send(record, invalid.reason, invalid.detail)
            return None
        if changed is None:
            return None
        if isinstance(changed, WindowChanged):
            return WindowRow(changed, record.offset)
        return RelationshipRow(changed, record.offset)

    async def _open_vectors(
        self, parsed: Sequence[tuple[Record, IndexRow]]
    ) -> list[tuple[Record | None, IndexRow]]:
        """The rows, with every vector opened whose memory is known; those too that waited for one of these memories."""
        memories = {
            row.memory.memory_id: SealedMemory(
                row.memory.memory_id, row.memory.user_id, row.memory.characters, row.memory.payload
            )
            for _, row in parsed
            if isinstance(row, CreatedRow)
        }
        waiting = await when_available(lambda: self._store.sealed_vectors(list(memories)))
        missing = {
            row.memory_id for _, row in parsed if isinstance(row, VectorRow) and row.memory_id not in memories
        }
        memories |= await when_available(lambda: self._store.sealed_memories(sorted(missing)))
        rows: list[tuple[Record | None, IndexRow]] = []
        vectors: list[tuple[Record | None, VectorRow]] = [(None, row) for row in waiting]
        for record, row in parsed:
            if isinstance(row, VectorRow) and row.memory_id in memories:
                vectors.append((record, row))
            else:
                rows.append((record, row))
        opened = await asyncio.gather(
            *(self._open(record, row, memories[row.memory_id]) for record, row in vectors)
        )
        rows += [(record, row) for (record, _), row in zip(vectors, opened, strict=True) if row is not None]
        return rows

    async def _open(self, record: Record | None, row: VectorRow, memory: SealedMemory) -> VectorRow | None:
        """The row, opened. None: it is not to be written; one that waited (`record` None) stays as it is."""
        at = (memory.memory_id, memory.user_id, memory.characters, memory.payload, self._keys)
        try:
            key = await when_known(lambda: self._cipher.open_key(*at), self._key_seconds)
            vector = self._cipher.open_vector(key, row.memory_id, row.model, row.sealed or b"")
            if len(vector) == VECTOR_BYTES:
                return replace(row, opened=vector, sealed=None, user_id=memory.user_id)
            reason, detail = "invalid_vector", f"it has {len(vector)} bytes, not {VECTOR_BYTES}"
        except DestroyedKey:
            self._counters.count("destroyed_key")
            return None
        except LookupError:
            reason, detail = "unknown_key", f"no key of its pairs within {self._key_seconds} s"
        except CannotOpen:
            reason, detail = "cannot_open", "the vector does not open with its memory's key"
        if record is not None:
            await self._dead.send(record, reason, detail)
        return None

    async def _write(
        self, rows: Sequence[tuple[Record | None, IndexRow]], offsets: Mapping[Place, int]
    ) -> None:
        """Rows and offsets in one transaction; if PostgreSQL takes them not, row by row, to find which."""
        try:
            await when_available(lambda: self._store.apply([row for _, row in rows], offsets))
        except StoreRejected:
            for record, row in rows:
                await self._write_one(record, row)
            await when_available(lambda: self._store.apply([], offsets))
        self._fault("indexer.after_commit")

    async def _report_covered(self, rows: Sequence[tuple[Record | None, IndexRow]]) -> None:
        """Tell the ledger which windows these rows have covered; of some threads those before as well."""
        memories: set[str] = set()
        requests: set[str] = set()
        for _, row in rows:
            match row:
                case CreatedRow(memory):
                    memories.add(memory.memory_id)
                case TokensRow(memory_id):
                    memories.add(memory_id)
                case WindowRow(changed):
                    requests.add(changed.request_id)
        if not memories and not requests:
            return
        at = (sorted(memories), sorted(requests))
        covered = await when_available(lambda: self._store.covered(*at))
        threads: dict[Thread, None] = {
            (window.user_id, window.character_ids, window.epoch): None for window in covered
        }
        repeated = [thread for thread in threads if self._is_to_repeat(thread)]
        for thread in repeated:
            covered += await when_available(partial(self._store.covered_of_thread, *thread, REPEAT_WINDOWS))
        if covered:
            self._coverage.report(list(dict.fromkeys(covered)))
            self._counters.count("coverage_reports", len(threads))
        for thread in repeated:
            self._repeated[thread] = self._now()
            self._repeated.move_to_end(thread)
        while len(self._repeated) > REPEAT_THREADS:
            self._repeated.popitem(last=False)

    def _is_to_repeat(self, thread: Thread) -> bool:
        last = self._repeated.get(thread)
        return last is None or self._now() - last >= REPEAT_SECONDS

    async def _write_one(self, record: Record | None, row: IndexRow) -> None:
        try:
            await when_available(lambda: self._store.apply([row], {}))
        except StoreRejected as error:
            if record is not None:
                await self._dead.send(record, "rejected", f"PostgreSQL does not take its values ({error})")


def _embedded_row(embedded: MemoryEmbedded, offset: int) -> IndexRow | None:
    if embedded.what == TOKENS:
        return TokensRow(
            embedded.memory_id, embedded.text_version, embedded.tokens or (), embedded.offline, offset
        )
    if embedded.vector is None:
        return None
    return VectorRow(
        memory_id=embedded.memory_id,
        model=embedded.what,
        text_version=embedded.text_version,
        offline=embedded.offline,
        offset=offset,
        opened=None,
        sealed=embedded.vector,
    )
