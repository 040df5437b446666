"""Publishes lines of JSON to `chat.message`: each checked as the ledger will, keyed and placed by its user."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import BinaryIO

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from models.messages import ChatMessage, InvalidEvent, parse_chat_message, parse_object
from models.topics import CHAT
from streams.errors import Explained
from streams.partitioner import partition_for
from streams.places import kafka_bootstrap
from streams.provision import check_topics
from streams.settings import Settings
from streams.topics import TOPICS

IN_FLIGHT = 1_000
PROGRESS_SECONDS = 1.0
MAX_REQUEST_BYTES = 1 << 20


class PublishFailed(Explained):
    """Kafka stopped taking messages; the message says how far it came."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A line that is no message: its number (from 1), a fixed word, a sentence without any of its text."""

    line: int
    reason: str
    detail: str


@dataclass(slots=True)
class Outcome:
    """What became of the lines; `published` are in the log."""

    published: int = 0
    rejected: list[Rejected] = field(default_factory=list)


async def publish_file(
    source: BinaryIO,
    settings: Settings,
    progress: Callable[[str], None],
    rejected: Callable[[Rejected], None],
) -> Outcome:
    """Publish every line that is a message, in order; returns when the log has them all.

    A line that is none is reported and left out. Raises PublishFailed, ProvisionError, PlaceUnknown.
    """
    await check_topics(settings, [spec for spec in TOPICS if spec.name == CHAT])
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka_bootstrap(settings),
        acks="all",
        enable_idempotence=True,
        linger_ms=5,
        max_request_size=MAX_REQUEST_BYTES,
    )
    outcome = Outcome()
    try:
        await producer.start()
        await _publish(source, settings, producer, outcome, progress, rejected)
    except (KafkaError, OSError) as error:
        raise PublishFailed(
            f"Kafka does not take messages ({type(error).__name__}): the first {outcome.published} are in the log. "
            "Publish the file again when it is back: the same message_id counts once"
        ) from error
    finally:
        await producer.stop()
    return outcome


async def _publish(
    source: BinaryIO,
    settings: Settings,
    producer: AIOKafkaProducer,
    outcome: Outcome,
    progress: Callable[[str], None],
    rejected: Callable[[Rejected], None],
) -> None:
    waiting: deque[Awaitable[object]] = deque()
    told = time.monotonic()
    async for number, line in _lines(source):
        try:
            message = read_message(line, settings)
            future = await producer.send(
                CHAT,
                line,
                key=message.user_id.encode(),
                partition=partition_for(message.user_id, settings.partitions),
            )
        except InvalidEvent as invalid:
            outcome.rejected.append(Rejected(number, invalid.reason, invalid.detail))
            rejected(outcome.rejected[-1])
            continue
        except MessageSizeTooLargeError:
            outcome.rejected.append(Rejected(number, "too_large", "the line is larger than Kafka takes"))
            rejected(outcome.rejected[-1])
            continue
        waiting.append(future)
        if len(waiting) >= IN_FLIGHT:
            await waiting.popleft()
            outcome.published += 1
        if time.monotonic() - told > PROGRESS_SECONDS:
            told = time.monotonic()
            progress(f"{outcome.published} messages published")
    while waiting:
        await waiting.popleft()
        outcome.published += 1


async def _lines(source: BinaryIO) -> AsyncIterator[tuple[int, bytes]]:
    """Lines that are not blank, with their numbers. Read aside: what was sent goes out while a pipe is silent."""
    number = 0
    while line := await asyncio.to_thread(source.readline):
        number += 1
        line = line.strip()
        if line:
            yield number, line


def read_message(line: bytes, settings: Settings) -> ChatMessage:
    """The message of a line, checked by the ledger's own rules; InvalidEvent if it is none."""
    user = parse_object(line).get("user_id")
    try:
        key = user.encode() if isinstance(user, str) else b""
    except UnicodeEncodeError:
        key = b""
    return parse_chat_message(
        line, key=key, timestamp=time.time_ns() // 1_000_000, offset=0, zone=settings.zone
    )
