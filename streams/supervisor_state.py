"""`data_dir/run/supervisor.json`: who supervises, what it started, how often it started it again."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import orjson
import psutil

from streams.errors import Explained

Phase = Literal["starting", "running", "stopping"]
CREATE_TIME_SLACK = 1.0


class AlreadyRunning(Explained):
    """Another supervisor of the same data directory runs; the message names it."""


@dataclass(slots=True)
class Child:
    """A role process: its number, its start (seconds since the epoch), how often it was started again."""

    pid: int = 0
    created: float = 0.0
    restarts: int = 0


@dataclass(slots=True)
class SupervisorState:
    """What the file holds. `pid` and `created` are the supervisor's own."""

    pid: int
    created: float
    phase: Phase = "starting"
    roles: dict[str, Child] = field(default_factory=dict)

    @classmethod
    def of_this_process(cls) -> "SupervisorState":
        itself = psutil.Process()
        return cls(itself.pid, itself.create_time())

    def write(self, data_dir: Path) -> None:
        path = state_path(data_dir)
        scratch = path.with_suffix(".tmp")
        scratch.write_bytes(orjson.dumps(asdict(self)))
        scratch.replace(path)

    @property
    def alive(self) -> bool:
        """Whether the supervisor that wrote this still runs."""
        return is_alive(self.pid, self.created)


def state_path(data_dir: Path) -> Path:
    return data_dir / "run" / "supervisor.json"


def read_state(data_dir: Path) -> SupervisorState | None:
    """The last supervisor's state; None if there is none, or it cannot be read."""
    try:
        data = orjson.loads(state_path(data_dir).read_bytes())
        roles = {name: Child(**child) for name, child in data.pop("roles").items()}
        return SupervisorState(**data, roles=roles)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def is_alive(pid: int, created: float) -> bool:
    """Whether that very process runs: a number that was given to another does not count."""
    try:
        process = psutil.Process(pid)
        same = abs(process.create_time() - created) < CREATE_TIME_SLACK
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextmanager
def only_supervisor(data_dir: Path) -> Iterator[None]:
    """Hold the data directory for this supervisor. The lock ends with the process, however that ends."""
    with (data_dir / "run" / "supervisor.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            state = read_state(data_dir)
            who = f" as process {state.pid}" if state and state.alive else ""
            raise AlreadyRunning(
                f"Keepsake is running already{who} on {data_dir}: see `keepsake status`, stop with `keepsake down`"
            ) from error
        yield
