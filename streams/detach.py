"""`keepsake up --detach`: starts `keepsake up` behind the terminal, and returns when everything runs."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from streams.children import last_lines, log_path
from streams.errors import Explained
from streams.local_setup import make_data_dir
from streams.settings import Settings
from streams.status import status
from streams.supervisor import run_down
from streams.supervisor_state import SupervisorState, read_state

POLL_SECONDS = 0.2
# A role that has died so often before it ever ran will not run.
HOPELESS_RESTARTS = 3
# From a role's first start; what comes before (fetching the engines) says itself when it fails.
START_SECONDS = 180.0

Progress = Callable[[str], None]


class StartFailed(Explained):
    """Something does not come up; the message says what, with the end of its log."""


def up_log(data_dir: Path) -> Path:
    return data_dir / "logs" / "up.log"


def start_detached(settings: Settings, progress: Progress) -> bool:
    """Start everything unless it runs, and wait until it does; False if it ran already.

    Raises StartFailed; then nothing is left running.
    """
    data_dir = settings.data_dir
    make_data_dir(data_dir)
    state = read_state(data_dir)
    ran = state is not None and state.alive
    log = up_log(data_dir)
    begin = log.stat().st_size if log.exists() else 0
    process = None if ran else _spawn(data_dir, log)
    try:
        _wait(settings, process, _Follower(log, begin, progress))
    except BaseException:
        # One that ended by itself has cleaned up; one that was there before is not ours to end.
        if process is not None and (process.poll() is None or process.returncode < 0):
            run_down(settings, lambda line: None)
            process.wait()
        raise
    return not ran


def _spawn(data_dir: Path, log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(  # the command is ours, no shell
            [sys.executable, "-m", "streams.cli", "up"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "KEEPSAKE_DATA_DIR": str(data_dir), "PYTHONUNBUFFERED": "1"},
        )


class _Follower:
    """Passes on what is appended to a log."""

    def __init__(self, log: Path, begin: int, progress: Progress) -> None:
        self._log, self._at, self._progress = log, begin, progress

    def tell(self) -> None:
        if not self._log.exists():
            return
        with self._log.open("rb") as file:
            file.seek(self._at)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._at += len(whole)
        for line in whole.decode(errors="replace").splitlines():
            self._progress(line)


def _wait(settings: Settings, process: subprocess.Popen[bytes] | None, follower: _Follower) -> None:
    data_dir = settings.data_dir
    deadline: float | None = None
    while True:
        follower.tell()
        state = read_state(data_dir)
        if state is not None and state.phase == "running" and state.alive:
            return
        if process is not None and process.poll() is not None:
            follower.tell()
            raise StartFailed(
                f"`keepsake up` ended with exit code {process.returncode}. The end of {up_log(data_dir)}:\n"
                f"{last_lines(up_log(data_dir))}"
            )
        if process is None and (state is None or not state.alive):
            raise StartFailed("the `keepsake up` that was running has ended: run it again")
        ours = state is not None and state.alive and (process is None or state.pid == process.pid)
        if state is not None and ours and state.roles:
            deadline = deadline or time.monotonic() + START_SECONDS
            failed = _failed_roles(settings, state, time.monotonic() > deadline)
            if failed:
                raise StartFailed(_explain(data_dir, failed, process is not None))
        time.sleep(POLL_SECONDS)


def _failed_roles(settings: Settings, state: SupervisorState, late: bool) -> list[str]:
    """The roles that will not come up; when it is late, those that have not."""
    roles = status(settings)["roles"]
    waiting = [name for name in state.roles if roles[name]["state"] != "running"]
    hopeless = [name for name in waiting if state.roles[name].restarts >= HOPELESS_RESTARTS]
    return hopeless or ((waiting or ["recall"]) if late else [])


def _explain(data_dir: Path, failed: list[str], ours: bool) -> str:
    what = "do not come up" if len(failed) > 1 else "does not come up"
    after = ": everything was stopped again" if ours else ""
    logs = [log_path(data_dir, name) for name in failed]
    ends = "\n".join(f"The end of {log}:\n{last_lines(log)}" for log in logs)
    return f"{', '.join(failed)} {what}{after}.\n{ends}"
