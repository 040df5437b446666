"""One batch of one partition: all of it in the log, then in RocksDB, or nothing (I5).

1. Fold the events over the committed rows: outputs and changed rows.
2. One Kafka transaction of the partition's own producer:
   a. the outputs,
   b. the changed rows to the changelog, with the row of source offsets,
   c. the source offsets to the consumer group (for lag, and for whoever looks),
   d. commit.
3. The same rows into RocksDB with their changelog offset, without an await after the commit. A kill
   between 2 and 3 is mended by the next start's recovery.

Any error in step 2 ends the process at once with exit code 70: log and state may differ, or another
worker owns the partition. The next start fences, recovers and goes on.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import orjson
from aiokafka import AIOKafkaProducer
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from infra.faults import fault_point
from models.records import Batch, Headers, Output, Record
from streams.recovery import OFFSETS_KEY, RECOVERY_KEY

log = logging.getLogger(__name__)

EXIT_TRANSACTION = 70
# Records go out in batches of about this size; the broker refuses one over 1 MiB.
BATCH_BYTES = 700_000

Row = tuple[bytes, bytes | None, Headers]


def give_up(partition: int, error: BaseException) -> NoReturn:
    """End the process: what happened to the transaction is not known, and nothing may be done on top."""
    log.critical(
        "Transaction of partition %d failed with %s; the process ends, the next start recovers",
        partition,
        type(error).__name__,
    )
    logging.shutdown()
    sys.stderr.flush()
    os._exit(EXIT_TRANSACTION)


class Producers:
    """The transactional producer of each assigned partition."""

    def __init__(self, bootstrap: str, changelog: str, group: str, timeout_seconds: float) -> None:
        self._bootstrap = bootstrap
        self._changelog = changelog
        self._group = group
        self._timeout = timeout_seconds
        self._producers: dict[int, Any] = {}

    async def fence(self, partitions: Iterable[int]) -> None:
        """New producers for these partitions, retained ones too, and a tombstone to each changelog."""
        await self.close()
        wanted = sorted(partitions)
        made = {partition: self._make(partition) for partition in wanted}
        self._producers = made
        await asyncio.gather(*(producer.start() for producer in made.values()))
        await self._mark(wanted)

    async def close(self) -> None:
        producers, self._producers = self._producers, {}
        await asyncio.gather(*(producer.stop() for producer in producers.values()), return_exceptions=True)

    def _make(self, partition: int) -> Any:
        return AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            transactional_id=f"ledger-{partition}",
            transaction_timeout_ms=int(self._timeout * 1000),
            acks="all",
            max_batch_size=BATCH_BYTES,
            # Each transaction starts before the last one's markers are written, and is told to wait.
            retry_backoff_ms=5,
        )

    async def _mark(self, partitions: Sequence[int]) -> None:
        if not partitions:
            return
        async with AIOKafkaProducer(bootstrap_servers=self._bootstrap, acks="all") as plain:
            sent = [
                await plain.send(self._changelog, key=RECOVERY_KEY, value=None, partition=partition)
                for partition in partitions
            ]
            await asyncio.gather(*sent)

    async def commit(
        self,
        partition: int,
        outputs: Sequence[Output],
        rows: Mapping[bytes, bytes | None],
        offsets: Mapping[str, int],
    ) -> int:
        """Step 2: the changelog offset of the last row. `offsets`: the next of each topic that had events."""
        try:
            async with asyncio.timeout(2 * self._timeout):
                return await self._transaction(partition, outputs, rows, offsets)
        except BaseException as error:  # noqa: BLE001  # a cancelled commit too has an unknown outcome
            give_up(partition, error)

    async def _transaction(
        self,
        partition: int,
        outputs: Sequence[Output],
        rows: Mapping[bytes, bytes | None],
        offsets: Mapping[str, int],
    ) -> int:
        producer = self._producers[partition]
        await producer.begin_transaction()
        # 2a, 2b: all sends are under way before any is awaited.
        by_place: dict[tuple[str, int], list[Row]] = {}
        for output in outputs:
            place = by_place.setdefault((output.topic, output.partition), [])
            place.append((output.key, output.value, output.headers))
        sent = [await _send(producer, place, found) for place, found in by_place.items()]
        changelog = (self._changelog, partition)
        sent.append(await _send(producer, changelog, [(key, value, ()) for key, value in rows.items()]))
        # 2c
        positions = {
            TopicPartition(topic, partition): OffsetAndMetadata(offset, "")
            for topic, offset in offsets.items()
        }
        await producer.send_offsets_to_transaction(positions, self._group)
        last = -1
        for batches in sent:
            for count, future in batches:
                last = (await future).offset + count - 1
        fault_point("ledger.inside_transaction")
        # 2d
        await producer.commit_transaction()
        fault_point("ledger.after_commit")
        return last


async def _send(producer: Any, place: tuple[str, int], rows: Iterable[Row]) -> list[tuple[int, Any]]:
    """Send rows in as few batches as hold them: a future for each row would cost more than the row."""
    topic, partition = place
    sent: list[tuple[int, Any]] = []
    builder = producer.create_batch()
    for key, value, headers in rows:
        if builder.append(timestamp=None, key=key, value=value, headers=list(headers)) is None:
            sent.append(
                (builder.record_count(), await producer.send_batch(builder, topic, partition=partition))
            )
            builder = producer.create_batch()
            builder.append(timestamp=None, key=key, value=value, headers=list(headers))
    builder.close()
    sent.append((builder.record_count(), await producer.send_batch(builder, topic, partition=partition)))
    return sent


def next_offsets(records: Iterable[Record]) -> dict[str, int]:
    """Where each topic of these records is to be read on."""
    return {record.topic: record.offset + 1 for record in records}


def rows_of(batch: Batch, offsets: Mapping[str, int]) -> dict[bytes, bytes | None]:
    """The batch's rows, and the row of source offsets: the next of every topic of the partition."""
    return {**batch.changes, OFFSETS_KEY: orjson.dumps(dict(offsets))}
