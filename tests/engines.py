"""Real engines for tests: Apache Kafka and PostgreSQL in a directory of their own."""

import shutil
import tempfile
from pathlib import Path
from types import TracebackType

from infra.engines import read_engines, start_engines, stop_engines
from infra.engines.kafka import start_kafka, stop_kafka
from infra.engines.postgres import start_postgres, stop_postgres


def _quiet(line: str) -> None:
    pass


class LocalEngines:
    """Engines in a fresh directory that PostgreSQL's user can enter; stopped and removed at the end."""

    def __init__(self, *, kafka: bool = True, postgres: bool = True) -> None:
        self._kafka, self._postgres = kafka, postgres
        self.data_dir = Path(tempfile.mkdtemp(prefix="keepsake-test-"))
        self.data_dir.chmod(0o755)

    def __enter__(self) -> "LocalEngines":
        try:
            start_engines(self.data_dir, kafka=self._kafka, postgres=self._postgres, progress=_quiet)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        stop_engines(self.data_dir, _quiet)
        shutil.rmtree(self.data_dir, ignore_errors=True)

    @property
    def bootstrap(self) -> str:
        state = read_engines(self.data_dir).kafka
        assert state is not None, "Kafka does not run"
        return state.bootstrap

    @property
    def database_url(self) -> str:
        state = read_engines(self.data_dir).postgres
        assert state is not None, "PostgreSQL does not run"
        return state.url

    def stop_kafka(self) -> None:
        stop_kafka(self.data_dir, _quiet)

    def start_kafka(self) -> None:
        start_kafka(self.data_dir, _quiet)

    def stop_postgres(self) -> None:
        stop_postgres(self.data_dir, _quiet)

    def start_postgres(self) -> None:
        start_postgres(self.data_dir, _quiet)
