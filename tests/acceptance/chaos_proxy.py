"""A TCP proxy before a dependency, which can be told to be slow, to hang, to break off, or to be gone."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

Mode = Literal["pass", "slow", "hang", "half", "gone"]

CHUNK = 65_536
# Of an answer that breaks off this much comes.
HALF = 40


class ChaosProxy:
    """Forwards to the server of a URL; `url` is the same URL with the proxy's address.

    slow: each chunk waits `delay` seconds; hang: nothing is forwarded any more, in open connections neither; half: a
    few bytes of each answer, then nothing; gone: connections are reset and no new ones are taken.
    """

    def __init__(self, url: str, delay: float) -> None:
        self._parts = urlsplit(url)
        self._delay = delay
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._changed = asyncio.Event()
        self._mode: Mode = "pass"
        self._port = 0
        self.connections = 0

    def __enter__(self) -> "ChaosProxy":
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._be("gone"))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    @property
    def url(self) -> str:
        user, at, _ = self._parts.netloc.rpartition("@")
        return urlunsplit(self._parts._replace(netloc=f"{user}{at}127.0.0.1:{self._port}"))

    def be(self, mode: Mode) -> None:
        """Behave so from now on."""
        self._run(self._be(mode))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _be(self, mode: Mode) -> None:
        self._mode = mode
        self._changed.set()
        self._changed = asyncio.Event()
        if mode == "gone" and self._server is not None:
            self._server.close()
            self._server = None
            for writer in list(self._writers):
                writer.transport.abort()
        if mode != "gone" and self._server is None:
            await self._listen()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            there, back = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        except OSError:
            writer.transport.abort()
            self._writers.discard(writer)
            return
        self._writers.add(back)
        try:
            await asyncio.gather(
                self._forward(reader, back, is_answer=False), self._forward(there, writer, is_answer=True)
            )
        finally:
            for one in (writer, back):
                self._writers.discard(one)
                one.transport.abort()

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                if self._mode == "slow":
                    await asyncio.sleep(self._delay)
                if self._mode == "half" and is_answer:
                    writer.write(data[:HALF])
                while self._mode in ("hang", "half"):
                    # What is held back is lost: a connection that hung is of no more use.
                    await self._changed.wait()
                    data = b""
                writer.write(data)
                await writer.drain()
        with contextlib.suppress(OSError):
            writer.write_eof()
