"""The whole system as processes on engines of its own: what every acceptance test drives and checks."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import asyncpg
import httpx
import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from agents.row_codec import Overlay, RowCodec
from infra.sealing import AesGcmSealer, ensure_master_keys, load_master_keys
from models.ids import make_cast, split_cast
from models.published import MemoryCreated
from models.rows import ThreadKey, ThreadQueue, UserKey, WindowKey, WindowRow, decode_key
from models.topics import CHAT, CREATED
from streams.partitioner import partition_for
from streams.topics import CHANGELOG
from tests.engines import LocalEngines

T = TypeVar("T")
ROLES = ("ledger", "extractor", "indexer", "recall")
TIMEOUT = 90.0
POLL = 0.1


@dataclass(frozen=True)
class Said:
    """One message to publish."""

    user: str
    characters: tuple[str, ...]
    text: str
    role: str = "user"
    session: str = "s1"
    message_id: str = ""
    sent_at: str | None = None


class System:
    """Engines, topics, roles. Environment settings are given as keyword arguments, without the prefix."""

    def __init__(self, *, partitions: int = 4, **settings: object) -> None:
        self.engines = LocalEngines()
        self.partitions = partitions
        self.roles: dict[tuple[str, str], subprocess.Popen[bytes]] = {}
        self._settings = {f"KEEPSAKE_{name.upper()}": str(value) for name, value in settings.items()}
        self._serial = 0
        self.expected: set[int] = {-signal.SIGKILL}  # exit codes that a wait does not take for a failure

    def __enter__(self) -> "System":
        self.engines.__enter__()
        try:
            ensure_master_keys(self.data_dir / "keys.json")
            (self.data_dir / "token").write_text("test-token")
            self.command("provision")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            for log in sorted((self.data_dir / "logs").glob("*.log")):
                print(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}")
        for key in list(self.roles):
            self.kill(*key)
        self.engines.close()

    # --- processes ---

    @property
    def data_dir(self) -> Path:
        return self.engines.data_dir

    def environment(self, extra: Mapping[str, object] | None = None) -> dict[str, str]:
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("KEEPSAKE_")},
            "KEEPSAKE_DATA_DIR": str(self.data_dir),
            "KEEPSAKE_KAFKA_BOOTSTRAP": self.engines.bootstrap,
            "KEEPSAKE_DATABASE_URL": self.engines.database_url,
            "KEEPSAKE_PARTITIONS": str(self.partitions),
            "KEEPSAKE_HTTP_PORT": "0",
            "PYTHONPATH": str(Path(__file__).parents[2]),
            **self._settings,
            **{name: str(value) for name, value in (extra or {}).items()},
        }

    def command(
        self, *arguments: str, check: bool = True, given: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a `keepsake` command to its end."""
        done = subprocess.run(
            [sys.executable, "-m", "streams.cli", *arguments],
            env=self.environment(),
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT,
        )
        assert not check or done.returncode == 0, f"keepsake {' '.join(arguments)}: {done.stderr}"
        return done

    def start(self, *roles: str, instance: str = "0", ready: bool = True, **environment: object) -> None:
        """Start roles as processes; with `ready`, returns when each says that it runs."""
        for role in roles:
            with (self.data_dir / "logs" / f"{role}-{instance}.log").open("ab") as log:
                self.roles[role, instance] = subprocess.Popen(
                    [sys.executable, "-m", "streams.cli", "run", role, "--instance", instance],
                    env=self.environment(environment),
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        for role in roles if ready else ():
            self.wait(lambda role=role: self.state(role, instance) == "running", f"{role} to run")  # type: ignore[misc] # a bound default

    def state(self, role: str, instance: str = "0") -> str | None:
        """What the role's heartbeat says, if it is of the process that we started."""
        beat = self.heartbeat(role, instance)
        return str(beat["state"]) if beat.get("pid") == self.roles[role, instance].pid else None

    def heartbeat(self, role: str, instance: str = "0") -> dict[str, object]:
        try:
            return dict(orjson.loads((self.data_dir / "run" / f"{role}-{instance}.json").read_bytes()))
        except (OSError, orjson.JSONDecodeError):
            return {}

    def signal(self, number: signal.Signals, role: str, instance: str = "0") -> None:
        os.kill(self.roles[role, instance].pid, number)

    def kill(self, role: str, instance: str = "0") -> None:
        """SIGKILL, and gone when this returns."""
        process = self.roles.pop((role, instance))
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self, role: str, instance: str = "0") -> int:
        """SIGTERM; the exit code."""
        process = self.roles.pop((role, instance))
        process.terminate()
        return process.wait(TIMEOUT)

    def wait_end(self, role: str, instance: str = "0") -> int:
        """Wait for the role to end by itself; its exit code."""
        return self.roles.pop((role, instance)).wait(TIMEOUT)

    def wait(self, condition: Callable[[], T], what: str, seconds: float = TIMEOUT) -> T:
        """Wait until the condition holds, and give what it gave."""
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            for (role, instance), process in self.roles.items():
                code = process.poll()
                assert code in (None, *self.expected), f"{role}-{instance} ended with {code}"
            assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
            time.sleep(POLL)
        return value

    # --- talk ---

    def publish(self, said: Iterable[Said]) -> list[Said]:
        """Publish as any producer would; returns when the log has all of it."""
        sent = []
        for one in said:
            self._serial += 1
            sent.append(one if one.message_id else replace(one, message_id=f"m{self._serial}"))
        asyncio.run(self._publish(sent))
        return sent

    async def _publish(self, said: Sequence[Said]) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=self.engines.bootstrap, acks="all", linger_ms=5)
        await producer.start()
        try:
            sends = [
                await producer.send(
                    CHAT,
                    key=one.user.encode(),
                    value=orjson.dumps(
                        {
                            "message_id": one.message_id,
                            "user_id": one.user,
                            "character_ids": one.characters,
                            "session_id": one.session,
                            "role": one.role,
                            "text": one.text,
                            **({"sent_at": one.sent_at} if one.sent_at else {}),
                        }
                    ),
                )
                for one in said
            ]
            await asyncio.gather(*sends)
        finally:
            await producer.stop()

    def produce(self, topic: str, partition: int, key: bytes | None, value: bytes | None) -> None:
        """Produce one raw record."""

        async def send() -> None:
            producer = AIOKafkaProducer(bootstrap_servers=self.engines.bootstrap)
            await producer.start()
            try:
                await producer.send_and_wait(topic, value, key=key, partition=partition)
            finally:
                await producer.stop()

        asyncio.run(send())

    def read(self, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
        """Every committed record of a topic: partition, key, value."""
        return asyncio.run(self._read(topic))

    async def _read(self, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.engines.bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        try:
            partitions = [TopicPartition(topic, number) for number in range(self.partitions)]
            consumer.assign(partitions)
            ends = await consumer.end_offsets(partitions)
            records: list[tuple[int, bytes | None, bytes | None]] = []
            for partition in partitions:
                await consumer.seek_to_beginning(partition)
            while any([await consumer.position(p) < ends[p] for p in partitions]):
                for batch in (await consumer.getmany(timeout_ms=200)).values():
                    records += [(record.partition, record.key, record.value) for record in batch]
            return records
        finally:
            await consumer.stop()

    # --- what came of it ---

    def created(self) -> list[MemoryCreated]:
        """Every `memory.created` record, each partition's in order."""
        return [MemoryCreated.model_validate_json(value) for _, _, value in self.read(CREATED) if value]

    def rows(self) -> Overlay:
        """The ledger's rows, as its changelog tells them."""
        return _overlay(self._table(), self._codec())

    def _table(self) -> dict[bytes, bytes]:
        table: dict[bytes, bytes] = {}
        for _, key, value in self.read(CHANGELOG):
            if key is not None and value is not None:
                table[key] = value
            elif key is not None:
                table.pop(key, None)
        return table

    def _codec(self) -> RowCodec:
        return RowCodec(AesGcmSealer(load_master_keys(self.data_dir / "keys.json")))

    def threads(self) -> dict[tuple[str, str], tuple[int, ThreadQueue, list[WindowRow]]]:
        """By (user, cast): last position, queue, closed windows in order."""
        table = self._table()
        rows = _overlay(table, self._codec())
        found: dict[tuple[str, str], tuple[int, ThreadQueue, list[WindowRow]]] = {}
        for raw in table:
            if not raw.startswith(b"threads"):
                continue
            key = decode_key(raw)
            assert isinstance(key, ThreadKey)
            thread, owner = rows.get(key), rows.get(UserKey(key.user))
            assert thread is not None
            assert owner is not None
            windows = [
                rows.get(WindowKey(key.user, key.cast, thread.epoch, number))
                for number in range(1, thread.closed_windows + 1)
            ]
            found[key.user, key.cast] = (
                thread.last_position,
                owner.threads[key.cast],
                [window for window in windows if window is not None],
            )
        return found

    def shape(self) -> dict[tuple[str, str], list[tuple[str, int, int, str]]]:
        """By (user, cast): id, range and status of every window."""
        return {
            key: [(window.request_id, window.first, window.last, window.status) for window in windows]
            for key, (_, _, windows) in self.threads().items()
        }

    def settled(self) -> bool:
        """Whether no window is open or queued."""
        statuses = {window.status for _, _, windows in self.threads().values() for window in windows}
        return not statuses & {"queued", "open"}

    def counted(self) -> int:
        """How many messages the ledger has taken in, all threads together."""
        return sum(last for last, _, _ in self.threads().values())

    def fetch(self, query: str, *arguments: object) -> list[asyncpg.Record]:
        async def run() -> list[asyncpg.Record]:
            connection = await asyncpg.connect(self.engines.database_url)
            try:
                return list(await connection.fetch(query, *arguments))
            finally:
                await connection.close()

        return asyncio.run(run())

    def indexed(self) -> int:
        """Memories in PostgreSQL that have tokens and a vector: what recall finds."""
        return int(
            self.fetch(
                "SELECT count(*) FROM memory.user_memories m JOIN memory.memory_tokens t ON t.memory_id = m.id "
                "JOIN memory.memory_vectors v ON v.memory_id = m.id WHERE v.embedding IS NOT NULL"
            )[0][0]
        )

    @property
    def url(self) -> str:
        return str(self.wait(lambda: self.heartbeat("recall").get("detail"), "the recall service"))

    def post(self, path: str, body: object) -> httpx.Response:
        headers = {"Authorization": "Bearer test-token"}
        return httpx.post(self.url + path, json=body, headers=headers, timeout=30)

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, headers={"Authorization": "Bearer test-token"}, timeout=30)

    def recall(self, user: str, characters: Sequence[str], query: str, **more: object) -> dict[str, object]:
        answer = self.post(
            "/v1/recall", {"user_id": user, "character_ids": list(characters), "query": query, **more}
        )
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    # --- invariants ---

    def check(self, said: Iterable[Said]) -> None:
        """Nothing lost, doubled or out of order: I2, R4, and the index equal to the log."""
        expected: dict[tuple[str, str], set[str]] = defaultdict(set)
        for one in said:
            if one.role != "system":
                expected[one.user, make_cast(one.characters)].add(one.message_id)
        threads = self.threads()
        assert {key: last for key, (last, _, _) in threads.items()} == {
            key: len(ids) for key, ids in expected.items()
        }
        made: dict[str, MemoryCreated] = {}
        last_seq: dict[tuple[str, str], int] = defaultdict(int)
        for created in self.created():
            assert created.memory_id not in made, "a memory was created twice"
            made[created.memory_id] = created
            for ref in created.characters:
                last_seq[created.user_id, ref.character_id] += 1
                assert ref.seq == last_seq[created.user_id, ref.character_id]
        remembered = 0
        for (user, cast), (_, queue, windows) in threads.items():
            following = 1
            for window in windows:
                assert window.first == following
                assert window.last >= window.first
                following = window.last + 1
                if window.status == "remembered":
                    remembered += 1
                    (memory,) = window.memory_ids
                    assert made[memory].request_id == window.request_id
                    assert made[memory].user_id == user
                    assert {ref.character_id for ref in made[memory].characters} == set(split_cast(cast))
            assert queue.parked == sum(window.status == "parked" for window in windows)
        assert remembered == len(made)
        rows = self.fetch(
            "SELECT memory_id::text, character_id, seq FROM memory.user_memory_characters ORDER BY 1, 2"
        )
        assert [tuple(row) for row in rows] == sorted(
            (created.memory_id, ref.character_id, ref.seq)
            for created in made.values()
            for ref in created.characters
        )


def conversation(
    user: str, characters: Sequence[str], turns: int, *, start: int = 0, word: str = ""
) -> list[Said]:
    """Turns of a user who says something worth keeping each time, and an assistant who answers."""
    facts = (
        "I live in Busan with my sister",
        "My dog is called Bori",
        "I work as a nurse",
        "나는 냉면을 좋아해",
    )
    said = []
    for turn in range(start, start + turns):
        said.append(
            Said(user, tuple(characters), f"{facts[turn % len(facts)]} {word} {turn}".replace("  ", " "))
        )
        said.append(Said(user, tuple(characters), "I see!", role="assistant"))
    return said


def on_partition(number: int, partitions: int, prefix: str = "user") -> str:
    """A user id that is placed on this partition."""
    return next(
        name for name in (f"{prefix}{i}" for i in range(10_000)) if partition_for(name, partitions) == number
    )


def _overlay(table: dict[bytes, bytes], codec: RowCodec) -> Overlay:
    return Overlay(table.get, codec)
