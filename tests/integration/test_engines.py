"""The local engines: stale records, taken ports, half made directories, second starts."""

import asyncio
import json
import os
import signal
import socket
import ssl
import stat
import sys
from pathlib import Path

import asyncpg
import psutil
import pytest

from infra.engines import EngineError, read_engines, start_engines
from infra.engines.artifacts import kafka_jars, pinned_jars
from tests.engines import LocalEngines

told: list[str] = []


def test_a_second_start_is_the_same_engines(engines: LocalEngines) -> None:
    before = read_engines(engines.data_dir)
    after = start_engines(engines.data_dir, kafka=True, postgres=True, progress=told.append)
    assert before == after


def test_stopping_leaves_no_process_and_starting_keeps_the_data() -> None:
    with LocalEngines() as engines:
        before = read_engines(engines.data_dir)
        assert before.kafka is not None
        assert before.postgres is not None
        asyncio.run(_execute(engines.database_url, "CREATE TABLE kept (x int)"))
        engines.stop_kafka()
        engines.stop_postgres()
        assert not psutil.pid_exists(before.kafka.pid)
        assert not psutil.pid_exists(before.postgres.pid)
        # A record that names a living process of somebody else's is not ours.
        record = engines.data_dir / "run" / "postgres.json"
        data = json.loads(record.read_text())
        record.write_text(json.dumps({**data, "pid": os.getpid()}))
        assert read_engines(engines.data_dir).postgres is None
        # The old port is taken by now: another one, said so.
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("127.0.0.1", data["port"]))
            taken.listen()
            lines: list[str] = []
            start_engines(engines.data_dir, kafka=False, postgres=True, progress=lines.append)
        assert any(f"port {data['port']} is taken" in line for line in lines)
        asyncio.run(_execute(engines.database_url, "INSERT INTO kept VALUES (1)"))


def test_killed_engines_come_back() -> None:
    with LocalEngines(kafka=False) as engines:
        asyncio.run(_execute(engines.database_url, "CREATE TABLE kept (x int)"))
        state = read_engines(engines.data_dir).postgres
        assert state is not None
        os.kill(state.pid, signal.SIGKILL)
        os.waitpid(state.pid, 0)
        engines.start_postgres()
        asyncio.run(_execute(engines.database_url, "INSERT INTO kept VALUES (1)"))


def test_a_half_made_directory_is_made_anew(tmp_path_factory: pytest.TempPathFactory) -> None:
    engines = LocalEngines()
    try:
        for half in ("postgres/data.part/base", "kafka/data"):
            (engines.data_dir / half).mkdir(parents=True)
        (engines.data_dir / "kafka/data/bootstrap.checkpoint").write_bytes(b"half")
        (engines.data_dir / "run").mkdir()
        (engines.data_dir / "run/kafka.json").write_text('{"pid": 1')
        with engines:
            assert read_engines(engines.data_dir).kafka is not None
            asyncio.run(_execute(engines.database_url, "SELECT 1"))
    finally:
        engines.close()


def test_damaged_storage_is_explained_not_erased() -> None:
    engines = LocalEngines(postgres=False)
    try:
        topic = engines.data_dir / "kafka/data/chat.message-0"
        topic.mkdir(parents=True)
        with pytest.raises(EngineError, match="move it away"):
            start_engines(engines.data_dir, kafka=True, postgres=False, progress=told.append)
        assert topic.exists()
    finally:
        engines.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as another user")
def test_a_directory_that_postgres_cannot_enter_is_explained() -> None:
    engines = LocalEngines(kafka=False)
    try:
        engines.data_dir.chmod(0o700)
        with pytest.raises(EngineError, match="KEEPSAKE_DATA_DIR"):
            start_engines(engines.data_dir / "inner", kafka=False, postgres=True, progress=told.append)
    finally:
        engines.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as another user")
def test_a_private_data_directory_of_root_is_opened_for_passing_and_said_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Nothing but the user's own programs on the PATH: no useradd, no Java.
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    engines = LocalEngines(kafka=False)
    try:
        engines.data_dir.chmod(0o700)
        lines: list[str] = []
        start_engines(engines.data_dir, kafka=False, postgres=True, progress=lines.append)
        assert stat.S_IMODE(engines.data_dir.stat().st_mode) == 0o711
        assert str(engines.data_dir) in lines[0]
        state = read_engines(engines.data_dir).postgres
        assert state is not None
        assert psutil.Process(state.pid).gids().real != 0
    finally:
        engines.close()


def test_engines_started_just_before_a_kill_are_found_again() -> None:
    with LocalEngines() as engines:
        before = read_engines(engines.data_dir)
        for name in ("kafka", "postgres"):
            record = engines.data_dir / "run" / f"{name}.json"
            data = json.loads(record.read_text())
            # What the starter has written when it is killed between the start and its note of the process.
            record.write_text(json.dumps({**data, "pid": 0, "created": 0.0}))
        assert read_engines(engines.data_dir) == before


def test_a_damaged_jar_is_fetched_again(tmp_path: Path, engines: LocalEngines) -> None:
    good = kafka_jars(told.append)
    for jar in good:
        (tmp_path / jar.name).symlink_to(jar)
    victim = tmp_path / next(jar.file_name for jar in pinned_jars() if jar.artifact == "jopt-simple")
    victim.unlink()
    victim.write_bytes(b"damaged")
    lines: list[str] = []
    of_the_library = ssl.SSLContext
    kafka_jars(lines.append, cache=tmp_path)
    assert ssl.SSLContext is of_the_library, "nothing of the process is changed for good"
    assert lines[0] == "fetching Apache Kafka: 1 jars, once per user"
    assert victim.read_bytes() == next(jar for jar in good if jar.name == victim.name).read_bytes()


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
