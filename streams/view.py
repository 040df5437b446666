"""A view of the ledger's table, kept from its changelog without a consumer group (design, section 1).

It reads committed rows only, so an open transaction of the ledger delays its own partition, no other.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from agents.codec import DestroyedKey
from agents.row_codec import pair_key_of
from models.rows import PairKey
from streams.topics import CHANGELOG

log = logging.getLogger(__name__)

POLL_MS = 500
POLL_RECORDS = 1_000
OFFSETS_SECONDS = 10.0
FIRST_RETRY_SECONDS = 0.5
LAST_RETRY_SECONDS = 5.0


class Store(Protocol):
    """Where a view keeps rows: in RocksDB (streams/view_store.py), or only keys (streams/key_view.py)."""

    @property
    def complete(self) -> bool: ...

    def mark_complete(self) -> None: ...

    def get(self, key: bytes) -> bytes | None: ...

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]: ...

    def offsets(self) -> dict[int, int]: ...

    def apply(self, rows: Iterable[tuple[bytes, bytes | None]], offsets: Mapping[int, int]) -> None: ...

    def clear(self) -> None: ...


class TableView:
    """Follows the changelog into a store, from where that stands, for as long as `run` runs.

    It goes on with what it has while Kafka is away. A store that is ahead of the log (the topic was made
    anew) or older than its beginning is emptied, and filled again.
    """

    def __init__(self, store: Store, bootstrap: str, partitions: int, *, topic: str = CHANGELOG) -> None:
        self._store = store
        self._topic = topic
        self._bootstrap = bootstrap
        self._partitions = [TopicPartition(topic, number) for number in range(partitions)]
        self._caught_up = asyncio.Event()
        self._consumer: AIOKafkaConsumer | None = None
        self._next: dict[TopicPartition, int] = {}
        self._targets: dict[TopicPartition, int] = {}

    def get(self, key: bytes) -> bytes | None:
        return self._store.get(key)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The rows whose keys start with `prefix`, in the order of their keys."""
        return self._store.scan(prefix)

    def wrapped_pair_key(self, user: str, character: str, epoch: int) -> bytes:
        """The wrapped key of a pair (agents.codec.PairKeys). A later epoch: this one's was destroyed."""
        row = self.get(PairKey(user, character).encode())
        if row is None:
            raise LookupError("the view has no key of this pair")
        current, wrapped = pair_key_of(row)
        if current > epoch:
            raise DestroyedKey(f"epoch {epoch}, now {current}")
        if current < epoch:
            raise LookupError("the view has an earlier key of this pair")
        return wrapped

    @property
    def complete(self) -> bool:
        """Whether it ever held the whole table; false while it is first built."""
        return self._store.complete

    @property
    def caught_up(self) -> bool:
        """Whether it has reached what was the end of the log when it (re)connected."""
        return self._caught_up.is_set()

    async def wait_caught_up(self) -> None:
        await self._caught_up.wait()

    def lag(self) -> int | None:
        """Committed records that are not applied yet, as last heard from the broker; None: not heard yet."""
        if self._consumer is None or not self._next:
            return None
        return sum(
            max(0, max(self._consumer.last_stable_offset(tp) or 0, self._targets.get(tp, 0)) - offset)
            for tp, offset in self._next.items()
        )

    async def run(self) -> None:
        """Follow the changelog until cancelled; connect again after every failure."""
        wait = FIRST_RETRY_SECONDS
        while True:
            try:
                await self._follow()
            except OffsetOutOfRangeError:
                log.warning("The changelog no longer has the view's offset: the view is rebuilt")
                self._store.clear()
            except (KafkaError, OSError, TimeoutError) as error:
                log.warning("The changelog cannot be read (%s); trying again", type(error).__name__)
            wait = FIRST_RETRY_SECONDS if self._caught_up.is_set() else min(wait * 2, LAST_RETRY_SECONDS)
            self._caught_up.clear()
            await asyncio.sleep(wait)

    async def _follow(self) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=None,
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="none",
        )
        try:
            await consumer.start()
            async with asyncio.timeout(OFFSETS_SECONDS):
                begins = await consumer.beginning_offsets(self._partitions)
                ends = await consumer.end_offsets(self._partitions)
            self._seek(consumer, begins, ends)
            self._consumer = consumer
            while True:
                self._note_caught_up()
                await self._poll(consumer)
        finally:
            self._consumer = None
            # Stopping may wait for a broker that is away, and has nothing to save.
            with contextlib.suppress(KafkaError, OSError, TimeoutError):
                async with asyncio.timeout(OFFSETS_SECONDS):
                    await consumer.stop()

    def _seek(
        self, consumer: AIOKafkaConsumer, begins: dict[TopicPartition, int], ends: dict[TopicPartition, int]
    ) -> None:
        stored = self._store.offsets()
        if any(offset > ends.get(TopicPartition(self._topic, p), 0) for p, offset in stored.items()):
            log.warning("The view is ahead of the changelog, which was made anew: the view is rebuilt")
            self._store.clear()
            stored = {}
        consumer.assign(self._partitions)
        self._targets = ends
        self._next = {tp: stored.get(tp.partition, begins[tp]) for tp in self._partitions}
        for tp, offset in self._next.items():
            consumer.seek(tp, offset)

    async def _poll(self, consumer: AIOKafkaConsumer) -> None:
        fetched = await consumer.getmany(timeout_ms=POLL_MS, max_records=POLL_RECORDS)
        rows = [
            (record.key, record.value)
            for records in fetched.values()
            for record in records
            if record.key is not None
        ]
        # The position, not the last record's offset: it is past a transaction's marker too.
        positions = {tp: await consumer.position(tp) for tp in self._partitions}
        if rows:
            self._store.apply(rows, {tp.partition: positions[tp] for tp in fetched})
        self._next = positions

    def _note_caught_up(self) -> None:
        if self._caught_up.is_set():
            return
        if all(self._next[tp] >= end for tp, end in self._targets.items()):
            if not self._store.complete:
                self._store.mark_complete()
            self._caught_up.set()
