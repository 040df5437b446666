"""How far `memory.created` is embedded: offsets of a group of its own, which nobody joins.

The indexer's own group follows the slower of its two agents, and goes back to the beginning when PostgreSQL is
rebuilt; what was embedded then must not be embedded again (R19).
"""

import asyncio
import logging
from collections.abc import Collection

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from models.topics import CREATED
from streams.topics import EMBED_GROUP

log = logging.getLogger(__name__)

COMMIT_SECONDS = 1.0


class EmbedProgress:
    """Next offsets by partition, kept here and committed in the background."""

    def __init__(self, bootstrap: str, *, group: str = EMBED_GROUP) -> None:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False
        )
        self._next: dict[int, int] = {}
        self._changed: set[int] = set()

    async def start(self) -> None:
        await self._consumer.start()

    async def stop(self) -> None:
        await self.commit()
        await self._consumer.stop()

    async def assign(self, partitions: Collection[int]) -> dict[int, int]:
        """These partitions are ours now: where each goes on. KafkaError: the broker did not tell."""
        places = [TopicPartition(CREATED, partition) for partition in partitions]
        self._consumer.assign(places)
        found = await asyncio.gather(*(self._consumer.committed(place) for place in places))
        self._changed.clear()
        self._next = {place.partition: offset or 0 for place, offset in zip(places, found, strict=True)}
        return dict(self._next)

    def next_offset(self, partition: int) -> int:
        return self._next.get(partition, 0)

    def advance(self, partition: int, next_offset: int) -> None:
        """All before `next_offset` is embedded. Nothing where the partition is no longer ours."""
        if next_offset > self._next.get(partition, next_offset):
            self._next[partition] = next_offset
            self._changed.add(partition)

    async def commit(self) -> None:
        """Commit what has changed; a failure is only told, since the next commit covers it."""
        changed, self._changed = self._changed, set()
        if not changed:
            return
        try:
            await self._consumer.commit({TopicPartition(CREATED, p): self._next[p] for p in changed})
        except KafkaError as error:
            self._changed |= changed & self._next.keys()  # others may have been assigned meanwhile
            log.warning("How far memories are embedded could not be committed (%s)", type(error).__name__)

    async def run(self) -> None:
        """Commit every second until cancelled."""
        while True:
            await asyncio.sleep(COMMIT_SECONDS)
            await self.commit()
