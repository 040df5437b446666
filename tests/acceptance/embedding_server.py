"""An embedding model behind an OpenAI-compatible server of our own, which can be away."""

import asyncio
import hashlib
import threading
from types import TracebackType

import numpy as np
from aiohttp import web

DIMENSIONS = 768


def vector_of(text: str) -> list[float]:
    """A unit vector that is a function of the words: texts that share words are near each other."""
    total = np.zeros(DIMENSIONS)
    for word in text.lower().replace(".", " ").split():
        seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big")
        total += np.random.default_rng(seed).standard_normal(DIMENSIONS)
    length = float(np.linalg.norm(total)) or 1.0
    vector: list[float] = (total / length).tolist()
    return vector


class EmbeddingServer:
    """A server in a thread; `status` other than 200 answers with that. `texts` counts what was embedded."""

    def __init__(self) -> None:
        self.status = 200
        self.texts = 0
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(
            target=lambda: self._loop.run_until_complete(self._serve()), daemon=True
        )

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> "EmbeddingServer":
        self._thread.start()
        assert self._ready.wait(20), "the server did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(20)

    async def _serve(self) -> None:
        application = web.Application(client_max_size=8 << 20)
        application.router.add_post("/v1/embeddings", self._answer)
        runner = web.AppRunner(application, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        assert site._server is not None
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]  # asyncio's server
        self._ready.set()
        await self._over.wait()
        await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        if self.status != 200:
            return web.json_response({"error": {"message": "no"}}, status=self.status)
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        self.texts += len(texts)
        return web.json_response(
            {
                "object": "list",
                "model": body["model"],
                "data": [
                    {"object": "embedding", "index": number, "embedding": vector_of(text)}
                    for number, text in enumerate(texts)
                ],
                "usage": {"prompt_tokens": 1, "total_tokens": 1},
            }
        )
