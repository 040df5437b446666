"""The assigned model makes each attempt, and what cannot be opened fails the attempt alone."""

import asyncio
import logging

import pytest

import agents.assigned
from agents.assigned import AssignedExtraction, NotConfigured
from agents.ports import Answered, Completion, ProviderError
from models.assignments import Assignment, ModelRef
from models.memory import Provenance
from models.requests import WindowRequest
from tests.unit.windows import window

REQUEST = window(["I moved to Busan"])


class Named:
    """A provider that answers with the name of its model."""

    def __init__(self, model: ModelRef) -> None:
        self.model = model

    async def extract(self, request: WindowRequest) -> Answered:
        provenance = Provenance(
            task="extraction",
            prompt="p",
            prompt_version="1",
            provider=self.model.provider,
            model=self.model.model,
            offline=False,
        )
        return Answered(str(self.model), provenance)


class World:
    """An assignment that may change, models that may be missing, and a meter that may hold back."""

    def __init__(self, model: str = "openai:a", fallback: str | None = None) -> None:
        self.assign(model, fallback)
        self.missing: set[str] = set()
        self.opened: list[str] = []
        self.admits = asyncio.Event()
        self.held: asyncio.Queue[str] = asyncio.Queue()
        self.extraction = AssignedExtraction(lambda: self.assignment, self.make, self, attempts=2)

    def assign(self, model: str, fallback: str | None = None) -> None:
        self.assignment = Assignment.parse("extraction", model, fallback)

    def make(self, model: ModelRef) -> Named:
        if str(model) in self.missing:
            raise NotConfigured("set KEEPSAKE_OPENAI_API_KEY")
        self.opened.append(str(model))
        return Named(model)

    async def admitted(self, task: str) -> None:
        self.held.put_nowait(task)
        await self.admits.wait()

    def add(self, provenance: Provenance, completion: Completion) -> None: ...

    async def answers(self, *attempts: int) -> list[str]:
        return [
            (await self.extraction.extract(REQUEST.model_copy(update={"attempt": attempt}))).raw
            for attempt in attempts
        ]


async def test_a_change_is_used_at_the_next_attempt_and_models_are_opened_once() -> None:
    world = World()
    assert await world.answers(1, 1) == ["openai:a", "openai:a"]
    world.assign("gemini:g")
    assert await world.answers(1) == ["gemini:g"]
    world.assign("openai:a")
    assert await world.answers(1) == ["openai:a"]
    assert world.opened == ["openai:a", "gemini:g"]


async def test_the_fall_back_takes_its_turn() -> None:
    world = World(fallback="gemini:g")
    assert await world.answers(1, 2, 3, 4, 5) == ["openai:a"] * 2 + ["gemini:g"] * 2 + ["openai:a"]
    more = [world.extraction.more(REQUEST.model_copy(update={"attempt": n})) for n in range(1, 6)]
    assert more == [True, True, True, False, True]
    world.assign("openai:a")
    assert not world.extraction.more(REQUEST)


async def test_what_is_not_configured_fails_the_attempt_and_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.missing = {"openai:a"}
    for _ in range(3):
        with pytest.raises(ProviderError, match="not_configured"):
            await world.answers(1)
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert told == ["The model openai:a cannot be used: set KEEPSAKE_OPENAI_API_KEY"]
    world.missing = set()
    assert await world.answers(1) == ["openai:a"]


async def test_an_offline_model_is_not_held_back() -> None:
    world = World("offline:keepsake-rules")
    await world.extraction.admitted(REQUEST)
    assert world.held.empty()


async def test_a_change_to_an_offline_model_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents.assigned, "LOOK_SECONDS", 0.01)
    world = World()
    waiting = asyncio.create_task(world.extraction.admitted(REQUEST))
    assert await world.held.get() == "extraction"
    assert await world.held.get() == "extraction"  # it looks again, and still waits
    assert not waiting.done()
    world.assign("offline:keepsake-rules")
    await waiting


async def test_the_wait_ends_when_the_meter_admits() -> None:
    world = World()
    waiting = asyncio.create_task(world.extraction.admitted(REQUEST))
    await world.held.get()
    world.admits.set()
    await waiting
