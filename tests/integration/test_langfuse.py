"""Langfuse as the registry of prompts: its real SDK against a local server that speaks its API."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from agents.extraction import EXTRACTION_PROMPT
from infra.prompts import LangfuseAccess, LangfusePrompts
from infra.prompts.files import file_prompt

FILE = file_prompt(EXTRACTION_PROMPT)


class Registry:
    """A project with one prompt. `status` other than 200 answers with that."""

    def __init__(self) -> None:
        self.prompt: Any = FILE.text + "\nBe brief."
        self.type = "text"
        self.version = 7
        self.status = 200
        self.paths: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._handle)
        self.server = TestServer(application)

    async def _handle(self, request: web.Request) -> web.Response:
        self.paths.append(request.path)
        await self.gate.wait()
        if self.status != 200:
            return web.json_response({"message": "no"}, status=self.status)
        return web.json_response(
            {
                "name": EXTRACTION_PROMPT,
                "version": self.version,
                "type": self.type,
                "prompt": self.prompt,
                "config": {},
                "labels": ["production"],
                "tags": [],
            }
        )


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
    url = str(registry.server.make_url("")).rstrip("/")
    # The SDK keeps one client a public key for the life of the process.
    made = LangfusePrompts(LangfuseAccess(f"pk-{uuid4()}", "sk", url), clock=clock)
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
    assert all("/prompts/" in path for path in registry.paths), "no traces, no scores"
    await prompts.get(EXTRACTION_PROMPT)
    assert len(registry.paths) == 1


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
