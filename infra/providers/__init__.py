"""Language models and embedders of the providers, each through its vendor's own SDK, which is imported when needed."""

from collections.abc import Iterator
from contextlib import contextmanager

from agents.ports import Embedder, LanguageModel
from infra.providers.access import ProviderAccess, ProviderNotConfigured

MODEL_PROVIDERS = ("gemini", "openai", "anthropic", "bedrock")
EMBEDDER_PROVIDERS = ("gemini", "openai", "offline")

__all__ = [
    "EMBEDDER_PROVIDERS",
    "MODEL_PROVIDERS",
    "ProviderAccess",
    "ProviderNotConfigured",
    "open_embedder",
    "open_model",
]


def open_model(provider: str, model: str, access: ProviderAccess) -> LanguageModel:
    """The model of one of MODEL_PROVIDERS. ProviderNotConfigured: what is missing, and what to do."""
    match provider:
        case "gemini":
            from infra.providers.gemini import GeminiModel

            return GeminiModel(model, access)
        case "openai":
            with _extra("openai"):
                from infra.providers.openai_compatible import OpenAICompatibleModel

            return OpenAICompatibleModel(model, access)
        case "anthropic":
            with _extra("anthropic"):
                from infra.providers.anthropic import open_anthropic

            return open_anthropic(model, access)
        case "bedrock":
            with _extra("bedrock"):
                from infra.providers.bedrock import open_bedrock

            return open_bedrock(model, access)
    raise ProviderNotConfigured(f"no provider {provider!r}: use one of {', '.join(MODEL_PROVIDERS)}")


def open_embedder(provider: str, model: str, access: ProviderAccess) -> Embedder:
    """The embedder of one of EMBEDDER_PROVIDERS; offline has one model. ProviderNotConfigured as above."""
    match provider:
        case "gemini":
            from infra.providers.gemini_embedder import GeminiEmbedder

            return GeminiEmbedder(model, access)
        case "openai":
            with _extra("openai"):
                from infra.providers.openai_embedder import OpenAIEmbedder

            return OpenAIEmbedder(model, access)
        case "offline":
            from infra.offline_embedder import OFFLINE_MODEL, OfflineEmbedder

            if model and model != OFFLINE_MODEL:
                raise ProviderNotConfigured(f"no offline embedding model {model!r}: it is {OFFLINE_MODEL}")
            return OfflineEmbedder()
    raise ProviderNotConfigured(f"no embedder {provider!r}: use one of {', '.join(EMBEDDER_PROVIDERS)}")


@contextmanager
def _extra(name: str) -> Iterator[None]:
    """Where the packages of an extra are imported."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ProviderNotConfigured(
            f"the package {error.name} is not installed: pip install 'keepsake[{name}]'"
        ) from error
