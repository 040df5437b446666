"""The local engines, Apache Kafka and PostgreSQL: each in the data directory, detached, one of each."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from infra.engines.kafka import KafkaState, read_kafka, start_kafka, stop_kafka
from infra.engines.postgres import PostgresState, read_postgres, start_postgres, stop_postgres
from infra.engines.processes import EngineError

__all__ = ["EngineError", "Engines", "read_engines", "start_engines", "stop_engines"]

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Engines:
    """The engines that run; None for one that does not."""

    kafka: KafkaState | None
    postgres: PostgresState | None


def read_engines(data_dir: Path) -> Engines:
    """What runs in this data directory."""
    data_dir = data_dir.resolve()
    return Engines(read_kafka(data_dir), read_postgres(data_dir))


def start_engines(data_dir: Path, *, kafka: bool, postgres: bool, progress: Progress) -> Engines:
    """Start those asked for, unless they run. Raises EngineError with what to do."""
    data_dir = data_dir.resolve()
    try:
        for folder in ("run", "logs"):
            (data_dir / folder).mkdir(parents=True, exist_ok=True)
        with _lock(data_dir):
            if postgres:
                start_postgres(data_dir, progress)
            if kafka:
                start_kafka(data_dir, progress)
    except PermissionError as error:
        raise EngineError(
            f"no right to write {error.filename}: set KEEPSAKE_DATA_DIR to a directory of yours"
        ) from error
    return read_engines(data_dir)


def stop_engines(data_dir: Path, progress: Progress) -> None:
    """Stop both; returns when they are gone."""
    data_dir = data_dir.resolve()
    if not (data_dir / "run").exists():
        return
    with _lock(data_dir):
        stop_kafka(data_dir, progress)
        stop_postgres(data_dir, progress)


def _lock(data_dir: Path) -> FileLock:
    # Two starts at once would make two engines on one directory.
    return FileLock(data_dir / "run" / "engines.lock")
