"""Sends a stateless role's records to the partition of their user, however long the broker is away."""

import asyncio
import logging

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from streams.partitioner import partition_for

log = logging.getLogger(__name__)

RETRY_SECONDS, RETRY_MAX_SECONDS = 0.5, 15.0


class UserTopic:
    """One topic, placed by user id. What is sent twice must do no harm: results and embeddings do none (I2, I6)."""

    def __init__(self, producer: AIOKafkaProducer, topic: str, partitions: int) -> None:
        self._producer = producer
        self._topic = topic
        self._partitions = partitions

    async def send(self, user_id: str, key: bytes, value: bytes) -> None:
        """Return when the broker has it. Raises KafkaError for what no waiting mends."""
        partition = partition_for(user_id, self._partitions)
        wait = RETRY_SECONDS
        while True:
            try:
                await self._producer.send_and_wait(self._topic, value, key=key, partition=partition)
                return
            except KafkaError as error:
                if not error.retriable:
                    raise
                log.warning(
                    "cannot send to %s (%s): trying again in %s s", self._topic, type(error).__name__, wait
                )
            await asyncio.sleep(wait)
            wait = min(wait * 2, RETRY_MAX_SECONDS)
