"""What the supervisor keeps on disk, and how it recognises and ends its processes."""

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from pydantic import SecretStr

from streams import children
from streams.heartbeat import Heartbeat
from streams.local_setup import make_data_dir, make_secrets
from streams.settings import Settings
from streams.status import mask_password, status
from streams.supervisor_state import (
    AlreadyRunning,
    Child,
    SupervisorState,
    is_alive,
    only_supervisor,
    read_state,
    state_path,
)

told: list[str] = []
SLEEP = "import signal, sys, time\nprint('ready', flush=True)\ntime.sleep(600)"
STUBBORN = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{SLEEP}"


def start(script: str, mark: Path | None) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **({children.MARK: str(mark)} if mark else {})},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    make_data_dir(tmp_path / "data")
    return tmp_path / "data"


def test_a_state_is_read_back_and_a_damaged_one_is_none(data_dir: Path) -> None:
    state = SupervisorState.of_this_process()
    state.roles["ledger"] = Child(pid=1, created=2.5, restarts=3)
    state.write(data_dir)
    assert read_state(data_dir) == state
    assert state.alive
    state_path(data_dir).write_text('{"pid": 1')
    assert read_state(data_dir) is None
    state_path(data_dir).write_text("[]")
    assert read_state(data_dir) is None


def test_a_number_given_to_another_process_is_not_ours() -> None:
    itself = psutil.Process()
    assert is_alive(itself.pid, itself.create_time())
    assert not is_alive(itself.pid, itself.create_time() - 100)


def test_one_supervisor_a_directory(data_dir: Path) -> None:
    script = (
        "import sys\nfrom pathlib import Path\nfrom streams.supervisor_state import only_supervisor\n"
        "with only_supervisor(Path(sys.argv[1])):\n    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(data_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(AlreadyRunning, match="keepsake down"), only_supervisor(data_dir):
            pass
    finally:
        holder.kill()
        holder.communicate()
    with only_supervisor(data_dir):
        pass


def test_roles_are_found_by_their_mark_and_ended(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "STOP_SECONDS", 1.0)
    ours, stubborn = start(SLEEP, data_dir), start(STUBBORN, data_dir)
    others = [start(SLEEP, data_dir.parent), start(SLEEP, None)]
    try:
        assert {process.pid for process in children.find_roles(data_dir)} == {ours.pid, stubborn.pid}
        lines: list[str] = []
        assert children.end_roles(data_dir, lines.append) == 2
        assert children.find_roles(data_dir) == []
        assert not psutil.pid_exists(ours.pid)
        assert not psutil.pid_exists(stubborn.pid)
        assert [str(stubborn.pid) in line for line in lines] == [True]
        assert all(process.poll() is None for process in others)
    finally:
        for process in (ours, stubborn, *others):
            process.kill()
            process.communicate()


def test_secrets_are_made_once_and_for_the_owner_alone(data_dir: Path) -> None:
    settings = Settings(data_dir=data_dir)
    make_secrets(settings, told.append)
    files = [data_dir / "keys.json", data_dir / "token"]
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600, 0o600]
    before = [file.read_bytes() for file in files]
    make_secrets(settings, told.append)
    assert [file.read_bytes() for file in files] == before
    # As root PostgreSQL's own user must pass through; nobody else's business otherwise.
    assert stat.S_IMODE(data_dir.stat().st_mode) == (0o711 if os.geteuid() == 0 else 0o700)


def test_secrets_of_the_environment_are_not_made(data_dir: Path) -> None:
    given = Settings(data_dir=data_dir, master_keys=SecretStr("{}"), token=SecretStr("t"))
    make_secrets(given, told.append)
    assert not (data_dir / "keys.json").exists()
    assert not (data_dir / "token").exists()


def test_states_of_a_role(data_dir: Path) -> None:
    settings = Settings(data_dir=data_dir, http_port=0)
    process = start(SLEEP, data_dir)
    try:
        state = SupervisorState.of_this_process()
        created = psutil.Process(process.pid).create_time()
        state.roles["recall"] = Child(process.pid, created, restarts=2)
        state.write(data_dir)

        def recall() -> tuple[object, ...]:
            found = status(settings)
            role = found["roles"]["recall"]
            return role["pid"], role["state"], role["restarts"], role["lag"], found["url"]

        assert recall() == (process.pid, "starting", 2, None, None)
        heartbeat = Heartbeat(data_dir, "recall")
        beat = {"pid": process.pid, "state": "running", "lag": 4, "updated_at": time.time()}
        write_beat(heartbeat.path, {**beat, "detail": "http://127.0.0.1:1"})
        assert recall() == (process.pid, "running", 2, 4, "http://127.0.0.1:1")
        write_beat(heartbeat.path, {**beat, "updated_at": time.time() - 3600})
        assert recall()[1] == "silent"
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert recall()[:2] == (None, "restarting")
    state.pid, state.created = 1, 0.0
    state.write(data_dir)
    assert recall()[:2] == (None, "stopped")


def write_beat(path: Path, content: dict[str, object]) -> None:
    import orjson

    path.write_bytes(orjson.dumps(content))


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("postgresql://me:secret@db:5432/x", "postgresql://me:***@db:5432/x"),
        ("postgresql://me:se@cret@db/x", "postgresql://me:***@db/x"),
        ("postgresql://db/x", "postgresql://db/x"),
    ],
)
def test_passwords_are_masked(url: str, masked: str) -> None:
    assert mask_password(url) == masked
