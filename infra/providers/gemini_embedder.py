"""Gemini's embeddings of both generations (design 7), 768 dimensions, at length 1.

gemini-embedding-001 takes a task type; those after it ignore that, and take a prefix in the text. Each text is a
Content of its own: of a list of strings the newer ones make a single vector. Errors: see gemini_client.py and
failures.py; a count or dimension that is not asked for is wrong_count, wrong_dimension.
"""

from collections.abc import Sequence
from functools import partial
from typing import Literal

from google.genai import types

from infra.providers.access import ProviderAccess, checked_model
from infra.providers.failures import reading, sendable
from infra.providers.gemini_client import GeminiClient
from infra.providers.vectors import DIMENSIONS, Vector, embed_all, embed_one

Task = Literal["RETRIEVAL_DOCUMENT", "RETRIEVAL_QUERY"]
_PREFIXES: dict[Task, str] = {
    "RETRIEVAL_DOCUMENT": "title: none | text: ",
    "RETRIEVAL_QUERY": "task: search result | query: ",
}


class GeminiEmbedder:
    """An Embedder."""

    provider = "gemini"
    dimensions = DIMENSIONS
    offline = False

    def __init__(self, model: str, access: ProviderAccess) -> None:
        self.model = checked_model(model)
        self._takes_task_type = "embedding-001" in model
        self._client = GeminiClient(access)

    async def embed_documents(self, texts: Sequence[str]) -> list[list[float] | None]:
        """One vector a text, in order; None for a text that failed by itself."""
        return await embed_all(texts, partial(self._request, "RETRIEVAL_DOCUMENT"))

    async def embed_query(self, text: str) -> list[float]:
        """The vector of a query."""
        return await embed_one(text, partial(self._request, "RETRIEVAL_QUERY"))

    async def close(self) -> None:
        await self._client.close()

    async def _request(self, task: Task, texts: Sequence[str]) -> list[Vector]:
        prefix = "" if self._takes_task_type else _PREFIXES[task]
        contents = [types.Content(parts=[types.Part(text=prefix + sendable(text))]) for text in texts]
        config = types.EmbedContentConfig(
            output_dimensionality=DIMENSIONS, task_type=task if self._takes_task_type else None
        )
        async with self._client.calling() as client:
            # The SDK's parameter is a list of a union: invariant, so that a list of one of its kinds is none.
            response = await client.models.embed_content(
                model=self.model, contents=[*contents], config=config
            )
        with reading():
            return [[float(value) for value in found.values or ()] for found in response.embeddings or ()]
