"""Tells the ledger which windows are covered, on `memory.tick`, so that it keeps their messages no longer (I11)."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence

from aiokafka import AIOKafkaProducer

from models.commands import CoveredTick
from models.index_rows import CoveredWindow
from models.topics import TICK
from streams.partitioner import partition_for

log = logging.getLogger(__name__)

SEND_SECONDS = 30.0


class TickCoverageReports:
    """Sends in the background, and gives up after a while: a report that is lost only costs room."""

    def __init__(self, producer: AIOKafkaProducer, partitions: int) -> None:
        self._producer = producer
        self._partitions = partitions
        self._sending: set[asyncio.Task[None]] = set()

    def report(self, windows: Sequence[CoveredWindow]) -> None:
        """A tick for each thread; returns at once."""
        threads: dict[tuple[str, tuple[str, ...], int], set[int]] = defaultdict(set)
        for window in windows:
            threads[window.user_id, window.character_ids, window.epoch].add(window.number)
        ticks = [
            CoveredTick(user_id=user, character_ids=characters, epoch=epoch, numbers=tuple(sorted(numbers)))
            for (user, characters, epoch), numbers in threads.items()
        ]
        if ticks:
            task = asyncio.create_task(self._send(ticks), name="coverage report")
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def close(self) -> None:
        """Give up what has not been sent."""
        for task in self._sending:
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)

    async def _send(self, ticks: Sequence[CoveredTick]) -> None:
        try:
            async with asyncio.timeout(SEND_SECONDS):
                sent = [
                    await self._producer.send(
                        TICK,
                        tick.model_dump_json().encode(),
                        key=tick.user_id.encode(),
                        partition=partition_for(tick.user_id, self._partitions),
                    )
                    for tick in ticks
                ]
                await asyncio.gather(*sent)
        except Exception as error:  # noqa: BLE001  # the next report of the thread does as well
            log.warning("The ledger was not told what is covered: %s", type(error).__name__)
