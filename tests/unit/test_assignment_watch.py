"""The assignments as the extractor sees them: followed, and never missing; and how their models are opened."""

import asyncio
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agents.assigned import NotConfigured
from agents.extraction import PromptedExtraction
from agents.ports import Completion
from infra.offline_extractor import OfflineExtractor
from models.assignments import Assigned, Assignment, ModelRef, Task
from models.memory import Provenance
from models.store_errors import StoreUnavailable
from streams.assignments import AssignmentWatch, default_assignments, standings
from streams.model_factory import ExtractionModels
from streams.settings import Settings

AT = datetime(2026, 3, 1, tzinfo=UTC)


def settings(directory: Path, **more: Any) -> Settings:
    return Settings(data_dir=directory, **more)


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GEMINI_API_KEY", "KEEPSAKE_EXTRACTION_MODEL"):
        monkeypatch.delenv(name, raising=False)


class Store:
    """What PostgreSQL answers, or how it fails."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.assigned: dict[Task, Assigned] = {}
        self.read = asyncio.Event()

    async def assignments(self) -> Mapping[Task, Assigned]:
        self.read.set()
        if self.failure is not None:
            raise self.failure
        return dict(self.assigned)

    def assign(self, model: str, fallback: str | None = None) -> None:
        self.assigned["extraction"] = Assigned(Assignment.parse("extraction", model, fallback), "me", AT)


def watching(store: Store, directory: Path, seconds: float = 60) -> AssignmentWatch:
    defaults = default_assignments(settings(directory, extraction_model="openai:default"))
    return AssignmentWatch(store.assignments, defaults, seconds=seconds)


async def test_a_change_is_seen_at_the_next_look_and_its_end_too(tmp_path: Path) -> None:
    store = Store()
    watch = watching(store, tmp_path)
    await watch.refresh()
    assert str(watch.current("extraction").model) == "openai:default"
    store.assign("openai:a", "offline:keepsake-rules")
    await watch.refresh()
    assert watch.current("extraction") == store.assigned["extraction"].assignment
    assert str(watch.current("insight").model) == "offline:keepsake-rules"
    store.assigned.clear()
    await watch.refresh()
    assert str(watch.current("extraction").model) == "openai:default"


@pytest.mark.parametrize("failure", [StoreUnavailable("away"), RuntimeError("SECRET"), TimeoutError()])
async def test_the_last_seen_goes_on_while_it_cannot_be_read(
    tmp_path: Path, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    store = Store()
    watch = watching(store, tmp_path)
    store.failure = failure
    await watch.refresh()
    assert str(watch.current("extraction").model) == "openai:default"
    store.failure = None
    store.assign("openai:a")
    await watch.refresh()
    store.failure = failure
    for _ in range(3):
        await watch.refresh()
    assert str(watch.current("extraction").model) == "openai:a"
    assert sum(record.levelname == "WARNING" for record in caplog.records) == 2  # once for each time away
    assert "SECRET" not in caplog.text


async def test_it_looks_again_and_again(tmp_path: Path) -> None:
    store = Store()
    store.failure = StoreUnavailable("away")
    running = asyncio.create_task(watching(store, tmp_path, seconds=0.01).run())
    for _ in range(3):
        store.read.clear()
        await asyncio.wait_for(store.read.wait(), 30)
    running.cancel()


def test_the_standing_of_every_task_is_told(tmp_path: Path) -> None:
    store = Store()
    store.assign("openai:a", "gemini:g")
    told = {one.task: one for one in standings(store.assigned, default_assignments(settings(tmp_path)))}
    extraction, insight = told["extraction"], told["insight"]
    assert (extraction.model, extraction.fallback, extraction.source) == ("openai:a", "gemini:g", "assigned")
    assert (extraction.assigned_by, extraction.assigned_at) == ("me", AT)
    assert (insight.model, insight.source, insight.assigned_by) == ("offline:keepsake-rules", "default", None)
    assert told.keys() == {"extraction", "consolidation", "insight"}


def test_the_default_is_gemini_where_it_has_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "k")
    assert str(default_assignments(settings(tmp_path))["extraction"].model) == "gemini:gemini-2.5-flash"
    monkeypatch.setenv("GEMINI_API_KEY", " ")
    assert default_assignments(settings(tmp_path))["extraction"].model.offline


def test_a_wrong_model_in_the_settings_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KEEPSAKE_EXTRACTION_MODEL", "gpt-5")
    with pytest.raises(ValueError, match="provider:model"):
        settings(tmp_path)
    monkeypatch.setenv("KEEPSAKE_EXTRACTION_MODEL", "")
    assert settings(tmp_path).extraction_model is None


class NoMeter:
    async def admitted(self, task: str) -> None: ...

    def add(self, provenance: Provenance, completion: Completion) -> None: ...


async def test_models_are_opened_by_their_provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = settings(tmp_path, openai_base_url="http://127.0.0.1:1/v1")
    async with ExtractionModels(given, NoMeter()) as models:
        assert isinstance(models(ModelRef.parse("offline:keepsake-rules")), OfflineExtractor)
        assert isinstance(models(ModelRef.parse("openai:local")), PromptedExtraction)
        with pytest.raises(NotConfigured, match="GEMINI_API_KEY"):
            models(ModelRef.parse("gemini:gemini-2.5-flash"))
        monkeypatch.delitem(sys.modules, "infra.providers.anthropic", raising=False)
        monkeypatch.setitem(sys.modules, "anthropic", None)  # as if it were not installed
        with pytest.raises(NotConfigured, match=r"pip install 'keepsake\[anthropic\]'"):
            models(ModelRef.parse("anthropic:claude-haiku-4-5"))
