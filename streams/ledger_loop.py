"""The ledger's loop: one agent over four topics, one line of transactions per partition number.

The agent sorts what arrives into inboxes by partition number. Each assigned number has a task that takes
what may be folded (streams/inbox.py), at most `batch_events`, and commits it (streams/transaction.py).
While one partition's transaction is on its way the others fold. A batch waits up to `batch_milliseconds`
for events that were fetched already; a lone message never waits. Folding is CPU work in one loop, so never
two at once.

When partitions are revoked the transactions under way are finished first; a partition is folded again
only after fencing, recovery and new positions. Positions are those of the recovered rows, which hold the
next offset of every source topic: the consumer group's can expire, or belong to a topic that was recreated.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition
from faust.types import TP, StreamT

from infra.faults import fault_point
from models.records import Batch, Output, Record
from models.topics import CHAT, COMMAND, EXTRACTED, TICK
from streams.consume import Step, frames, next_events, source, to_record
from streams.faust_app import HELD_BACK, StreamApp
from streams.inbox import Inbox
from streams.recovery import FencedTables, StateTable
from streams.run import Refused
from streams.topics import CHANGELOG, LEDGER_GROUP
from streams.transaction import Producers, give_up, next_offsets, rows_of

log = logging.getLogger(__name__)

BRING_BACK = (
    "Bring back the topic that belongs to this state; or, to begin anew, stop all roles, delete the topic "
    f"{CHANGELOG} and the consumer group {LEDGER_GROUP}, and run `keepsake provision`"
)
SOURCES = (CHAT, EXTRACTED, COMMAND, TICK)


class Partition:
    """One partition number that is ours: its inbox, and the task that commits what it gives."""

    def __init__(self, number: int, inbox: Inbox, offsets: dict[str, int]) -> None:
        self.number = number
        self.inbox = inbox
        self.offsets = offsets  # the next of each topic, as of the rows
        self.arrived = asyncio.Event()
        self.committing_since: float | None = None
        self.task: asyncio.Task[None] | None = None


class Ledger:
    """Wires a step to its topics. Make it before the app runs, and pass `setup` to `run_app`."""

    def __init__(self, app: StreamApp, step: Step) -> None:
        settings = app.settings
        self._app = app
        self._step = step
        self._bootstrap = bootstrap = app.bootstrap
        self._feed = app.deliveries.feed(SOURCES)
        self._table = StateTable(app, settings.partitions)
        self._producers = Producers(bootstrap, CHANGELOG, LEDGER_GROUP, settings.transaction_timeout_seconds)
        self._partitions: dict[int, Partition] = {}
        self._command_ends: dict[int, int] = {}
        self._ends: Any = None
        self._ticks: Any = None
        tables = app.tables
        assert isinstance(tables, FencedTables), "make_app(TableManager=FencedTables)"
        tables.fence = self._fence
        app.first_positions = self._first_positions
        app.on_assigned.append(self._assigned)
        app.on_revoked.append(self._revoked)
        app.on_stopping.append(self._revoked)
        app.held_back = self._held_back
        app.agent(source(app, SOURCES), name="ledger")(self._agent)

    @asynccontextmanager
    async def setup(self, _app: StreamApp) -> AsyncIterator[None]:
        """What needs the running loop: clients for ends of partitions and for ticks, and the due scan."""
        self._ends = AIOKafkaConsumer(bootstrap_servers=self._bootstrap)
        self._ticks = AIOKafkaProducer(bootstrap_servers=self._bootstrap, acks="all", enable_idempotence=True)
        try:
            await self._ends.start()
            await self._refuse_other_partition_counts()
            await self._ticks.start()
            scan = asyncio.create_task(self._scan())
            try:
                yield
            finally:
                scan.cancel()
                await asyncio.gather(scan, return_exceptions=True)
        finally:
            await self._ticks.stop()
            await self._ends.stop()
            await self._producers.close()

    def healthy(self) -> bool:
        """False while a transaction makes no progress."""
        limit = time.monotonic() - 2 * self._app.settings.transaction_timeout_seconds
        return all(
            p.committing_since is None or p.committing_since > limit for p in self._partitions.values()
        )

    # --- from one assignment to the next ---

    async def _refuse_other_partition_counts(self) -> None:
        wanted = self._app.settings.partitions
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        try:
            await admin.start()
            described = await admin.describe_topics([*SOURCES, CHANGELOG])
        finally:
            await admin.close()
        for topic in described:
            found = len(topic["partitions"])
            if found != wanted:
                raise Refused(
                    f"topic {topic['topic']} has {found} partitions, KEEPSAKE_PARTITIONS is {wanted}: "
                    + ("set it to the number they were made with" if found else "run `keepsake provision`")
                )

    async def _fence(self, partitions: set[int]) -> None:
        """Before recovery: nobody else writes to these partitions from here on."""
        assignment = self._app.consumer.assignment()
        numbers = {topic: {tp.partition for tp in assignment if tp.topic == topic} for topic in SOURCES}
        if any(found != partitions for found in numbers.values()):
            raise Refused(
                "this worker was given different partitions of its topics, so a user's events would reach "
                "two workers: all ledgers must run the same version; stop all of them, then start them again"
            )
        await self._producers.fence(partitions)

    async def _first_positions(self, tps: set[TP]) -> Mapping[TP, int]:
        """Where to read from: after the last event that the recovered rows hold."""
        if not tps:
            return {}
        consumer = self._app.consumer
        committed = await consumer.committed(tps)
        starts = await consumer.earliest_offsets(*tps)
        ends = await consumer.highwaters(*tps)
        rows = {number: self._table.offsets(number) for number in {tp.partition for tp in tps}}
        positions: dict[TP, int] = {}
        for tp in tps:
            applied = rows[tp.partition].get(tp.topic)
            if applied is None and committed[tp]:
                raise Refused(
                    f"the group {LEDGER_GROUP} has read {tp.topic}/{tp.partition} up to {committed[tp]}, but "
                    f"the topic {CHANGELOG} does not have the state that came of it: {BRING_BACK}"
                )
            position = starts.get(tp) or 0 if applied is None else applied
            if position > (ends.get(tp) or 0):
                raise Refused(
                    f"{tp.topic}/{tp.partition} ends at {ends.get(tp) or 0}, but the state has applied it "
                    f"up to {position}: the topic was recreated or cut off. {BRING_BACK}"
                )
            positions[tp] = position
        self._command_ends = {tp.partition: ends.get(tp) or 0 for tp in tps if tp.topic == COMMAND}
        return positions

    def _assigned(self, positions: Mapping[TP, int]) -> None:
        for number in sorted({tp.partition for tp in positions}):
            self._step.assigned(number, self._table.items(number))
            inbox = Inbox(self._step.chat_offset, self._command_ends[number])
            offsets = {tp.topic: at for tp, at in positions.items() if tp.partition == number}
            partition = Partition(number, inbox, offsets)
            partition.task = asyncio.create_task(self._commit_all(partition))
            self._partitions[number] = partition

    async def _revoked(self) -> None:
        """Finish the transactions under way, and begin no other."""
        partitions, self._partitions = self._partitions, {}
        for partition in partitions.values():
            partition.arrived.set()
        await asyncio.gather(*(partition.task for partition in partitions.values() if partition.task))
        for number in partitions:
            self._step.revoked(number)

    # --- events ---

    async def _agent(self, stream: StreamT[Any]) -> None:
        while events := await next_events(stream, self._feed, self._app.settings.batch_events):
            for record in map(to_record, events):
                partition = self._partitions.get(record.partition)
                if partition is not None:
                    partition.inbox.add(record)
                    partition.arrived.set()

    def _held_back(self) -> set[TP]:
        """Partitions with enough events in hand: not fetched further until some are folded.

        Asked before each fetch, so here events that waited for the fetch position alone are looked at again.
        """
        held: set[TP] = set()
        for number, partition in self._partitions.items():
            if any(partition.inbox.size(topic) for topic in SOURCES):
                partition.arrived.set()
            held.update(TP(topic, number) for topic in SOURCES if partition.inbox.size(topic) > HELD_BACK)
        return held

    def _reached(self, number: int) -> dict[str, int]:
        """For chat and commands: the offset before which everything fetched is in the inbox or folded."""
        reached = {}
        for topic in (CHAT, COMMAND):
            tp = TP(topic, number)
            undelivered = self._feed.next_undelivered(tp)
            reached[topic] = (
                self._app.deliveries.fetched_to.get(tp, 0) if undelivered is None else undelivered
            )
        return reached

    async def _commit_all(self, partition: Partition) -> None:
        number, limit = partition.number, self._app.settings.batch_events
        while self._partitions.get(number) is partition:
            await self._fill(partition)
            records = partition.inbox.take(limit, self._reached(number))
            if not records:
                partition.arrived.clear()
                await partition.arrived.wait()
                continue
            # 1
            folded = self._fold(number, records)
            if folded is None:
                return
            fault_point("ledger.before_transaction")
            partition.committing_since = time.monotonic()
            try:
                await self._commit(partition, records, folded)
            except Exception as error:  # noqa: BLE001  # the log has the batch, the rows may not
                give_up(number, error)
            partition.committing_since = None

    async def _fill(self, partition: Partition) -> None:
        """Wait a little for events that were fetched and are on their way: a transaction for each is dear.

        A lone message has none behind it, and does not wait.
        """
        settings, chat = self._app.settings, TP(CHAT, partition.number)
        deadline = time.monotonic() + settings.batch_milliseconds / 1000
        while (  # noqa: ASYNC110  # a wake-up per event would cost more than this wait is to save
            partition.inbox.size(CHAT) < settings.batch_events
            and self._feed.next_undelivered(chat) is not None
            and time.monotonic() < deadline
        ):
            await asyncio.sleep(0.005)

    def _fold(self, number: int, records: list[Record]) -> Batch | None:
        try:
            return self._step.fold(number, records, self._table.rows(number))
        except Exception as error:  # noqa: BLE001  # whatever it is, no event may be passed over
            where = f"partition {number}, " + ", ".join(f"{r.topic}@{r.offset}" for r in records[:3])
            log.error("Stopping: folding failed at %s\n%s", where, frames(error))
            self._app.fail(f"folding failed with {type(error).__name__} at {where}")
            return None

    async def _commit(self, partition: Partition, records: list[Record], folded: Batch) -> None:
        number, offsets = partition.number, next_offsets(records)
        rows = rows_of(folded, {**partition.offsets, **offsets})
        # 2
        changelog_offset = await self._producers.commit(number, folded.outputs, rows, offsets)
        # 3
        self._table.write(number, rows, changelog_offset)
        fault_point("ledger.after_write")
        partition.offsets.update(offsets)
        self._step.committed(number, folded)
        for topic, offset in offsets.items():
            self._feed.finished_through(TP(topic, number), offset - 1)

    # --- ticks ---

    async def _scan(self) -> None:
        """Look for what is due, and only send a tick: rows are changed by events alone."""
        while True:
            await asyncio.sleep(self._app.settings.scan_seconds)
            try:
                await self._send_due()
            except KafkaError as error:
                log.warning("Ticks were not sent: %s; they are looked for again", type(error).__name__)

    async def _send_due(self) -> None:
        waiting = {number: list(p.inbox.waiting()) for number, p in self._partitions.items()}
        if not waiting:
            return
        chats = {number: TopicPartition(CHAT, number) for number in waiting}
        # Asked for now: a message that is in the log already must be before the tick, on replay as well.
        found = await self._ends.end_offsets(list(chats.values()))
        ends = {number: found[tp] for number, tp in chats.items()}
        now_ms = time.time_ns() // 1_000_000
        outputs: list[Output] = []
        for number, partition in self._partitions.items():
            if number not in ends:
                continue
            self._lower(partition, waiting[number], ends[number])
            outputs += self._step.due(number, now_ms, ends[number])
        sent = [
            await self._ticks.send(
                output.topic,
                output.value,
                key=output.key,
                partition=output.partition,
                headers=list(output.headers),
            )
            for output in outputs
        ]
        await asyncio.gather(*sent)

    def _lower(self, partition: Partition, waiting: Iterable[tuple[Record, int]], end: int) -> None:
        """An offset named past the end of the log can never be reached: it waits for the end instead."""
        for record, named in waiting:
            if named > end:
                log.warning(
                    "%s/%d@%d names offset %d of %s, which ends at %d: applied at its end",
                    record.topic,
                    record.partition,
                    record.offset,
                    named,
                    CHAT,
                    end,
                )
                partition.inbox.lower(record, end)
                partition.arrived.set()
