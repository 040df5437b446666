"""A server of our own in a thread of its own, which an OpenAI-compatible client finds at `base_url`."""

import asyncio
import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from aiohttp import web
from aiohttp.test_utils import TestServer

START_SECONDS = 20.0


class LocalServer(ABC):
    """Answers POSTs to `path` from `with` to its end; `over` is set at the end, for handlers that wait."""

    path: str

    def __init__(self) -> None:
        self.base_url = ""
        self.over = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(START_SECONDS), "the server did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self.over.set)
        self._thread.join(START_SECONDS)

    @abstractmethod
    async def answer(self, request: web.Request) -> web.StreamResponse:
        """The response to a request; runs in the server's thread."""

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        application = web.Application(client_max_size=8 << 20)
        application.router.add_post(f"/v1{self.path}", self.answer)
        async with TestServer(application) as server:
            self.base_url = str(server.make_url("/v1"))
            self._ready.set()
            await self.over.wait()
