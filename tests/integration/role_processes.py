"""Roles as processes on a real broker, asked as a ledger asks, and what they wrote."""

import asyncio
import json
import os
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import NAMESPACE_OID, uuid5

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from agents.codec import RequestCodec
from infra.sealing import AesGcmSealer, ensure_master_keys, load_master_keys
from models.published import MemoryCreated
from models.records import Record
from models.requests import WindowRequest, WindowResult
from models.topics import CHAT, CREATED, DEAD, EXTRACTED, REQUESTED
from streams.partitioner import partition_for
from streams.provision import provision_topics
from streams.settings import Settings
from tests.engines import LocalEngines
from tests.unit.windows import window

ROOT = Path(__file__).parents[2]
PARTITIONS = 4
LINES = ("나 부산으로 이사했어", "@축하해요", "바다 보이는 집이야")
RUN = (
    "import logging; logging.basicConfig(level='INFO');"
    "from streams.roles.{role} import run; from streams.settings import Settings; run(Settings())"
)


def prepare(engines: LocalEngines) -> None:
    """Keys, and the topics of a deployment."""
    ensure_master_keys(engines.data_dir / "keys.json")
    settings = Settings(
        data_dir=engines.data_dir,
        kafka_bootstrap=engines.bootstrap,
        partitions=PARTITIONS,
        replication_factor=1,
    )
    asyncio.run(provision_topics(settings, lambda _line: None))


class Deployment:
    """Sends requests as a ledger does, or chat for a ledger, and reads what the roles wrote."""

    def __init__(self, engines: LocalEngines, producer: AIOKafkaProducer, consumer: AIOKafkaConsumer) -> None:
        self.engines = engines
        self.producer = producer
        self.consumer = consumer
        self.waiting: dict[str, list[Record]] = defaultdict(list)
        self.codec = RequestCodec(AesGcmSealer(load_master_keys(engines.data_dir / "keys.json")))

    async def start(self, role: str = "extractor", **environment: str) -> asyncio.subprocess.Process:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("KEEPSAKE_") and name != "GEMINI_API_KEY"
        }
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            RUN.format(role=role),
            cwd=ROOT,
            env={
                **kept,
                "KEEPSAKE_DATA_DIR": str(self.engines.data_dir),
                "KEEPSAKE_KAFKA_BOOTSTRAP": self.engines.bootstrap,
                "KEEPSAKE_PARTITIONS": str(PARTITIONS),
                "KEEPSAKE_SESSION_TIMEOUT_SECONDS": "6",
                **environment,
            },
            stderr=asyncio.subprocess.DEVNULL,
        )

    async def ask(self, request: WindowRequest) -> None:
        key, value = self.codec.seal_request(request)
        partition = partition_for(request.user_id, PARTITIONS)
        await self.producer.send_and_wait(REQUESTED, value, key=key, partition=partition)

    async def talk(self, user: str) -> None:
        """A turn of a user with mina, as chat."""
        for number, (role, text) in enumerate((("user", LINES[0]), ("assistant", "축하해요"))):
            message = {
                "message_id": f"{user}-{number}",
                "user_id": user,
                "character_ids": ["mina"],
                "session_id": "s1",
                "role": role,
                "text": text,
            }
            partition = partition_for(user, PARTITIONS)
            await self.producer.send_and_wait(
                CHAT, json.dumps(message).encode(), key=user.encode(), partition=partition
            )

    async def results(self, number: int) -> list[WindowResult]:
        """The next results, each seen to be in its user's partition."""
        found: list[WindowResult] = []
        while len(found) < number:
            message = await self._next(EXTRACTED)
            result = self.codec.open_result(message)
            assert message.partition == partition_for(result.user_id, PARTITIONS)
            found.append(result)
        return found

    async def created(self) -> MemoryCreated:
        """The next memory."""
        return MemoryCreated.model_validate_json((await self._next(CREATED)).value or b"")

    async def dead_letter(self) -> str:
        """The reason of the next dead letter."""
        letter = await self._next(DEAD)
        return str(json.loads(letter.value or b"")["reason"])

    async def _next(self, topic: str) -> Record:
        """The next record of a topic; those of others are kept for later."""
        async with asyncio.timeout(90):
            while not self.waiting[topic]:
                m = await self.consumer.getone()
                self.waiting[m.topic].append(Record(m.topic, m.partition, m.offset, 0, m.key, m.value))
        return self.waiting[topic].pop(0)


@asynccontextmanager
async def deployed(engines: LocalEngines) -> AsyncIterator[Deployment]:
    """What is written from here on."""
    producer = AIOKafkaProducer(bootstrap_servers=engines.bootstrap)
    consumer = AIOKafkaConsumer(
        *(EXTRACTED, CREATED, DEAD), bootstrap_servers=engines.bootstrap, auto_offset_reset="latest"
    )
    async with producer, consumer:
        for partition in consumer.assignment():
            await consumer.position(partition)  # before anything is asked
        yield Deployment(engines, producer, consumer)


def requests(name: str, number: int) -> list[WindowRequest]:
    return [
        window(LINES, request_id=str(uuid5(NAMESPACE_OID, f"{name}-{n}"))).model_copy(
            update={"user_id": f"{name}-{n}"}
        )
        for n in range(number)
    ]


async def end(process: asyncio.subprocess.Process) -> int:
    process.terminate()
    return await asyncio.wait_for(process.wait(), 60)
