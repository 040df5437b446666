"""The due scan: looks for what is due in the partitions that are ours, and only sends a tick.

Rows are changed by events alone: what falls due by the clock becomes an event first, in `memory.tick`.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from models.records import Output, Record
from models.topics import CHAT
from streams.consume import Step
from streams.faust_app import StreamApp
from streams.inbox import Partition
from streams.run import beside

log = logging.getLogger(__name__)


class DueScan:
    """Every `scan_seconds`, over the partitions that are ours at that time."""

    def __init__(self, app: StreamApp, step: Step, partitions: Mapping[int, Partition]) -> None:
        self._app = app
        self._step = step
        self._partitions = partitions
        self._ends: Any = None
        self._ticks: Any = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Scan in the background."""
        bootstrap = self._app.bootstrap
        self._ends = AIOKafkaConsumer(bootstrap_servers=bootstrap)
        self._ticks = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True)
        try:
            await self._ends.start()
            await self._ticks.start()
            async with beside(self._app, self._scan()):
                yield
        finally:
            await self._ticks.stop()
            await self._ends.stop()

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
