"""Watches `memory.dead` for records in the wrong partition: a producer with another partitioner.

Such a producer loses nothing (`keepsake dead retry`), but its users are not remembered, and nobody looks at
dead letters before something seems wrong. Readiness tells of it; the service stays ready.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable

import orjson
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from models.topics import DEAD

log = logging.getLogger(__name__)

WINDOW_SECONDS = 3_600.0
RETRY_SECONDS = 5.0
WRONG_PARTITION = "wrong_partition"


class MisplacedWatch:
    """Counts the misplaced records of the last hour."""

    def __init__(self, bootstrap: str, partitions: int, clock: Callable[[], float] = time.time) -> None:
        self._bootstrap = bootstrap
        self._partitions = [TopicPartition(DEAD, number) for number in range(partitions)]
        self._clock = clock
        self._seen: deque[float] = deque()

    @property
    def warnings(self) -> list[str]:
        """A sentence on the misplaced records of the last hour; nothing if there are none."""
        while self._seen and self._seen[0] < self._clock() - WINDOW_SECONDS:
            self._seen.popleft()
        if not self._seen:
            return []
        return [
            f"{len(self._seen)} records of the last hour came to the wrong partition: a producer does not use "
            "Kafka's default partitioner (in librdkafka: partitioner=murmur2_random). Mend it, then run "
            "`keepsake dead retry --all`"
        ]

    def take(self, value: bytes | None, timestamp: float) -> None:
        """Take in one dead letter; `timestamp` is its record's, in seconds."""
        try:
            letter = orjson.loads(value or b"")
        except orjson.JSONDecodeError:
            return
        if isinstance(letter, dict) and letter.get("reason") == WRONG_PARTITION:
            self._seen.append(timestamp)

    async def run(self) -> None:
        """Follow the topic until cancelled, over every absence of the broker."""
        while True:
            try:
                await self._follow()
            except (KafkaError, OSError) as error:
                log.debug("memory.dead cannot be followed (%s)", type(error).__name__)
            self._seen.clear()
            await asyncio.sleep(RETRY_SECONDS)

    async def _follow(self) -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap, isolation_level="read_committed")
        try:
            await consumer.start()
            consumer.assign(self._partitions)
            since = round((self._clock() - WINDOW_SECONDS) * 1000)
            starts = await consumer.offsets_for_times(dict.fromkeys(self._partitions, since))
            ends = await consumer.end_offsets(self._partitions)
            for partition in self._partitions:
                found = starts.get(partition)
                consumer.seek(partition, found.offset if found else ends[partition])
            async for record in consumer:
                self.take(record.value, record.timestamp / 1000)
        finally:
            await consumer.stop()
