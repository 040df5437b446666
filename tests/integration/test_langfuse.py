"""Langfuse as the registry of prompts: its real SDK against a local server that speaks its API."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from agents.extraction import EXTRACTION_PROMPT
from infra.prompts import LangfuseAccess, LangfusePrompts
from tests.integration.registry import FILE, NOISE, Registry


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    made = Registry()
    await made.server.start_server()
    yield made
    made.gate.set()
    await made.server.close()


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def clock() -> Clock:
    return Clock()


@pytest.fixture
async def prompts(registry: Registry, clock: Clock) -> AsyncIterator[LangfusePrompts]:
    made = LangfusePrompts(LangfuseAccess("pk", "sk", registry.url), clock=clock)
    yield made
    await made.close()


async def refreshed(prompts: LangfusePrompts) -> None:
    """Let the fetch that is under way end."""
    await asyncio.gather(*prompts._fetches.values(), return_exceptions=True)


async def test_a_prompt_of_the_registry_is_used_with_its_version(
    registry: Registry, prompts: LangfusePrompts
) -> None:
    found = await prompts.get(EXTRACTION_PROMPT)
    assert (found.version, found.text) == ("langfuse:7", FILE.text + "\nBe brief.")
    await prompts.get(EXTRACTION_PROMPT)
    assert registry.paths == ["/api/public/v2/prompts/pipeline%2Fmemory-summarize?label=production"], (
        "asked once, no traces"
    )


async def test_a_new_version_comes_within_a_minute_and_nobody_waits_for_it(
    registry: Registry, prompts: LangfusePrompts, clock: Clock
) -> None:
    await prompts.get(EXTRACTION_PROMPT)
    registry.version = 8
    registry.gate.clear()
    clock.now = 61
    async with asyncio.timeout(5):
        assert (await prompts.get(EXTRACTION_PROMPT)).version == "langfuse:7"
    registry.gate.set()
    await refreshed(prompts)
    assert (await prompts.get(EXTRACTION_PROMPT)).version == "langfuse:8"


@pytest.mark.parametrize("status", [401, 404, 503])
async def test_a_registry_that_is_down_leaves_what_was_seen_last(
    registry: Registry, prompts: LangfusePrompts, clock: Clock, status: int
) -> None:
    registry.status = status
    assert await prompts.get(EXTRACTION_PROMPT) == FILE
    registry.status, clock.now = 200, 61
    await prompts.get(EXTRACTION_PROMPT)
    await refreshed(prompts)
    assert (await prompts.get(EXTRACTION_PROMPT)).version == "langfuse:7"
    registry.status, clock.now = status, 200
    await prompts.get(EXTRACTION_PROMPT)
    await refreshed(prompts)
    assert (await prompts.get(EXTRACTION_PROMPT)).version == "langfuse:7"


@pytest.mark.parametrize("status", [429, 503])
async def test_a_registry_that_fails_is_asked_once_a_minute_whatever_it_says(
    registry: Registry, prompts: LangfusePrompts, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    registry.status = status
    async with asyncio.timeout(10):
        assert await prompts.get(EXTRACTION_PROMPT) == FILE
        await refreshed(prompts)
    assert len(registry.paths) == 1
    assert "was not read (" in caplog.text
    assert "TimeoutError" not in caplog.text, "it waited to ask again"
    assert NOISE not in caplog.text


async def test_a_registry_that_hangs_holds_the_first_window_up_for_seconds_only(
    registry: Registry, prompts: LangfusePrompts, caplog: pytest.LogCaptureFixture
) -> None:
    registry.gate.clear()
    async with asyncio.timeout(30):
        assert await prompts.get(EXTRACTION_PROMPT) == FILE
        assert not prompts._fetches[EXTRACTION_PROMPT].done(), "the window waited for all of it"
        await refreshed(prompts)
    assert "was not read (TimeoutError)" in caplog.text or "was not read (ReadTimeout)" in caplog.text


async def test_a_registry_that_nobody_listens_for_is_no_matter() -> None:
    prompts = LangfusePrompts(LangfuseAccess("pk", "sk", "http://127.0.0.1:1"))
    assert await prompts.get(EXTRACTION_PROMPT) == FILE
    await prompts.close()


@pytest.mark.parametrize(
    "text",
    ["Summarise this.", FILE.text.replace("{{talk}}", "{{chat}}"), FILE.text.replace("{{fence}}", "data")],
)
async def test_a_prompt_that_cannot_be_one_is_passed_over(
    registry: Registry, prompts: LangfusePrompts, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    registry.prompt = text
    assert await prompts.get(EXTRACTION_PROMPT) == FILE
    assert "is passed over" in caplog.text


async def test_a_chat_prompt_is_taken_too(registry: Registry, prompts: LangfusePrompts) -> None:
    system, _, user = FILE.text.partition("=== user ===\n")
    registry.type = "chat"
    registry.prompt = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    found = await prompts.get(EXTRACTION_PROMPT)
    assert found.version == "langfuse:7"
    assert found.text.endswith(f"=== user ===\n{user}")


async def test_the_secret_is_not_shown() -> None:
    assert "hidden" not in repr(LangfuseAccess("pk", "hidden"))
