"""Where prompts come from: Langfuse if it is configured, the files of the repository otherwise."""

from infra.prompts import FilePrompts, LangfuseAccess, LangfusePrompts
from infra.prompts.langfuse import CLOUD
from infra.providers import ProviderNotConfigured
from streams.settings import Settings


def open_prompts(settings: Settings) -> FilePrompts | LangfusePrompts:
    """The source of prompts. ProviderNotConfigured: half a configuration, or the SDK is not installed."""
    public, secret = settings.langfuse_public_key, settings.langfuse_secret_key
    if not public and not secret:
        return FilePrompts()
    if not public or not secret:
        raise ProviderNotConfigured("Langfuse needs both LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY")
    access = LangfuseAccess(
        public, secret.get_secret_value(), settings.langfuse_host or CLOUD, settings.langfuse_label
    )
    try:
        return LangfusePrompts(access)
    except ModuleNotFoundError as error:
        raise ProviderNotConfigured(
            f"the package {error.name} is not installed: pip install 'keepsake[langfuse]'"
        ) from error
