"""An embedding model behind an OpenAI-compatible server of our own, which can be away."""

import hashlib

import numpy as np
from aiohttp import web

from tests.acceptance.local_server import LocalServer

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


class EmbeddingServer(LocalServer):
    """`status` other than 200 answers with that. `texts` counts what was embedded."""

    path = "/embeddings"

    def __init__(self) -> None:
        super().__init__()
        self.status = 200
        self.texts = 0

    async def answer(self, request: web.Request) -> web.Response:
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
