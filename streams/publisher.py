"""Writes to the log on behalf of the API: acknowledged by all replicas, or refused within a time limit."""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

log = logging.getLogger(__name__)

PUBLISH_SECONDS = 5.0
STOP_SECONDS = 3.0


class LogUnavailable(Exception):
    """Kafka did not answer in time: what was sent may yet arrive, and may be sent again."""


class RecordTooLarge(Exception):
    """A record is larger than the log takes; nothing that came before it in the list is lost."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record stands in the log."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Draft:
    """A record to write: its key is the user id, its partition the user's."""

    topic: str
    partition: int
    key: bytes
    value: bytes


class Publisher:
    """A producer, and a consumer that only looks up offsets; both are made anew after a failure."""

    def __init__(self, bootstrap: str, *, seconds: float = PUBLISH_SECONDS) -> None:
        self._bootstrap = bootstrap
        self._seconds = seconds
        self._producer: AIOKafkaProducer | None = None
        self._offsets: AIOKafkaConsumer | None = None
        self._starting = asyncio.Lock()

    async def publish(self, drafts: Sequence[Draft]) -> list[Place]:
        """Write the records in order; their places, once the log has all of them.

        LogUnavailable: not all are known to be there. RecordTooLarge: one never will be.
        """
        try:
            async with asyncio.timeout(self._seconds):
                producer = await self._started_producer()
                sent = [
                    await producer.send(draft.topic, draft.value, key=draft.key, partition=draft.partition)
                    for draft in drafts
                ]
                # Shielded: giving up on an answer must not disturb the batch it shares with others.
                done = await asyncio.gather(*(asyncio.shield(future) for future in sent))
        except MessageSizeTooLargeError as error:
            raise RecordTooLarge("the record is larger than the log takes") from error
        except TimeoutError as error:
            raise LogUnavailable("no answer in time") from error
        except (KafkaError, OSError) as error:
            await self._drop_producer()
            raise LogUnavailable(type(error).__name__) from error
        return [Place(at.topic, at.partition, at.offset) for at in done]

    async def end_offset(self, topic: str, partition: int) -> int:
        """The offset after the last committed record of a partition; LogUnavailable if Kafka is away."""
        at = TopicPartition(topic, partition)
        try:
            async with asyncio.timeout(self._seconds):
                consumer = await self._started_offsets()
                ends = await consumer.end_offsets([at])
        except (KafkaError, OSError, TimeoutError) as error:
            await self._drop_offsets()
            raise LogUnavailable(type(error).__name__) from error
        return int(ends[at])

    async def stop(self) -> None:
        await self._drop_producer()
        await self._drop_offsets()

    async def _started_producer(self) -> AIOKafkaProducer:
        async with self._starting:
            if self._producer is None:
                producer = AIOKafkaProducer(
                    bootstrap_servers=self._bootstrap,
                    acks="all",
                    enable_idempotence=True,
                    max_request_size=1 << 20,
                )
                try:
                    await producer.start()
                except BaseException:
                    await _stop(producer)
                    raise
                self._producer = producer
            return self._producer

    async def _started_offsets(self) -> AIOKafkaConsumer:
        async with self._starting:
            if self._offsets is None:
                consumer = AIOKafkaConsumer(
                    bootstrap_servers=self._bootstrap,
                    group_id=None,
                    enable_auto_commit=False,
                    isolation_level="read_committed",
                )
                try:
                    await consumer.start()
                except BaseException:
                    await _stop(consumer)
                    raise
                self._offsets = consumer
            return self._offsets

    async def _drop_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await _stop(producer)

    async def _drop_offsets(self) -> None:
        consumer, self._offsets = self._offsets, None
        if consumer is not None:
            await _stop(consumer)


async def _stop(client: AIOKafkaProducer | AIOKafkaConsumer) -> None:
    """Stop a client, also one whose broker is away and would be waited for."""
    with contextlib.suppress(KafkaError, OSError, TimeoutError):
        async with asyncio.timeout(STOP_SECONDS):
            await client.stop()
