"""The embedder of the settings: one for the indexer and for recall, or their vectors would not meet (R14)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agents.ports import Embedder
from infra.offline_embedder import OFFLINE_MODEL, OfflineEmbedder
from infra.providers import open_embedder
from streams.provider_access import provider_access
from streams.settings import Settings

DEFAULT_GEMINI = "gemini-embedding-2-preview"


def embedding_model(settings: Settings) -> tuple[str, str]:
    """Provider and model: the setting's, else Gemini where it has a key, else the offline one."""
    if settings.embedding_model:
        provider, _, model = settings.embedding_model.partition(":")
        return provider, model
    if provider_access(settings).gemini_api_key:
        return "gemini", DEFAULT_GEMINI
    return "offline", OFFLINE_MODEL


def make_embedder(settings: Settings) -> Embedder:
    """The embedder, not loaded yet. ProviderNotConfigured: what is missing, and what to do."""
    return open_embedder(*embedding_model(settings), provider_access(settings))


@asynccontextmanager
async def running(embedder: Embedder) -> AsyncIterator[Embedder]:
    """The embedder, ready: the first text would wait for an offline model to load. Closed at the end."""
    try:
        if isinstance(embedder, OfflineEmbedder):
            await embedder.warm_up()
        yield embedder
    finally:
        await embedder.close()
