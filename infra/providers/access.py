"""What it takes to reach the providers: keys, addresses, limits."""

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from models.assignments import is_model_name


class ProviderNotConfigured(Exception):
    """A provider cannot be used as things are set; the message, without secrets, says what to do."""


@dataclass(frozen=True, slots=True)
class ProviderAccess:
    """Keys and base URLs of the providers (None: not set, or the vendor's own), and the limits of one call.

    `timeout_seconds` bounds a call from its start to the last byte of its answer. `max_output_tokens` includes
    what a model thinks before it answers. Bedrock takes its credentials where AWS tools find them.
    """

    gemini_api_key: str | None = field(default=None, repr=False)
    gemini_base_url: str | None = None
    openai_api_key: str | None = field(default=None, repr=False)
    openai_base_url: str | None = None
    anthropic_api_key: str | None = field(default=None, repr=False)
    anthropic_base_url: str | None = None
    bedrock_region: str | None = None
    bedrock_base_url: str | None = None
    timeout_seconds: float = 30.0
    max_output_tokens: int = 8192


def required_key(key: str | None, provider: str, variable: str) -> str:
    """The key. ProviderNotConfigured: there is none."""
    if not key:
        raise ProviderNotConfigured(f"{provider} has no key: set {variable}")
    return key


def checked_url(url: str | None, default: str, variable: str) -> str:
    """The base URL, or the vendor's own: given always, so that no SDK takes one from variables of its own.

    ProviderNotConfigured: it is no http or https address.
    """
    if not url:
        return default
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        usable = False
    if not usable:
        raise ProviderNotConfigured(
            f"{variable} is no address: give it as http://host:port/path or https://…"
        )
    return url


def checked_model(model: str) -> str:
    """The model's name. ProviderNotConfigured: it cannot be one."""
    if not is_model_name(model):
        raise ProviderNotConfigured(
            f"{model[:80]!r} cannot be a model's name: use the one that its provider lists, like gemini-2.5-flash"
        )
    return model
