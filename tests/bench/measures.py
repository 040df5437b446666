"""What the bench measures, each on a running system of the acceptance tests."""

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import asyncpg
import orjson
import psutil
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from agents.codec import RequestCodec
from infra.offline_embedder import OfflineEmbedder
from infra.offline_extractor import OfflineExtractor
from infra.sealing import AesGcmSealer, load_master_keys
from models.records import Record
from models.topics import CHAT, REQUESTED
from streams.topics import CHANGELOG
from tests.acceptance.system import Said, System, conversation

Row = tuple[str, str]
KIB = 1024
BARE_CHANGELOG = "bare-faust-counts-changelog"


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def throughput(messages: int = 20_000, users: int = 400) -> list[Row]:
    """Messages a second from the first to the last changelog record: the ledger's ÷ bare Faust's."""
    text = "오늘 회사에서 있었던 일을 이야기해 줄게, 좀 길어질지도 몰라. "
    with System(idle_close_seconds=0) as system:
        say(f"throughput: publishing {messages} messages")
        said = system.publish([Said(f"u{n % users}", ("A",), f"{text}{n}") for n in range(messages)])
        say("throughput: bare Faust")
        subprocess.run(
            [
                *(sys.executable, str(Path(__file__).with_name("bare_faust.py"))),
                *(system.engines.bootstrap, str(system.data_dir / "bare"), str(messages)),
            ],
            env=system.environment(),
            check=True,
            timeout=180,
            stderr=subprocess.DEVNULL,
        )
        bare_records, bare_seconds = asyncio.run(_span(system, BARE_CHANGELOG))
        say("throughput: the ledger")
        system.start("ledger")
        system.wait(lambda: system.heartbeat("ledger").get("lag") == 0, "the lag to be worked off", 180)
        system.wait(lambda: system.counted() == len(said), "every message to be counted")
        _, seconds = asyncio.run(_span(system, CHANGELOG))
        bare, ours = bare_records / bare_seconds, messages / seconds
        chat, changelog = _bytes_of(system, CHAT), _bytes_of(system, CHANGELOG)
    return [
        ("bare Faust, one table write a message", f"{bare:,.0f} messages/s"),
        ("ledger, sealing and transactions and all", f"{ours:,.0f} messages/s"),
        ("ledger ÷ bare Faust", f"{ours / bare:.2f}"),
        ("changelog bytes ÷ chat.message bytes", f"{changelog / chat:.2f}"),
    ]


def latency(rounds: int = 60) -> list[Row]:
    """From the acknowledged answer to the threshold message until the memory has tokens and vector."""
    with System() as system:
        system.start("ledger", "extractor", "indexer")
        system.publish(conversation("warm", ["A"], 5))
        system.wait(lambda: system.indexed() == 1, "the first memory")
        say(f"latency: {rounds} memories")
        times = asyncio.run(_latencies(system, rounds))
        model = asyncio.run(_model_times(system))
    p50, p95 = statistics.median(times), statistics.quantiles(times, n=20)[-1]
    own = statistics.median(model)
    return [
        ("threshold answer → recallable, p50", f"{p50:.0f} ms"),
        ("threshold answer → recallable, p95", f"{p95:.0f} ms"),
        ("of it the offline models' own time, p50", f"{own:.0f} ms"),
        ("on top of the models, p50 / p95", f"{p50 - own:.0f} / {p95 - own:.0f} ms"),
    ]


