"""`keepsake up`: starts the engines, topics, keys and roles of a data directory, and keeps them running."""

import asyncio
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from infra.engines import EngineError, Engines, read_engines, start_engines, stop_engines
from streams.children import ROLES, end_roles, last_lines, log_path, start_role
from streams.local_setup import make_data_dir, make_secrets
from streams.places import recall_url
from streams.provision import provision
from streams.settings import Settings
from streams.status import answers_ready, read_heartbeat
from streams.supervisor_state import Child, SupervisorState, is_alive, only_supervisor, read_state, state_path

TICK_SECONDS = 0.3
FIRST_BACKOFF_SECONDS = 0.5
LONGEST_BACKOFF_SECONDS = 30.0
# A role that ran for so long is healthy: its next end is met with the first back-off again.
STEADY_SECONDS = 60.0
# Without a new sign of life for so long, a role is stuck; the first one comes after its imports.
SILENT_SECONDS = 120.0
ENGINE_RETRY_SECONDS = 5.0
DOWN_SECONDS = 90.0

Progress = Callable[[str], None]


class Stopped(BaseException):
    """SIGINT or SIGTERM arrived; like KeyboardInterrupt, nothing on the way catches it by mistake."""


@dataclass(slots=True)
class Role:
    """One role under supervision. Times are of the monotonic clock, which does not run while a machine sleeps."""

    name: str
    record: Child = field(default_factory=Child)
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    start_at: float = 0.0
    backoff: float = FIRST_BACKOFF_SECONDS
    said: str = ""
    beat: float = 0.0
    beat_seen: float = 0.0


class Supervisor:
    """The roles of one data directory, restarted when they die. `run` returns only by an exception."""

    def __init__(self, settings: Settings, progress: Progress) -> None:
        self._settings = settings
        self._data_dir = settings.data_dir
        self._tell = progress
        self._state = SupervisorState.of_this_process()
        self._roles = [Role(name) for name in ROLES]
        self._places: Engines | None = None
        self._engines_at = 0.0

    def run(self) -> None:
        """Start everything and watch it, until a signal (Stopped) or an error that nothing here can mend."""
        self._state.write(self._data_dir)
        orphans = end_roles(self._data_dir, self._tell)
        if orphans:
            self._tell(f"ended {orphans} roles that an earlier `keepsake up` left behind")
        self._start_engines()
        asyncio.run(provision(self._settings, self._tell))
        make_secrets(self._settings, self._tell)
        for role in self._roles:
            self._start(role)
        while True:
            for role in self._roles:
                self._watch(role)
            self._watch_engines()
            self._announce()
            time.sleep(TICK_SECONDS)

    def stop(self) -> None:
        """End roles, then engines."""
        self._tell("stopping")
        self._state.phase = "stopping"
        self._state.write(self._data_dir)
        end_roles(self._data_dir, self._tell)
        for role in self._roles:
            if role.process is not None:
                role.process.wait()  # ours, so it stays as a zombie until it is asked for
        stop_engines(self._data_dir, self._tell)
        state_path(self._data_dir).unlink(missing_ok=True)
        self._tell("stopped")

    def _start_engines(self) -> None:
        kafka, postgres = self._settings.kafka_bootstrap is None, self._settings.database_url is None
        if kafka or postgres:
            start_engines(self._data_dir, kafka=kafka, postgres=postgres, progress=self._tell)
        self._places = read_engines(self._data_dir)

    def _start(self, role: Role) -> None:
        role.process = start_role(self._data_dir, role.name)
        role.started = role.beat_seen = time.monotonic()
        role.record.pid = role.process.pid
        with suppress(psutil.NoSuchProcess):  # gone already: the next look meets its end
            role.record.created = psutil.Process(role.process.pid).create_time()
        role.said = ""
        self._state.roles[role.name] = role.record
        self._state.write(self._data_dir)

    def _watch(self, role: Role) -> None:
        now = time.monotonic()
        if role.process is None:
            if now >= role.start_at:
                self._start(role)
            return
        code = role.process.poll()
        if code is not None:
            self._ended(role, code, now)
            return
        beat = read_heartbeat(self._data_dir, role.name)
        if beat is not None and beat.pid == role.process.pid:
            if beat.updated_at != role.beat:
                role.beat, role.beat_seen = beat.updated_at, now
            if beat.state != role.said:
                role.said = beat.state
                self._tell(f"{role.name:<10} {beat.state} ({now - role.started:.1f} s, process {beat.pid})")
        if now - role.beat_seen > SILENT_SECONDS:
            self._tell(f"{role.name:<10} has made no progress for {SILENT_SECONDS:.0f} s: killing it")
            role.process.kill()

    def _ended(self, role: Role, code: int, now: float) -> None:
        if now - role.started > STEADY_SECONDS:
            role.backoff = FIRST_BACKOFF_SECONDS
        role.process = None
        role.start_at = now + role.backoff
        role.record.restarts += 1
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        log = log_path(self._data_dir, role.name)
        self._tell(
            f"{role.name:<10} {how}; restart {role.record.restarts} in {role.backoff:.1f} s. "
            f"The end of {log}:\n{last_lines(log, 3)}"
        )
        role.backoff = min(role.backoff * 2, LONGEST_BACKOFF_SECONDS)
        self._state.write(self._data_dir)

    def _watch_engines(self) -> None:
        """Start a local engine that died again; one that had to move takes the roles with it."""
        known = self._places
        found = read_engines(self._data_dir)
        if known is None or found == known or time.monotonic() < self._engines_at:
            return
        self._engines_at = time.monotonic() + ENGINE_RETRY_SECONDS
        self._tell("an engine has ended: starting it again")
        try:
            self._start_engines()
        except EngineError as error:
            self._tell(f"it does not start: {error}")
            return
        if _addresses(self._places) != _addresses(known):
            self._tell("an engine has another address now: the roles are started again")
            for role in self._roles:
                if role.process is not None:
                    role.process.terminate()

    def _announce(self) -> None:
        """Say once that everything runs and recall answers."""
        if self._state.phase == "running" or any(role.said != "running" for role in self._roles):
            return
        url = recall_url(self._settings)
        if url is None or not answers_ready(url):
            return
        self._state.phase = "running"
        self._state.write(self._data_dir)
        self._tell(f"Keepsake is up: {url}")


