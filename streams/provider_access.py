"""The settings that reach providers, as infra/providers takes them."""

from pydantic import SecretStr

from infra.providers.access import ProviderAccess
from streams.settings import Settings


def provider_access(settings: Settings) -> ProviderAccess:
    """Keys, addresses and limits. An empty variable counts as unset: that is how compose files leave one out."""
    return ProviderAccess(
        gemini_api_key=_secret(settings.gemini_api_key),
        gemini_base_url=settings.gemini_base_url or None,
        openai_api_key=_secret(settings.openai_api_key),
        openai_base_url=settings.openai_base_url or None,
        anthropic_api_key=_secret(settings.anthropic_api_key),
        anthropic_base_url=settings.anthropic_base_url or None,
        bedrock_region=settings.bedrock_region or None,
        bedrock_base_url=settings.bedrock_base_url or None,
        timeout_seconds=settings.model_timeout_seconds,
        max_output_tokens=settings.model_max_output_tokens,
    )


def _secret(value: SecretStr | None) -> str | None:
    return value.get_secret_value().strip() or None if value else None
