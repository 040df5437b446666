"""The ledger's loop on a real broker, as processes: killed, stopped, doubled. Counts stay exact."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.structs import TopicPartition
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from models.topics import CHAT, COMMAND, EXTRACTED, REQUESTED, TICK
from streams.topics import CHANGELOG, LEDGER_GROUP
from tests.engines import LocalEngines

PARTITIONS = 4
TOPICS = (CHAT, EXTRACTED, COMMAND, TICK, REQUESTED, CHANGELOG)
ROOT = Path(__file__).parents[2]


class Ledger:
    """A counting ledger in a process of its own."""

    def __init__(self, kafka: str, data_dir: Path, instance: str = "0", clears: int = 0, **env: str) -> None:
        self.data_dir = data_dir
        self.arguments = [instance, str(clears)] if clears else [instance]
        self.env = {
            **os.environ,
            "KEEPSAKE_KAFKA_BOOTSTRAP": kafka,
            "KEEPSAKE_DATA_DIR": str(data_dir),
            "KEEPSAKE_PARTITIONS": str(PARTITIONS),
            "KEEPSAKE_SESSION_TIMEOUT_SECONDS": "6",
            "KEEPSAKE_TRANSACTION_TIMEOUT_SECONDS": "10",
            **env,
        }
        self.printed: list[str] = []

    async def start(self) -> "Ledger":
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.integration.counting_ledger",
            *self.arguments,
            cwd=ROOT,
            env=self.env,
            stdout=asyncio.subprocess.PIPE,
            stderr=(self.data_dir / "stderr").open("ab"),
        )
        self._reading = asyncio.create_task(self._read())
        return self

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.printed.append(line.decode().strip())

    def owns(self) -> set[int]:
        owned: set[int] = set()
        for line in self.printed:
            match line.split():
                case ["assigned", number, _]:
                    owned.add(int(number))
                case ["revoked", number]:
                    owned.discard(int(number))
        return owned

    def kill(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self) -> int:
        code = await asyncio.wait_for(self.process.wait(), 40)
        await self._reading
        return code

    def errors(self) -> str:
        return (self.data_dir / "stderr").read_text()


@asynccontextmanager
async def running(*ledgers: Ledger) -> AsyncIterator[None]:
    """Start ledgers, and leave none behind."""
    try:
        await asyncio.gather(*(ledger.start() for ledger in ledgers))
        yield
    finally:
        for ledger in ledgers:
            if ledger.process.returncode is None:
                ledger.kill(signal.SIGCONT)
                ledger.kill(signal.SIGKILL)
            await ledger.ended()


async def until(condition: Callable[[], bool | Awaitable[bool]], what: str, seconds: float = 40) -> None:
    """Await a condition (a function, plain or async) that other processes bring about."""
    async with asyncio.timeout(seconds):
        while True:
            result = condition()
            if result if isinstance(result, bool) else await result:
                return
            await asyncio.sleep(0.1)


def empty_topics(kafka: str) -> None:
    """Topics, group and transactions of no earlier test."""
    admin = AdminClient({"bootstrap.servers": kafka})
    delete_topics(admin, *TOPICS)
    for future in admin.delete_consumer_groups([LEDGER_GROUP]).values():
        with contextlib.suppress(KafkaException):  # there was none
            future.result()


def delete_topics(admin: AdminClient, *names: str) -> None:
    known = [name for name in names if name in admin.list_topics(timeout=10).topics]
    for future in admin.delete_topics(known).values() if known else ():
        future.result()


@pytest.fixture(scope="module")
def kafka() -> Iterator[str]:
    """A broker of this module's own: it deletes the topics that all ledgers use."""
    with LocalEngines(postgres=False) as engines:
        yield engines.bootstrap


@pytest.fixture
async def topics(kafka: str) -> str:
    empty_topics(kafka)
    await make_topics(kafka, TOPICS)
    return kafka


async def make_topics(kafka: str, names: tuple[str, ...]) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:

        async def made() -> bool:
            missing = set(names) - set(await admin.list_topics())
            if missing:
                await admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in missing])
            return not missing

        await until(made, "topics")
    finally:
        await admin.close()


async def publish(kafka: str, keys: list[str], topic: str = CHAT, partition: int | None = None) -> None:
    async with AIOKafkaProducer(bootstrap_servers=kafka, acks="all", linger_ms=5) as producer:
        sent = [
            await producer.send(
                topic, b"text", key=key.encode(), partition=place(key) if partition is None else partition
            )
            for key in keys
        ]
        await asyncio.gather(*sent)


def place(key: str) -> int:
    return sum(key.encode()) % PARTITIONS


def some_keys(count: int, users: int = 50) -> list[str]:
    return [f"u{number % users}" for number in range(count)]


