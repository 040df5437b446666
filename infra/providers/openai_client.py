"""The openai SDK's client as Keepsake uses it, for OpenAI and servers that speak like it.

Beyond the table of failures.py: a 400 with the code content_filter or content_policy_violation is refused.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import openai

from agents.ports import ProviderError
from infra.providers.access import ProviderAccess, checked_url, required_key
from infra.providers.failures import connection_failure, quiet, status_failure

OWN_URL = "https://api.openai.com/v1"
# The SDK wants one; servers without keys do not look at it.
NO_KEY = "none"
_REFUSALS = ("content_filter", "content_policy_violation")
_REFUSING_STATUS = (400, 422)


class OpenAIClient:
    """One client: its own time limit, one request a call. Close it in the event loop that used it."""

    def __init__(self, access: ProviderAccess) -> None:
        self._timeout = access.timeout_seconds
        url = checked_url(access.openai_base_url, OWN_URL, "KEEPSAKE_OPENAI_BASE_URL")
        self.is_own = url.rstrip("/") == OWN_URL
        if self.is_own:
            key = required_key(
                access.openai_api_key,
                "openai",
                "KEEPSAKE_OPENAI_API_KEY (or KEEPSAKE_OPENAI_BASE_URL, for a server without keys)",
            )
        else:
            key = access.openai_api_key or NO_KEY
        self._client = openai.AsyncOpenAI(
            api_key=key, base_url=url, timeout=access.timeout_seconds, max_retries=0
        )
        quiet("openai", "httpx2", "httpcore2")

    @asynccontextmanager
    async def calling(self) -> AsyncIterator[openai.AsyncOpenAI]:
        """The client, for one call within the time limit; its errors come out as ProviderError.

        Inside, they are the SDK's: the caller may know another way to ask.
        """
        try:
            async with asyncio.timeout(self._timeout):
                yield self._client
        except (TimeoutError, openai.APITimeoutError):
            raise ProviderError("timeout") from None
        except openai.APIStatusError as error:
            if error.code in _REFUSALS:
                raise ProviderError("refused") from None
            raise status_failure(error.status_code, error.response.headers) from None
        except openai.APIConnectionError as error:
            raise connection_failure(error) from None
        except (openai.OpenAIError, ValueError, TypeError, AttributeError, KeyError):
            raise ProviderError("broken_answer") from None

    async def close(self) -> None:
        await self._client.close()


def refused_parameter(error: openai.APIStatusError, *names: str) -> bool:
    """Whether a server does not take a parameter of the request: servers name it in many ways, in their message."""
    return error.status_code in _REFUSING_STATUS and any(name in error.response.text for name in names)