def footprint(pairs: int = 20_000) -> list[Row]:
    """Memory of each role with many pairs, and the ledger's recovery on an empty directory."""
    with System(idle_close_seconds=0, partitions=12) as system:
        system.start("ledger", "extractor", "indexer", "recall")
        say(f"footprint: publishing to {pairs} pairs")
        said = system.publish(
            [
                Said(f"user-{n}", ("A",), f"I like number {n} {turn}")
                for turn in range(2)
                for n in range(pairs)
            ]
        )
        system.publish([one for n in range(200) for one in conversation(f"user-{n}", ["A"], 4, start=2)])
        system.wait(lambda: system.heartbeat("ledger").get("lag") == 0, "the lag to be worked off", 300)
        system.wait(lambda: system.indexed() == 200, "the memories", 300)
        system.wait(lambda: system.counted() > len(said), "every message to be counted")
        rows = [
            (f"memory of {role}, {pairs:,} pairs", f"{_rss(system, role) / KIB / KIB:.0f} MiB")
            for role in ("ledger", "extractor", "indexer", "recall")
        ]
        say("footprint: recovery")
        system.stop("ledger")
        warm = _seconds(lambda: system.start("ledger"))
        system.stop("ledger")
        subprocess.run(["rm", "-rf", str(system.data_dir / "roles" / "ledger-0")], check=True)
        cold = _seconds(lambda: system.start("ledger"))
    return [
        *rows,
        ("ledger start, its directory kept", f"{warm:.1f} s"),
        (f"ledger start, empty directory, {pairs:,} threads", f"{cold:.1f} s"),
        ("recovery ÷ plain start", f"{cold / warm:.2f}"),
    ]


async def _span(system: System, topic: str) -> tuple[int, float]:
    """Records of a topic, and the seconds from the first to the last of them by the broker's clock."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=system.engines.bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    await consumer.start()
    try:
        partitions = [TopicPartition(topic, number) for number in range(system.partitions)]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        times: list[int] = []
        while any([await consumer.position(p) < ends[p] for p in partitions]):
            for batch in (await consumer.getmany(timeout_ms=200)).values():
                times += [record.timestamp for record in batch if record.value is not None]
        return len(times), (max(times) - min(times)) / 1000
    finally:
        await consumer.stop()


async def _latencies(system: System, rounds: int) -> list[float]:
    producer = AIOKafkaProducer(bootstrap_servers=system.engines.bootstrap, acks="all")
    await producer.start()
    database = await asyncpg.connect(system.engines.database_url)
    ready = await database.prepare(
        "SELECT 1 FROM memory.user_memories m JOIN memory.memory_tokens t ON t.memory_id = m.id "
        "JOIN memory.memory_vectors v ON v.memory_id = m.id WHERE m.user_id = $1 AND v.embedding IS NOT NULL"
    )
    times = []
    try:
        for number in range(rounds):
            user = f"latency-{number}"
            # Words of its own: the embedder remembers the texts that it has seen.
            for turn, one in enumerate(conversation(user, ["A"], 5, word=f"in year {number}")):
                value = {
                    "message_id": f"{user}-{turn}",
                    "user_id": user,
                    "character_ids": ["A"],
                    "session_id": "s",
                    "role": one.role,
                    "text": one.text,
                }
                await producer.send_and_wait(CHAT, orjson.dumps(value), key=user.encode())
            began = time.perf_counter()
            while await ready.fetchval(user) is None:  # noqa: ASYNC110 - another process makes it true
                await asyncio.sleep(0.002)
            times.append((time.perf_counter() - began) * 1000)
    finally:
        await producer.stop()
        await database.close()
    return times


async def _model_times(system: System) -> list[float]:
    """Milliseconds of extractor and embedder alone, on the very requests of the run."""
    codec = RequestCodec(AesGcmSealer(load_master_keys(system.data_dir / "keys.json")))
    extractor, embedder = OfflineExtractor(), OfflineEmbedder()
    requests = [
        codec.open_request(Record(REQUESTED, partition, 0, 0, key, value))
        for partition, key, value in await system._read(REQUESTED)
    ]
    await embedder.embed_documents(["warm"])
    times = []
    for request in requests:
        began = time.perf_counter()
        answer = await extractor.extract(request)
        await embedder.embed_documents([orjson.loads(answer.raw).get("summary") or "nothing"])
        times.append((time.perf_counter() - began) * 1000)
    return times


def _bytes_of(system: System, topic: str) -> int:
    logs = (system.data_dir / "kafka" / "data").glob(f"{topic}-*/*.log")
    return sum(log.stat().st_size for log in logs)


def _rss(system: System, role: str) -> int:
    return int(psutil.Process(system.roles[role, "0"].pid).memory_info().rss)


def _seconds(action: Callable[[], object]) -> float:
    began = time.monotonic()
    action()
    return time.monotonic() - began


def machine() -> str:
    return f"{os.cpu_count()} cores, Python {sys.version.split()[0]}"