async def read(kafka: str, topic: str) -> list[tuple[int, bytes, bytes | None]]:
    """All committed records of a topic: partition, key, value."""
    tps = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    consumer = AIOKafkaConsumer(
        bootstrap_servers=kafka, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        consumer.assign(tps)
        ends = await consumer.end_offsets(tps)
        found: list[tuple[int, bytes, bytes | None]] = []
        while any([await consumer.position(tp) < ends[tp] for tp in tps]):
            for tp, records in (await consumer.getmany(timeout_ms=200)).items():
                found += [(tp.partition, record.key, record.value) for record in records]
        return found
    finally:
        await consumer.stop()


async def counted(kafka: str) -> dict[str, int]:
    """The counts that the changelog ends at."""
    rows: dict[bytes, bytes | None] = {key: value for _, key, value in await read(kafka, CHANGELOG)}
    return {key[6:].decode(): int(value) for key, value in rows.items() if key.startswith(b"count") and value}


async def numbers(kafka: str) -> dict[str, list[int]]:
    """The numbers that were given out for each key, in the log's order."""
    given: dict[str, list[int]] = defaultdict(list)
    for _, key, value in await read(kafka, REQUESTED):
        topic, number, _ = (value or b"").decode().split()
        if topic == CHAT:
            given[key.decode()].append(int(number))
    return given


async def all_counted(kafka: str, expected: int) -> bool:
    return sum((await counted(kafka)).values()) >= expected


async def assert_exact(kafka: str, keys: list[str]) -> None:
    """Every message was counted once, and gave one output with its number, in order."""
    wanted = {key: keys.count(key) for key in set(keys)}
    assert await counted(kafka) == wanted
    assert dict(await numbers(kafka)) == {key: list(range(1, count + 1)) for key, count in wanted.items()}


async def test_every_message_of_a_full_topic_is_counted_at_a_first_start(topics: str, tmp_path: Path) -> None:
    keys = some_keys(6_000)
    await publish(topics, keys)
    async with running(Ledger(topics, tmp_path)):
        await until(lambda: all_counted(topics, len(keys)), "counts")
    await assert_exact(topics, keys)


async def test_events_that_faust_drops_are_read_again(topics: str, tmp_path: Path) -> None:
    keys = some_keys(6_000)
    await publish(topics, keys)
    clearing = Ledger(topics, tmp_path, clears=3)
    async with running(clearing):
        await until(lambda: all_counted(topics, len(keys)), "counts")
        await until(lambda: clearing.printed.count("cleared") == 3, "the clearing")
    await assert_exact(topics, keys)


POINTS = ("before_transaction", "inside_transaction", "after_commit", "after_write")


async def test_counts_are_exact_after_kills_at_every_point(topics: str, tmp_path: Path) -> None:
    """Each point twice: the next start has the directory as it was, and has none."""
    keys: list[str] = []
    for point, empty in ((point, empty) for point in POINTS for empty in (False, True)):
        keys += (more := some_keys(400))
        await publish(topics, more)
        if empty:
            forget_state(tmp_path)
        dying = Ledger(topics, tmp_path, KEEPSAKE_FAULT=f"ledger.{point}:3")
        async with running(dying):
            assert await dying.ended() == -signal.SIGKILL, point
    async with running(Ledger(topics, tmp_path)):
        await until(lambda: all_counted(topics, len(keys)), "counts")
    await assert_exact(topics, keys)


def forget_state(data_dir: Path) -> None:
    shutil.rmtree(data_dir / "roles", ignore_errors=True)


async def test_a_worker_stopped_inside_a_transaction_lands_nothing(topics: str, tmp_path: Path) -> None:
    """The broker would abort its transaction later than the test ends: only the fence can."""
    zombie = Ledger(
        topics,
        in_(tmp_path, "a"),
        KEEPSAKE_FAULT="ledger.inside_transaction:4",
        KEEPSAKE_FAULT_SIGNAL="SIGSTOP",
        KEEPSAKE_TRANSACTION_TIMEOUT_SECONDS="300",
    )
    successor = Ledger(topics, in_(tmp_path, "b"), "1")
    keys = some_keys(3_000)
    await publish(topics, keys)
    async with running(zombie):
        await until(lambda: is_stopped(zombie), "the fault")
        async with running(successor):
            await until(lambda: all_counted(topics, len(keys)), "the successor's counts")
            zombie.kill(signal.SIGCONT)
            assert await zombie.ended() == 70, zombie.errors()
            keys += (more := some_keys(200))
            await publish(topics, more)
            await until(lambda: all_counted(topics, len(keys)), "counts after the zombie's end")
    await assert_exact(topics, keys)


def is_stopped(ledger: Ledger) -> bool:
    return psutil.Process(ledger.process.pid).status() == psutil.STATUS_STOPPED


def in_(parent: Path, name: str) -> Path:
    (parent / name).mkdir()
    return parent / name


async def test_a_second_worker_takes_half_and_gives_it_back(topics: str, tmp_path: Path) -> None:
    first, second = Ledger(topics, in_(tmp_path, "a")), Ledger(topics, in_(tmp_path, "b"), "1")
    keys = some_keys(2_000)
    await publish(topics, keys)
    async with running(first):
        await until(lambda: first.owns() == set(range(PARTITIONS)), "all partitions")
        async with running(second):
            await until(partial(publish_until, topics, keys, lambda: halves(first, second)), "halves")
            assert not first.owns() & second.owns()
            second.kill(signal.SIGTERM)
            assert await second.ended() == 0, second.errors()
        await until(
            partial(publish_until, topics, keys, lambda: first.owns() == set(range(PARTITIONS))), "all"
        )
        await until(lambda: all_counted(topics, len(keys)), "counts")
    await assert_exact(topics, keys)


def halves(first: Ledger, second: Ledger) -> bool:
    return len(first.owns()) == len(second.owns()) == PARTITIONS // 2


async def publish_until(kafka: str, keys: list[str], condition: Callable[[], bool]) -> bool:
    """A few more messages, unless the condition holds."""
    if not condition():
        keys += (more := some_keys(50))
        await publish(kafka, more)
    return condition()


async def test_commands_are_applied_exactly_where_they_say(topics: str, tmp_path: Path) -> None:
    async def folded() -> list[str]:
        values = [value for _, _, value in await read(topics, REQUESTED)]
        return [
            f"{topic.split('.')[1]} {offset}"
            for topic, _, offset in (v.decode().split() for v in values if v)
        ]

    await publish(topics, ["u"] * 20, partition=0)
    await publish(topics, ["10", "15"], COMMAND, partition=0)
    await publish(topics, ["12"], TICK, partition=0)
    chat = [f"message {offset}" for offset in range(40)]
    async with running(Ledger(topics, tmp_path)):
        await until(lambda: all_counted(topics, 20), "the backlog")
        order = [event for event in await folded() if not event.startswith("tick")]
        assert order == [*chat[:10], "command 0", *chat[10:15], "command 1", *chat[15:20]]
        # Held: they name an offset that chat has not reached.
        await publish(topics, ["22", "21", "1000"], COMMAND, partition=0)
        await publish(topics, ["25"], TICK, partition=0)
        await publish(topics, ["u"] * 10, partition=0)
        # The last one names an offset past the end of the log, which no message will reach.
        await until(lambda: applied(folded, "command 4"), "the command past the end")
        await until(lambda: all_counted(topics, 30), "counts")
    order = await folded()
    assert order.index("command 2") == order.index("message 22") - 2
    assert order.index("command 3") == order.index("message 22") - 1
    assert order.index("tick 1") > order.index("message 24")
    assert order.index("tick 0") > order.index("message 11")
    assert [event for event in order if event.startswith("message")] == chat[:30]


async def applied(folded: Callable[[], Awaitable[list[str]]], event: str) -> bool:
    return event in await folded()


async def test_a_recreated_topic_is_refused(topics: str, tmp_path: Path) -> None:
    await publish(topics, some_keys(40))
    async with running(Ledger(topics, tmp_path)):
        await until(lambda: all_counted(topics, 40), "counts")
    delete_topics(AdminClient({"bootstrap.servers": topics}), CHAT)
    await make_topics(topics, (CHAT,))
    refused = Ledger(topics, tmp_path)
    async with running(refused):
        assert await refused.ended() == 1
    assert "the topic was recreated" in refused.errors()


async def test_a_deleted_changelog_is_refused(topics: str, tmp_path: Path) -> None:
    await publish(topics, some_keys(40))
    async with running(Ledger(topics, tmp_path)):
        await until(lambda: all_counted(topics, 40), "counts")
    delete_topics(AdminClient({"bootstrap.servers": topics}), CHANGELOG)
    await make_topics(topics, (CHANGELOG,))
    forget_state(tmp_path)
    refused = Ledger(topics, tmp_path)
    async with running(refused):
        assert await refused.ended() == 1
    assert "does not have the state" in refused.errors()


async def test_one_process_a_directory(topics: str, tmp_path: Path) -> None:
    first, second = Ledger(topics, tmp_path), Ledger(topics, tmp_path)
    async with running(first):
        await until(lambda: first.owns() == set(range(PARTITIONS)), "all partitions")
        async with running(second):
            assert await second.ended() == 1
    assert "is in use by another process" in second.errors()
