"""Embeddings of OpenAI, and of servers that speak like it, 768 dimensions, at length 1.

A server that does not take `dimensions` is not asked for them again; a model of another dimension is wrong_dimension
then. Errors: see openai_client.py and failures.py.
"""

from collections.abc import Sequence
from typing import Any

import openai

from infra.providers.access import ProviderAccess, checked_model
from infra.providers.failures import reading, sendable
from infra.providers.openai_client import OpenAIClient, refused_parameter
from infra.providers.vectors import DIMENSIONS, Vector, embed_all, embed_one


class OpenAIEmbedder:
    """An Embedder."""

    provider = "openai"
    dimensions = DIMENSIONS
    offline = False

    def __init__(self, model: str, access: ProviderAccess) -> None:
        self.model = checked_model(model)
        self._client = OpenAIClient(access)
        self._takes_dimensions = True

    async def embed_documents(self, texts: Sequence[str]) -> list[list[float] | None]:
        """One vector a text, in order; None for a text that failed by itself."""
        return await embed_all(texts, self._request)

    async def embed_query(self, text: str) -> list[float]:
        """The vector of a query."""
        return await embed_one(text, self._request)

    async def close(self) -> None:
        await self._client.close()

    async def _request(self, texts: Sequence[str]) -> list[Vector]:
        # Floats said outright: by itself the SDK asks for base64, which not every server knows.
        request: dict[str, Any] = {
            "model": self.model,
            "input": [sendable(text) for text in texts],
            "encoding_format": "float",
        }
        async with self._client.calling() as client:
            if self._takes_dimensions:
                try:
                    response = await client.embeddings.create(**request, dimensions=DIMENSIONS)
                except openai.APIStatusError as error:
                    if not refused_parameter(error, "dimension", "matryoshka"):
                        raise
                    self._takes_dimensions = False
                    response = await client.embeddings.create(**request)
            else:
                response = await client.embeddings.create(**request)
        with reading():
            found = sorted(response.data, key=lambda item: item.index)
            return [[float(value) for value in item.embedding] for item in found]
