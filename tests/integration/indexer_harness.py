"""An indexer in a process of its own, and the records that a ledger would write for it."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import asyncpg
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition

from agents.codec import MemoryCipher, PairCipher
from agents.row_codec import Overlay, RowCodec
from infra.sealing import AesGcmSealer, ensure_master_keys, load_master_keys
from models.memory import MemoryContent, Provenance, Source
from models.published import CharacterSeq, MemoryCreated
from models.rows import PairKey, PairRow
from models.topics import CREATED
from streams.partitioner import partition_for
from streams.topics import CHANGELOG

ROOT = Path(__file__).parents[2]
PARTITIONS = 2
SECONDS = 60.0


async def eventually(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Return when the condition holds; fail after a minute."""
    try:
        async with asyncio.timeout(SECONDS):
            while not await condition():  # noqa: ASYNC110  # of another process
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"never came true: {what}") from None


class IndexerProcess:
    """`keepsake run indexer`, without the command line."""

    def __init__(self, data_dir: Path, bootstrap: str, dsn: str) -> None:
        self._log = data_dir / "indexer.log"
        self._env = {
            **os.environ,
            "KEEPSAKE_KAFKA_BOOTSTRAP": bootstrap,
            "KEEPSAKE_DATABASE_URL": dsn,
            "KEEPSAKE_DATA_DIR": str(data_dir),
            "KEEPSAKE_PARTITIONS": str(PARTITIONS),
            "KEEPSAKE_SESSION_TIMEOUT_SECONDS": "6",
        }
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, **environment: str) -> None:
        code = (
            "import logging; logging.basicConfig(level='INFO');"
            "from streams.roles.indexer import run; from streams.settings import Settings; run(Settings())"
        )
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", code, cwd=ROOT, env={**self._env, **environment}, stdout=log, stderr=log
            )

    async def ended(self) -> int:
        """Its exit code; negative: the signal."""
        assert self._process is not None
        async with asyncio.timeout(SECONDS):
            return await self._process.wait()

    async def stop(self) -> int:
        """End it as an operator would; its exit code."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.terminate()
        return await self.ended()

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    @property
    def log(self) -> str:
        return self._log.read_text()


class FakeLedger:
    """Writes pair keys to the changelog and memories to `memory.created`, as the ledger does."""

    def __init__(self, producer: AIOKafkaProducer, data_dir: Path) -> None:
        ensure_master_keys(data_dir / "keys.json")
        self.sealer = AesGcmSealer(load_master_keys(data_dir / "keys.json"))
        self._codec = RowCodec(self.sealer)
        self.cipher = MemoryCipher(self.sealer, PairCipher(self.sealer))
        self._producer = producer
        self._rows: dict[tuple[str, str], PairRow] = {}

    def pair(self, user: str, character: str) -> PairRow:
        if (user, character) not in self._rows:
            self._rows[user, character] = PairRow(1, self._codec.pair_key(user, character, 1))
        return self._rows[user, character]

    async def publish_key(self, user: str, character: str, *, epoch: int = 1) -> None:
        """The pair's row; another epoch than that of its memories: their key is destroyed."""
        key = PairKey(user, character)
        row = self.pair(user, character)
        if epoch != row.epoch:
            row = PairRow(epoch, self._codec.pair_key(user, character, epoch))
        blob = self._codec.encode(key, row, Overlay(lambda _: None, self._codec))
        await self._send(CHANGELOG, user, key.encode(), blob)

    async def publish_memory(
        self, number: int, user: str, summary: str, *, terms: Sequence[str] = (), character: str = "mina"
    ) -> str:
        """One memory of the pair; its id."""
        pair = self.pair(user, character)
        owners = (CharacterSeq(character_id=character, seq=number, epoch=pair.epoch),)
        identity = str(uuid5(NAMESPACE_OID, f"{user} {number}"))
        content = MemoryContent(summary=summary, search_terms=tuple(terms))
        created = MemoryCreated(
            memory_id=identity,
            user_id=user,
            kind="window",
            request_id=str(uuid5(NAMESPACE_OID, f"{user} {number} request")),
            characters=owners,
            importance=5,
            date=date(2026, 1, 1),
            created_at=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=number),
            source=Source(
                session_ids=("s1",),
                first_message_id="m1",
                last_message_id="m9",
                first_position=number * 10 - 9,
                last_position=number * 10,
            ),
            provenance=Provenance(
                task="extraction",
                prompt="pipeline/memory-summarize",
                prompt_version="1",
                provider="offline",
                model="rules",
                offline=True,
            ),
            payload=self.cipher.seal(identity, user, owners, [pair.key], content),
        )
        await self._send(CREATED, user, identity.encode(), created.model_dump_json().encode())
        return identity

    async def publish_raw(self, topic: str, user: str, key: bytes, value: bytes) -> None:
        await self._send(topic, user, key, value)

    async def _send(self, topic: str, user: str, key: bytes, value: bytes) -> None:
        partition = partition_for(user, PARTITIONS)
        await self._producer.send_and_wait(topic, value, key=key, partition=partition)


async def read_topic(bootstrap: str, topic: str) -> list[Any]:
    """All records of a topic, as they are now."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        consumer.assign(places)
        ends = await consumer.end_offsets(places)
        found: list[Any] = []
        while any([await consumer.position(place) < ends[place] for place in places]):
            for records in (await consumer.getmany(timeout_ms=200)).values():
                found += records
        return found
    finally:
        await consumer.stop()


async def count_rows(dsn: str, table: str, where: str = "true") -> int:
    """Rows of a table of the schema memory; -1 while the database is away."""
    try:
        connection = await asyncpg.connect(dsn, timeout=5)
    except (OSError, TimeoutError, asyncpg.PostgresError):
        return -1
    try:
        statement = f"SELECT count(*) FROM memory.{table} WHERE {where}"  # noqa: S608  # of our own
        return int(await connection.fetchval(statement))
    finally:
        await connection.close()
