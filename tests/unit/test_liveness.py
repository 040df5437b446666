"""The liveness that containers ask for."""

from pathlib import Path

import pytest

from infra.liveness import STALE_SECONDS, main, problem
from streams.heartbeat import Heartbeat


def test_a_role_that_beats_is_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEPSAKE_DATA_DIR", str(tmp_path))
    Heartbeat(tmp_path, "ledger").update("running")
    assert main("ledger") == 0


def test_a_role_that_stopped_beating_is_not(tmp_path: Path) -> None:
    heartbeat = Heartbeat(tmp_path, "ledger")
    heartbeat.update("running")
    written = heartbeat.path.stat().st_mtime
    assert problem(tmp_path, "ledger", now=written + STALE_SECONDS - 5) is None
    found = problem(tmp_path, "ledger", now=written + STALE_SECONDS + 5)
    assert found is not None
    assert "no progress" in found


def test_a_role_that_never_started_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KEEPSAKE_DATA_DIR", str(tmp_path))
    assert main("indexer") == 1
    assert "indexer has not started" in capsys.readouterr().err


def test_a_damaged_sign_of_life_is_none(tmp_path: Path) -> None:
    path = Heartbeat(tmp_path, "ledger").path
    path.parent.mkdir(parents=True)
    path.write_text("{")
    assert problem(tmp_path, "ledger") is not None
