"""A local server that speaks the prompts API of Langfuse."""

import asyncio
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from agents.extraction import EXTRACTION_PROMPT
from infra.prompts.files import file_prompt

FILE = file_prompt(EXTRACTION_PROMPT)
NOISE = "a page of some proxy"


class Registry:
    """A project with one prompt. `status` other than 200 answers with that, and asks to wait a minute.

    Answers wait while `gate` is closed.
    """

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

    @property
    def url(self) -> str:
        return str(self.server.make_url("")).rstrip("/")

    async def _handle(self, request: web.Request) -> web.Response:
        self.paths.append(request.raw_path)
        await self.gate.wait()
        if self.status != 200:
            return web.json_response({"message": NOISE}, status=self.status, headers={"Retry-After": "60"})
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
