"""What an operator does about windows and records that are stuck: parked windows, dead letters."""

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError
from pydantic import ValidationError

from agents.dead_letters import open_dead_letter
from agents.ledger import ORIGIN_HEADER
from agents.ports import CannotOpen
from models.candidates import ParkedWindow
from models.commands import Retry
from models.dead import DeadLetter
from models.messages import InvalidEvent, parse_chat_message, parse_object
from models.records import Record
from models.store_errors import StoreUnavailable
from models.topics import CHAT, COMMAND, DEAD
from sql.pool import create_pool
from sql.recall_store import RecallStore
from streams.errors import Explained
from streams.partitioner import partition_for
from streams.places import database_url, kafka_bootstrap
from streams.sealer import open_sealer
from streams.settings import Settings
from streams.topics import TOPICS

POLL_MS = 500
READ_SECONDS = 10.0


class OperationError(Explained):
    """It cannot be done; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record stood, as an operator writes it: topic:partition:offset, without the topic in chat.message."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"

    @classmethod
    def parse(cls, text: str) -> "Place":
        parts = text.split(":")
        topic = parts[0] if len(parts) == 3 else CHAT
        if len(parts) not in (2, 3) or not all(part.isdigit() for part in parts[-2:]):
            raise OperationError(f"{text!r} is no place of a record: write it as `keepsake dead list` does")
        return cls(topic, int(parts[-2]), int(parts[-1]))


def place_of(letter: DeadLetter) -> Place:
    return Place(letter.topic, letter.partition, letter.offset)


# --- parked windows ---


async def parked_windows(settings: Settings, limit: int) -> list[ParkedWindow]:
    """Parked windows, the oldest first."""
    try:
        pool = await create_pool(database_url(settings), max_size=1)
        try:
            return await RecallStore(pool).parked_windows(limit)
        finally:
            await pool.close()
    except StoreUnavailable as error:
        raise OperationError(f"PostgreSQL does not answer ({error}): see `keepsake status`") from error


async def retry_windows(settings: Settings, windows: Sequence[ParkedWindow]) -> None:
    """Ask the ledger to take parked windows up again; returns when the log has the commands."""
    async with _producer(settings) as producer:
        for window in windows:
            command = Retry(
                command_id=str(uuid.uuid4()),
                user_id=window.user_id,
                character_ids=window.character_ids,
                epoch=window.epoch,
                number=window.number,
            )
            await producer.send_and_wait(
                COMMAND,
                command.model_dump_json().encode(),
                key=window.user_id.encode(),
                partition=partition_for(window.user_id, settings.partitions),
            )


# --- dead letters ---


async def dead_letters(settings: Settings) -> list[DeadLetter]:
    """Every dead letter that the log still has, the oldest record first."""
    letters: dict[Place, DeadLetter] = {}
    async with _consumer(settings) as consumer:
        partitions = [TopicPartition(DEAD, number) for number in range(settings.partitions)]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        await consumer.seek_to_beginning(*partitions)
        while await _behind(consumer, ends):
            for records in (await consumer.getmany(timeout_ms=POLL_MS)).values():
                for record in records:
                    try:
                        letter = DeadLetter.model_validate_json(record.value or b"")
                    except ValidationError:
                        continue  # not written by us
                    letters[place_of(letter)] = letter
    return sorted(letters.values(), key=lambda letter: (letter.timestamp, str(place_of(letter))))


async def original(settings: Settings, letter: DeadLetter) -> Record:
    """The record of a dead letter: its sealed copy, or the record at its place, if the log still has it."""
    try:
        record = open_dead_letter(letter, open_sealer(settings))
    except CannotOpen as error:
        raise OperationError(
            f"{place_of(letter)} was sealed by master keys that are not this deployment's ({error})"
        ) from error
    return record or await _read_at(settings, place_of(letter), letter.timestamp)


async def retry_letters(settings: Settings, letters: Sequence[DeadLetter]) -> list[tuple[Place, str | None]]:
    """Publish the records of dead letters again; for each its place, and why it was not published, if so.

    Chat goes to its user's partition and keeps the time of the first attempt (design, section 2); a record that
    would be refused again is not published.
    """
    outcomes: list[tuple[Place, str | None]] = []
    known = {spec.name for spec in TOPICS} - {DEAD}
    async with _producer(settings) as producer:
        for letter in letters:
            try:
                if letter.topic not in known:
                    raise OperationError(f"{letter.topic} is not a topic of ours")
                record = await original(settings, letter)
                headers = list(record.headers)
                if record.topic == CHAT and not any(name == ORIGIN_HEADER for name, _ in headers):
                    headers.append((ORIGIN_HEADER, str(record.timestamp).encode()))
                await producer.send_and_wait(
                    record.topic,
                    record.value,
                    key=record.key,
                    partition=_target(record, settings),
                    headers=headers,
                )
                outcomes.append((place_of(letter), None))
            except OperationError as error:
                outcomes.append((place_of(letter), str(error)))
    return outcomes


def _target(record: Record, settings: Settings) -> int:
    """The partition in which the record belongs; OperationError if it would be refused there again."""
    if record.topic != CHAT:
        return record.partition
    try:
        user = parse_object(record.value).get("user_id")
        parse_chat_message(
            record.value, key=record.key, timestamp=record.timestamp, offset=record.offset, zone=settings.zone
        )
    except InvalidEvent as invalid:
        raise OperationError(f"it would be refused again: {invalid}") from invalid
    return partition_for(str(user), settings.partitions)


async def _read_at(settings: Settings, place: Place, timestamp: int) -> Record:
    partition = TopicPartition(place.topic, place.partition)
    async with _consumer(settings) as consumer:
        consumer.assign([partition])
        begin = (await consumer.beginning_offsets([partition]))[partition]
        end = (await consumer.end_offsets([partition]))[partition]
        if begin <= place.offset < end:
            consumer.seek(partition, place.offset)
            found = await consumer.getmany(timeout_ms=round(READ_SECONDS * 1000), max_records=1)
            for record in found.get(partition, []):
                if record.offset == place.offset:
                    headers = tuple((name, bytes(value or b"")) for name, value in record.headers)
                    return Record(
                        place.topic,
                        place.partition,
                        place.offset,
                        timestamp,
                        record.key,
                        record.value,
                        headers,
                    )
    raise OperationError("it was too large to be kept with the dead letter, and the log has dropped it since")


# --- Kafka ---


@asynccontextmanager
async def _producer(settings: Settings) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka_bootstrap(settings),
        acks="all",
        enable_idempotence=True,
        max_request_size=1 << 20,
    )
    try:
        await producer.start()
        yield producer
    except (KafkaError, OSError) as error:
        raise OperationError(
            f"Kafka does not answer ({type(error).__name__}): see `keepsake status`"
        ) from error
    finally:
        await producer.stop()


@asynccontextmanager
async def _consumer(settings: Settings) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=kafka_bootstrap(settings),
        group_id=None,
        enable_auto_commit=False,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    try:
        await consumer.start()
        yield consumer
    except (KafkaError, OSError) as error:
        raise OperationError(
            f"Kafka does not answer ({type(error).__name__}): see `keepsake status`"
        ) from error
    finally:
        await consumer.stop()


async def _behind(consumer: AIOKafkaConsumer, ends: dict[TopicPartition, int]) -> bool:
    for partition, end in ends.items():
        if await consumer.position(partition) < end:
            return True
    return False
