"""`keepsake up` and `down` as processes: what they start, restart, stop, and leave behind after kill -9: nothing."""

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil
import pytest

T = TypeVar("T")
ROLES = ("ledger", "extractor", "indexer", "recall")
SECONDS = 120.0


class Installation:
    """A data directory, and commands on it."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        kept = {name: value for name, value in os.environ.items() if not name.startswith("KEEPSAKE_")}
        self.environment = {
            **kept,
            "KEEPSAKE_DATA_DIR": str(data_dir),
            "KEEPSAKE_HTTP_PORT": "0",
            "KEEPSAKE_PARTITIONS": "2",
        }

    def command(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "streams.cli", *arguments],
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )

    def good(self, *arguments: str, **environment: str) -> str:
        done = self.command(*arguments, **environment)
        assert done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.good("status", "--json")))

    def supervisor(self) -> int:
        return int(json.loads((self.data_dir / "run" / "supervisor.json").read_text())["pid"])

    def processes(self) -> list[psutil.Process]:
        """Everything that runs for this directory: it stands in the command line or in the environment."""
        found = []
        for process in psutil.process_iter():
            try:
                words = [*process.cmdline(), *process.environ().values()]
            except (psutil.Error, OSError):
                continue
            place = str(self.data_dir)
            if any(word == place or word.startswith(f"{place}/") for word in words):
                found.append(process)
        return found


def wait(look: Callable[[], T], what: str) -> T:
    deadline = time.monotonic() + SECONDS
    while not (found := look()):
        assert time.monotonic() < deadline, f"waited {SECONDS} s for {what}"
        time.sleep(0.2)
    return found


@pytest.fixture
def installation() -> Iterator[Installation]:
    directory = Path(tempfile.mkdtemp(prefix="keepsake-up-"))
    directory.chmod(0o755)
    made = Installation(directory / "data")
    try:
        yield made
    finally:
        made.command("down")
        left = made.processes()
        for process in left:
            process.kill()
        shutil.rmtree(directory)
        assert left == []


@pytest.mark.short
def test_up_restart_down(installation: Installation) -> None:
    told = installation.good("up", "--detach")
    assert all(f"{role:<10} running" in told for role in ROLES), told

    # The shape that clients rely on.
    found = installation.status()
    assert list(found) == ["url", "token_file", "kafka", "database", "data_dir", "engines", "roles"]
    assert found["data_dir"] == str(installation.data_dir)
    assert set(found["engines"]) == {"kafka", "postgres"}
    assert set(found["roles"]) == set(ROLES)
    for role in found["roles"].values():
        assert set(role) == {"pid", "state", "restarts", "lag"}
        assert (role["state"], role["restarts"]) == ("running", 0)
    for process in (*found["roles"].values(), *found["engines"].values()):
        assert psutil.pid_exists(process["pid"])
    assert httpx.get(f"{found['url']}/readyz").status_code == 200
    pair = f"{found['url']}/v1/users/u/characters/c"
    token = Path(found["token_file"]).read_text()
    assert httpx.get(pair).status_code == 401
    assert httpx.get(pair, headers={"Authorization": f"Bearer {token}"}).status_code == 200
    for secret in ("token", "keys.json", "postgres/password"):
        assert stat.S_IMODE((installation.data_dir / secret).stat().st_mode) == 0o600

    # A second start is the same system.
    assert "running already" in installation.good("up", "--detach")
    assert installation.status()["roles"] == found["roles"]
    foreground = installation.command("up")
    assert foreground.returncode == 1
    assert "running already" in foreground.stderr
    refused = installation.command("engines", "down")
    assert refused.returncode == 1
    assert "keepsake down" in refused.stderr

    # A role that dies is started again, and counted.
    for role in ("extractor", "recall"):
        before = found["roles"][role]["pid"]
        os.kill(before, signal.SIGKILL)
        wait(lambda role=role: installation.status()["roles"][role]["restarts"] == 1, f"{role} to be counted")  # type: ignore[misc] # a bound default
        wait(lambda role=role: installation.status()["roles"][role]["state"] == "running", role)  # type: ignore[misc] # a bound default
        assert installation.status()["roles"][role]["pid"] != before
    after = installation.status()
    assert [after["roles"][role]["restarts"] for role in ROLES] == [0, 1, 0, 1]
    wait(lambda: _ready(installation.status()["url"]), "recall to be ready again")

    installation.good("down")
    assert installation.processes() == []
    assert all(role["state"] == "stopped" for role in installation.status()["roles"].values())


def _ready(url: str | None) -> bool:
    try:
        return url is not None and httpx.get(f"{url}/readyz").status_code == 200
    except httpx.HTTPError:
        return False


def test_an_engine_that_dies_is_started_again(installation: Installation) -> None:
    installation.good("up", "--detach")
    before = installation.status()
    os.kill(before["engines"]["kafka"]["pid"], signal.SIGKILL)
    wait(
        lambda: (
            installation.status()["engines"]["kafka"]["pid"] not in (None, before["engines"]["kafka"]["pid"])
        ),
        "Kafka to be started again",
    )
    wait(lambda: _ready(installation.status()["url"]), "recall to see it")
    # On the same port, so the roles go on by themselves.
    assert installation.status()["kafka"] == before["kafka"]
    assert [role["restarts"] for role in installation.status()["roles"].values()] == [0, 0, 0, 0]


def test_nothing_is_left_after_kill_9_of_up(installation: Installation) -> None:
    installation.good("up", "--detach")
    first = installation.status()
    os.kill(installation.supervisor(), signal.SIGKILL)

    # The next `up` ends the roles of the killed one, takes the engines over, and has what was there.
    installation.good("up", "--detach")
    second = installation.status()
    for role in ROLES:
        assert not psutil.pid_exists(first["roles"][role]["pid"])
        assert second["roles"][role]["state"] == "running"
    assert second["engines"] == first["engines"]
    assert len([process for process in installation.processes() if "run" in process.cmdline()]) == len(ROLES)

    os.kill(installation.supervisor(), signal.SIGKILL)
    assert len(installation.processes()) >= len(ROLES)
    installation.good("down")
    assert installation.processes() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_in_the_foreground_ends_with_a_signal(installation: Installation, number: signal.Signals) -> None:
    log = installation.data_dir.parent / "out"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "streams.cli", "up"],
            env=installation.environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        wait(lambda: "Keepsake is up" in log.read_text(), "everything to be up")
        process.send_signal(number)
        process.send_signal(number)  # impatience must not leave half of it running
        assert process.wait(SECONDS) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in log.read_text()
    assert installation.processes() == []


def test_a_signal_while_engines_start_leaves_nothing(installation: Installation) -> None:
    log = installation.data_dir.parent / "out"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "streams.cli", "up"],
            env=installation.environment,
            stdout=output,
            stderr=output,
        )
    try:
        wait(lambda: "starting Apache Kafka" in log.read_text(), "Kafka to be started")
        process.terminate()
        assert process.wait(SECONDS) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    assert installation.processes() == []


def test_a_role_that_does_not_come_up_is_explained(installation: Installation) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = installation.command("up", "--detach", KEEPSAKE_HTTP_PORT=port)
    assert done.returncode == 1
    assert "recall does not come up" in done.stderr
    assert "KEEPSAKE_HTTP_PORT" in done.stderr
    assert "Traceback" not in done.stderr
    assert installation.processes() == []


def test_wrong_topics_are_explained_and_nothing_is_left(installation: Installation) -> None:
    installation.good("engines", "up")
    installation.good("provision")
    done = installation.command("up", "--detach", KEEPSAKE_PARTITIONS="3")
    assert done.returncode == 1
    assert "KEEPSAKE_PARTITIONS=2" in done.stderr
    assert installation.processes() == []
