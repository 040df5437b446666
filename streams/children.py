"""The role processes of a data directory: starting them, recognising them, ending them.

A child carries the data directory in its environment. So whoever comes next finds every one, also those
that were started in the last moment before a kill -9 and are recorded nowhere.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

ROLES = ("ledger", "extractor", "indexer", "recall")
MARK = "KEEPSAKE_SUPERVISED"
STOP_SECONDS = 25.0
KILL_SECONDS = 10.0


def log_path(data_dir: Path, role: str) -> Path:
    return data_dir / "logs" / f"{role}.log"


def start_role(data_dir: Path, role: str) -> subprocess.Popen[bytes]:
    """Start a role; its output is appended to its log.

    It gets a session of its own: Ctrl-C at the terminal is for the supervisor, who stops the roles in order.
    """
    with log_path(data_dir, role).open("ab") as output:
        return subprocess.Popen(  # noqa: S603  # the command is ours, no shell
            [sys.executable, "-m", "streams.cli", "run", role],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "KEEPSAKE_DATA_DIR": str(data_dir), MARK: str(data_dir)},
        )


def find_roles(data_dir: Path) -> list[psutil.Process]:
    """Every role process that a supervisor of this data directory has started and that still runs."""
    mark = str(data_dir)
    found = []
    for process in psutil.process_iter():
        # Processes of others, and those that end meanwhile, cannot be asked.
        with suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def end_roles(data_dir: Path, progress: Callable[[str], None]) -> int:
    """SIGTERM to all of them, SIGKILL to those that stay; how many there were."""
    processes = find_roles(data_dir)
    for process in processes:
        with suppress(psutil.Error):
            process.terminate()
    _, alive = psutil.wait_procs(processes, timeout=STOP_SECONDS)
    for process in alive:
        progress(f"process {process.pid} does not end by itself after {STOP_SECONDS:.0f} s: killing it")
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(alive, timeout=KILL_SECONDS)
    return len(processes)


def last_lines(path: Path, count: int = 12) -> str:
    """The end of a log, indented, for a message."""
    try:
        lines = path.read_text(errors="replace").splitlines()[-count:]
    except OSError:
        lines = []
    return "\n".join(f"    {line}" for line in lines or ["(the log is empty)"])
