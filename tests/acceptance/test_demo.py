"""`keepsake demo` from start to end, and that nothing of it stays, not even after a kill -9."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from streams.detach import up_log
from tests.acceptance.system import POLL, TIMEOUT


@pytest.fixture
def data_dir() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="keepsake-demo-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def start_demo(data_dir: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "streams.cli", "demo"],
        env={**os.environ, "KEEPSAKE_DATA_DIR": str(data_dir), "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        text=True,
    )


def processes_of(data_dir: Path) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if str(data_dir) in " ".join(process.cmdline()) or str(data_dir) in process.environ().values():
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return found


def test_the_demo_plays_recalls_and_leaves_nothing(data_dir: Path) -> None:
    killed = start_demo(data_dir)
    log = up_log(data_dir / "demo")
    deadline = time.monotonic() + TIMEOUT
    while not (log.exists() and "starting Apache Kafka" in log.read_text()):
        assert time.monotonic() < deadline
        time.sleep(POLL)
    killed.kill()
    killed.communicate()
    demo = start_demo(data_dir)
    output, _ = demo.communicate(timeout=2 * TIMEOUT)
    assert demo.returncode == 0
    assert output.count("a memory, ") == 5
    assert output.count("=== Later, ") == 3
    assert output.count("vector rank 0") == 3
    assert "degraded" not in output
    assert processes_of(data_dir) == []
    assert not (data_dir / "demo").exists()
