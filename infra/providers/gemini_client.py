"""The google-genai client as Keepsake uses it, and its errors as ProviderError; for text and embeddings alike.

Beyond the table of failures.py: a 400 whose details have the reason API_KEY_INVALID is unauthorized, and the pause of
a 429 is that of its RetryInfo detail, else of its Retry-After header.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager

import aiohttp
import httpx2
from google import genai
from google.genai import errors, types

from agents.ports import ProviderError
from infra.providers.access import ProviderAccess, checked_url, required_key
from infra.providers.failures import quiet, status_failure, to_seconds

OWN_URL = "https://generativelanguage.googleapis.com/"


class GeminiClient:
    """One client: its own time limit, one request a call. Close it in the event loop that used it."""

    def __init__(self, access: ProviderAccess) -> None:
        self._timeout = access.timeout_seconds
        self._client = genai.Client(
            # Said outright: variables of other tools must not turn it to another service.
            vertexai=False,
            api_key=required_key(access.gemini_api_key, "gemini", "GEMINI_API_KEY"),
            http_options=types.HttpOptions(
                base_url=checked_url(access.gemini_base_url, OWN_URL, "KEEPSAKE_GEMINI_BASE_URL"),
                # The SDK's own choice, v1, knows no preview models, nor aliases like gemini-flash-latest.
                api_version="v1beta",
                timeout=max(1, round(access.timeout_seconds * 1000)),
                # Without it the SDK sleeps and tries again by itself.
                retry_options=types.HttpRetryOptions(attempts=1),
            ),
        )
        quiet("google_genai", "google.genai", "google.auth", "httpx2", "httpcore2")

    @asynccontextmanager
    async def calling(self) -> AsyncIterator[genai.client.AsyncClient]:
        """The client, for one call within the time limit; its errors come out as ProviderError."""
        try:
            async with asyncio.timeout(self._timeout):
                yield self._client.aio
        except (TimeoutError, httpx2.TimeoutException):
            raise ProviderError("timeout") from None
        except errors.APIError as error:
            raise _api_failure(error) from None
        except aiohttp.ClientPayloadError:
            # The connection was closed inside the body.
            raise ProviderError("broken_answer") from None
        except (aiohttp.ClientError, httpx2.TransportError):
            raise ProviderError("unavailable") from None
        except (ValueError, TypeError, AttributeError, KeyError):
            # No JSON, or not Gemini's: the SDK's message quotes it.
            raise ProviderError("broken_answer") from None

    async def close(self) -> None:
        await self._client.aio.aclose()
        self._client.close()


def _api_failure(error: errors.APIError) -> ProviderError:
    headers: Mapping[str, str] = getattr(error.response, "headers", None) or {}
    failure = status_failure(error.code, headers)
    details = list(_details(error.details))
    if any(detail.get("reason") == "API_KEY_INVALID" for detail in details):
        return ProviderError("unauthorized")
    if failure.reason in ("rate_limited", "unavailable"):
        for detail in details:
            pause = detail.get("retryDelay")
            if str(detail.get("@type")).endswith("google.rpc.RetryInfo") and isinstance(pause, str):
                return ProviderError(
                    failure.reason, to_seconds(pause.removesuffix("s")) or failure.retry_after
                )
    return failure


def _details(body: object) -> Iterator[dict[str, object]]:
    """The details of an error's body, as far as they are what they should be."""
    error = body.get("error", body) if isinstance(body, dict) else None
    details = error.get("details") if isinstance(error, dict) else None
    if isinstance(details, list):
        yield from (detail for detail in details if isinstance(detail, dict))
