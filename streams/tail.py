"""`keepsake tail`: every new memory, opened, as any subscriber of `memory.created` can see it."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import orjson
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from pydantic import ValidationError

from agents.codec import DestroyedKey, MemoryCipher, PairCipher
from agents.patience import when_known
from agents.ports import CannotOpen
from models.memory import MemoryContent
from models.published import MemoryCreated
from models.topics import CREATED
from streams.errors import Explained
from streams.key_view import KeyStore
from streams.places import kafka_bootstrap
from streams.sealer import open_sealer
from streams.settings import Settings
from streams.view import TableView

log = logging.getLogger(__name__)

START_SECONDS = 15.0
KEY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class OpenedMemory:
    """A memory as it was published, and its text."""

    created: MemoryCreated
    content: MemoryContent

    def to_json(self) -> str:
        """One line of JSON: the record without its payload, and the content."""
        record = self.created.model_dump(mode="json", exclude={"payload"})
        return orjson.dumps({**record, **self.content.model_dump(mode="json")}).decode()

    def to_text(self) -> str:
        """One line to read."""
        created = self.created
        pairs = ", ".join(f"{pair.character_id} #{pair.seq}" for pair in created.characters)
        head = (
            f"{created.date}  {created.user_id} with {pairs}  {created.kind}, importance {created.importance}"
        )
        return f"{head}: {self.content.summary}"


async def tail(
    settings: Settings, *, from_beginning: bool, as_json: bool, write: Callable[[str], object]
) -> None:
    """Write a line for every memory, until cancelled. Explained: Kafka does not answer."""
    async for memory in opened_memories(settings, from_beginning=from_beginning):
        write(memory.to_json() if as_json else memory.to_text())


async def opened_memories(settings: Settings, *, from_beginning: bool) -> AsyncGenerator[OpenedMemory, None]:
    """The memories of `memory.created`, new ones as they come; those whose key was destroyed are passed over."""
    sealer = open_sealer(settings)
    cipher = MemoryCipher(sealer, PairCipher(sealer))
    bootstrap = kafka_bootstrap(settings)
    view = TableView(KeyStore(), bootstrap, settings.partitions)
    async with _consumer(bootstrap, settings.partitions, from_beginning) as consumer, _followed(view):
        while True:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                for record in records:
                    if record.value is None:
                        continue
                    memory = await _open(record.value, cipher, view)
                    if memory is not None:
                        yield memory


async def _open(value: bytes, cipher: MemoryCipher, view: TableView) -> OpenedMemory | None:
    try:
        created = MemoryCreated.model_validate_json(value)
    except ValidationError as error:
        log.warning("A record of %s cannot be read: %d fields are wrong", CREATED, error.error_count())
        return None
    owners, payload = created.characters, created.payload
    try:
        # A memory and its pairs' keys become visible together, but are read by two consumers.
        content = await when_known(
            lambda: cipher.open(created.memory_id, created.user_id, owners, payload, view), KEY_SECONDS
        )
        return OpenedMemory(created, content)
    except DestroyedKey:
        return None
    except LookupError:
        log.warning("Memory %s cannot be opened: its pair's key is not known", created.memory_id)
    except (CannotOpen, ValidationError):
        log.warning("Memory %s cannot be opened with these master keys", created.memory_id)
    return None


@asynccontextmanager
async def _followed(view: TableView) -> AsyncIterator[None]:
    following = asyncio.create_task(view.run())
    try:
        async with asyncio.timeout(START_SECONDS):
            await view.wait_caught_up()
        yield
    except TimeoutError as error:
        raise Explained(
            "the ledger's changelog cannot be read: has `keepsake provision` been run?"
        ) from error
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


@asynccontextmanager
async def _consumer(bootstrap: str, partitions: int, from_beginning: bool) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=None,
        enable_auto_commit=False,
        isolation_level="read_committed",
        auto_offset_reset="earliest" if from_beginning else "latest",
    )
    try:
        assigned = [TopicPartition(CREATED, number) for number in range(partitions)]
        try:
            async with asyncio.timeout(START_SECONDS):
                await consumer.start()
                consumer.assign(assigned)
                # Now, not at the first fetch: what is published from here on is shown.
                await (consumer.seek_to_beginning if from_beginning else consumer.seek_to_end)(*assigned)
        except (KafkaError, OSError, TimeoutError) as error:
            raise Explained(f"Kafka at {bootstrap} does not answer ({type(error).__name__})") from error
        yield consumer
    finally:
        await consumer.stop()
