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
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from faust.types import TP, StreamT

from infra.faults import fault_point
from models.records import Batch, Record
from models.topics import CHAT, COMMAND, EXTRACTED, TICK
from streams.consume import Step, frames, next_events, source, to_record
from streams.due_scan import DueScan
from streams.faust_app import HELD_BACK, StreamApp
from streams.inbox import Inbox, Partition
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


class Ledger:
    """Wires a step to its topics. Make it before the app runs, and pass `setup` to `run_app`."""

    def __init__(self, app: StreamApp, step: Step) -> None:
        settings = app.settings
        self._app = app
        self._step = step
        self._feed = app.deliveries.feed(SOURCES)
        self._table = StateTable(app, settings.partitions)
        self._producers = Producers(
            app.bootstrap, CHANGELOG, LEDGER_GROUP, settings.transaction_timeout_seconds
        )
        self._partitions: dict[int, Partition] = {}
        self._command_ends: dict[int, int] = {}
        self._scan = DueScan(app, step, self._partitions)
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
    async def setup(self, app: StreamApp) -> AsyncIterator[None]:
        """What needs the running loop."""
        try:
            async with self._scan.running():
                yield
        finally:
            await self._producers.close()

    def healthy(self) -> bool:
        """False while a transaction makes no progress."""
        limit = time.monotonic() - 2 * self._app.settings.transaction_timeout_seconds
        return all(
            p.committing_since is None or p.committing_since > limit for p in self._partitions.values()
        )

    # --- from one assignment to the next ---

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
        partitions = dict(self._partitions)
        self._partitions.clear()
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