def _addresses(engines: Engines | None) -> tuple[str | None, str | None]:
    if engines is None:
        return None, None
    return (
        engines.kafka.bootstrap if engines.kafka else None,
        engines.postgres.url if engines.postgres else None,
    )


def run_up(settings: Settings, progress: Progress) -> None:
    """Everything in the foreground, until SIGINT or SIGTERM; nothing is left when this returns or raises.

    Raises AlreadyRunning, SetupError, EngineError, ProvisionError, KeysError with what to do.
    """
    make_data_dir(settings.data_dir)
    with only_supervisor(settings.data_dir):
        supervisor = Supervisor(settings, progress)
        stopping = False

        def on_signal(_number: int, _frame: object) -> None:
            nonlocal stopping
            if not stopping:  # the second Ctrl-C of an impatient user must not leave half of it running
                stopping = True
                raise Stopped

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, on_signal)
        try:
            supervisor.run()
        except Stopped:
            pass
        finally:
            stopping = True
            supervisor.stop()


def run_down(settings: Settings, progress: Progress) -> None:
    """Stop a running `up`, or what a killed one left behind: roles, then engines."""
    data_dir = settings.data_dir
    if not (data_dir / "run").exists():
        return
    state = read_state(data_dir)
    if state is not None and state.alive:
        progress(f"stopping `keepsake up` (process {state.pid})")
        _end_supervisor(state, progress)
    end_roles(data_dir, progress)
    stop_engines(data_dir, progress)
    state_path(data_dir).unlink(missing_ok=True)
    _remove_heartbeats(data_dir)


def _end_supervisor(state: SupervisorState, progress: Progress) -> None:
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(state.pid)
        process.terminate()
        try:
            process.wait(DOWN_SECONDS)
        except psutil.TimeoutExpired:
            if is_alive(state.pid, state.created):
                progress(f"it does not end after {DOWN_SECONDS:.0f} s: killing it")
                process.kill()
                process.wait(DOWN_SECONDS)


def _remove_heartbeats(data_dir: Path) -> None:
    """A role that was killed leaves its last sign of life, which is none any more."""
    for name in ROLES:
        (data_dir / "run" / f"{name}-0.json").unlink(missing_ok=True)
