"""Detached processes with a record on disk: which process it was, not only which number it had."""

import json
import os
import pwd
import signal
import socket
import subprocess
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

STOP_SECONDS = 20.0
CREATE_TIME_SLACK = 1.0
PORT_TRIES = 8


class EngineError(Exception):
    """A local engine cannot be started or stopped; the message says what to do."""


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """A process that was started: its number, its start (seconds since the epoch), its port."""

    pid: int
    created: float
    port: int

    def alive(self) -> bool:
        """Whether that very process runs: a number that was given to another does not count."""
        if not self.pid:
            return False
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.created) < CREATE_TIME_SLACK
            return same and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False


def record_of(pid: int, port: int) -> ProcessRecord:
    return ProcessRecord(pid, psutil.Process(pid).create_time(), port)


def find_running(path: Path, command_holds: Collection[str]) -> ProcessRecord | None:
    """The process recorded at `path`, if it runs.

    A start writes its port first, and its process when that is known. After a kill between the two, the
    process is known by its command line, which holds every one of `command_holds`, and is recorded then.
    """
    record = read_record(path)
    if record is None or record.alive():
        return record
    for process in psutil.process_iter():
        # Processes of others, and those that end meanwhile, cannot be asked.
        with suppress(psutil.Error, OSError):
            if set(command_holds) <= set(process.cmdline()):
                found = record_of(process.pid, record.port)
                if found.alive():
                    write_record(path, found)
                    return found
    return None


def record_start(path: Path, port: int) -> None:
    """Note the port of a process that is about to be started."""
    write_record(path, ProcessRecord(0, 0.0, port))


def read_record(path: Path) -> ProcessRecord | None:
    """The record at `path`; None if there is none, or it is unreadable (a kill while it was written)."""
    try:
        data = json.loads(path.read_text())
        return ProcessRecord(int(data["pid"]), float(data["created"]), int(data["port"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_record(path: Path, record: ProcessRecord) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps({"pid": record.pid, "created": record.created, "port": record.port}))
    temporary.replace(path)


def spawn(command: Sequence[str], log: Path, *, cwd: Path, user: str | None = None) -> int:
    """Start a process in a session of its own, output appended to `log`; its pid."""
    with log.open("ab") as output:
        process = subprocess.Popen(  # noqa: S603 - the command is ours, no shell
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            start_new_session=True,
            user=user,
            group=pwd.getpwnam(user).pw_gid if user else None,
            extra_groups=[] if user else None,
        )
    return process.pid


def stop_process(record: ProcessRecord, gently: signal.Signals = signal.SIGTERM) -> None:
    """End the process: `gently` first, SIGKILL after 20 s; returns when it is gone."""
    if not record.alive():
        return
    process = psutil.Process(record.pid)
    for number, seconds in ((gently, STOP_SECONDS), (signal.SIGKILL, STOP_SECONDS)):
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            process.send_signal(number)
            with suppress(psutil.TimeoutExpired):
                process.wait(seconds)
        if not record.alive():
            _reap(record.pid)
            return
    raise EngineError(f"process {record.pid} does not end, not even by SIGKILL: look at it with `ps`")


def free_port(wanted: int | None = None, *, besides: int | None = None) -> int:
    """A free TCP port on the loopback: `wanted` if it still is, else any but `besides`, which is soon taken."""
    # The system may give a port again that was given and let go of a moment ago.
    for port in (wanted, *[0] * PORT_TRIES):
        if port is None:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found = int(probe.getsockname()[1])
                if found != besides:
                    return found
    raise EngineError("no free port on 127.0.0.1")


def last_lines(log: Path, count: int = 8) -> str:
    """The end of a log, for an error message."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-count:])
    except OSError:
        return "(no log)"


def _reap(pid: int) -> None:
    # A child of ours would stay as a zombie, and a zombie is not "nothing left running".
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
