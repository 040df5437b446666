"""Topics of their own for tests, in the shared broker, and what is written to them."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from uuid import uuid4

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from streams.topics import TopicSpec

Row = tuple[bytes, bytes | None]


async def new_topic(bootstrap: str, name: str | None = None, partitions: int = 2) -> str:
    """A fresh topic; its name. `name` must not exist."""
    topic = name or f"test-{uuid4().hex}"
    async with admin(bootstrap) as client:
        await client.create_topics(
            [NewTopic(topic, partitions, 1, topic_configs={"cleanup.policy": "compact"})]
        )
    return topic


async def new_topics(bootstrap: str, specs: Iterable[TopicSpec], partitions: int) -> None:
    async with admin(bootstrap) as client:
        await client.create_topics(
            [NewTopic(spec.name, partitions, 1, topic_configs=spec.config) for spec in specs]
        )


async def delete_topic(bootstrap: str, topic: str) -> None:
    async with admin(bootstrap) as client:
        await client.delete_topics([topic])


async def write(bootstrap: str, topic: str, partition: int, rows: Iterable[Row]) -> None:
    async with producer(bootstrap) as client:
        for key, value in rows:
            await client.send_and_wait(topic, value, key=key, partition=partition)


@asynccontextmanager
async def admin(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def producer(bootstrap: str, transactional_id: str | None = None) -> AsyncIterator[AIOKafkaProducer]:
    client = AIOKafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=transactional_id, retry_backoff_ms=5
    )
    await client.start()
    try:
        yield client
    finally:
        await client.stop()
