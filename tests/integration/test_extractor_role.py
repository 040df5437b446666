"""The extractor as a process on a real broker: its results, its dead letters, and what a kill leaves behind."""

import asyncio
import json
import os
import signal
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import NAMESPACE_OID, uuid5

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from agents.codec import RequestCodec
from infra.sealing import AesGcmSealer, ensure_master_keys, load_master_keys
from models.records import Record
from models.requests import WindowRequest, WindowResult
from models.topics import DEAD, EXTRACTED, REQUESTED
from streams.partitioner import partition_for
from streams.provision import provision_topics
from streams.settings import Settings
from tests.engines import LocalEngines
from tests.unit.windows import window

ROOT = Path(__file__).parents[2]
PARTITIONS = 4
RUN = (
    "import logging; logging.basicConfig(level='INFO');"
    "from streams.roles.extractor import run; from streams.settings import Settings; run(Settings())"
)


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalEngines]:
    """A broker of this module's own, with the topics of a deployment."""
    with LocalEngines(postgres=False) as engines:
        ensure_master_keys(engines.data_dir / "keys.json")
        settings = Settings(
            data_dir=engines.data_dir,
            kafka_bootstrap=engines.bootstrap,
            partitions=PARTITIONS,
            replication_factor=1,
        )
        asyncio.run(provision_topics(settings, lambda _line: None))
        yield engines


class Deployment:
    """Sends requests as a ledger does, and reads what the extractor wrote."""

    def __init__(self, engines: LocalEngines, producer: AIOKafkaProducer, consumer: AIOKafkaConsumer) -> None:
        self.engines = engines
        self.producer = producer
        self.consumer = consumer
        self.waiting: dict[str, list[Record]] = defaultdict(list)
        self.codec = RequestCodec(AesGcmSealer(load_master_keys(engines.data_dir / "keys.json")))

    async def start(self, **environment: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            RUN,
            cwd=ROOT,
            env={
                **os.environ,
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

    async def results(self, number: int) -> list[WindowResult]:
        """The next results, each seen to be in its user's partition."""
        found: list[WindowResult] = []
        while len(found) < number:
            message = await self._next(EXTRACTED)
            result = self.codec.open_result(message)
            assert message.partition == partition_for(result.user_id, PARTITIONS)
            found.append(result)
        return found

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


@pytest.fixture
async def deployment(broker: LocalEngines) -> AsyncIterator[Deployment]:
    async with _clients(broker) as (producer, consumer):
        yield Deployment(broker, producer, consumer)


@asynccontextmanager
async def _clients(broker: LocalEngines) -> AsyncIterator[tuple[AIOKafkaProducer, AIOKafkaConsumer]]:
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
    consumer = AIOKafkaConsumer(
        EXTRACTED, DEAD, bootstrap_servers=broker.bootstrap, auto_offset_reset="latest"
    )
    async with producer, consumer:
        for partition in consumer.assignment():
            await consumer.position(partition)  # from here on, before anything is asked
        yield producer, consumer


def requests(name: str, number: int) -> list[WindowRequest]:
    lines = ["나 부산으로 이사했어", "@축하해요", "바다 보이는 집이야"]
    return [
        window(lines, request_id=str(uuid5(NAMESPACE_OID, f"{name}-{n}"))).model_copy(
            update={"user_id": f"{name}-{n}"}
        )
        for n in range(number)
    ]


async def end(process: asyncio.subprocess.Process) -> int:
    process.terminate()
    return await asyncio.wait_for(process.wait(), 60)


async def test_every_request_has_its_result_and_garbage_is_a_dead_letter(deployment: Deployment) -> None:
    asked = requests("many", 40)
    process = await deployment.start()
    try:
        await deployment.producer.send_and_wait(REQUESTED, b"{garbage", key=b"k", partition=0)
        for request in asked:
            await deployment.ask(request)
        assert await deployment.dead_letter() == "invalid_json"
        results = await deployment.results(len(asked))
        assert {r.request_id for r in results} == {r.request_id for r in asked}
        assert {r.status for r in results} == {"memory"}
        memory = results[0].memory
        assert memory is not None
        assert "부산" in memory.content.summary
    finally:
        assert await end(process) == 0


async def test_a_request_that_kills_three_times_is_a_failure(deployment: Deployment) -> None:
    [request] = requests("killer", 1)
    await deployment.ask(request)
    for _ in range(3):
        process = await deployment.start(KEEPSAKE_FAULT="extractor.before_call")
        assert await asyncio.wait_for(process.wait(), 90) == -signal.SIGKILL
    process = await deployment.start()
    try:
        [result] = await deployment.results(1)
        assert (result.request_id, result.status, result.reason) == (request.request_id, "failed", "crashed")
    finally:
        assert await end(process) == 0


@pytest.mark.parametrize(("point", "sent"), [("extractor.after_call", 1), ("extractor.after_send", 2)])
async def test_a_kill_loses_nothing(deployment: Deployment, point: str, sent: int) -> None:
    """What was sent before the kill may be sent again: the ledger counts the first."""
    [request] = requests(point, 1)
    await deployment.ask(request)
    process = await deployment.start(KEEPSAKE_FAULT=point)
    assert await asyncio.wait_for(process.wait(), 90) == -signal.SIGKILL
    process = await deployment.start()
    try:
        results = await deployment.results(sent)
        assert {(r.request_id, r.status) for r in results} == {(request.request_id, "memory")}
        assert len({r.model_dump_json() for r in results}) == 1
    finally:
        assert await end(process) == 0
