"""Langfuse as the registry of prompts, through its SDK; the files stand behind it (R9).

A prompt is asked for in the background: what was seen last answers until then. Only the first time is the answer
waited for, FIRST_SECONDS at most; without one the file answers. Text and chat prompts are taken; a chat prompt's
messages before the last are the instructions. One that cannot be a prompt of ours is logged and passed over.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx

from infra.prompts.files import file_prompt
from models.prompt import BadPrompt, Prompt, check_prompt

log = logging.getLogger(__name__)

REFRESH_SECONDS = 60.0
FIRST_SECONDS = 3.0
# Of a whole fetch: below the refresh, so that a prompt's fetches never overlap and an older answer never wins.
FETCH_SECONDS = 5.0
CLOUD = "https://cloud.langfuse.com"


@dataclass(frozen=True, slots=True)
class LangfuseAccess:
    """Keys and address of a Langfuse project; `label` chooses among the versions of a prompt."""

    public_key: str
    secret_key: str = field(repr=False)
    host: str = CLOUD
    label: str = "production"


class LangfusePrompts:
    """Prompts by name. Never fails for a name that has a file. ModuleNotFoundError: the SDK is not installed."""

    def __init__(
        self,
        access: LangfuseAccess,
        *,
        refresh_seconds: float = REFRESH_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        from langfuse.api import AsyncLangfuseAPI

        # The SDK's API client, not its `Langfuse`: that one can trace, asks in threads that cannot be stopped,
        # waits as long as a Retry-After says, and logs what a failing server sends.
        self._http = httpx.AsyncClient(timeout=FETCH_SECONDS, follow_redirects=True)
        self._client = AsyncLangfuseAPI(
            base_url=access.host,
            username=access.public_key,
            password=access.secret_key,
            x_langfuse_public_key=access.public_key,
            httpx_client=self._http,
        )
        self._label = access.label
        self._refresh_seconds = refresh_seconds
        self._clock = clock
        self._seen: dict[str, Prompt] = {}
        self._asked: dict[str, float] = {}
        self._fetches: dict[str, asyncio.Task[None]] = {}

    async def get(self, name: str) -> Prompt:
        """The prompt as last seen, else the file's. LookupError: neither is there."""
        first = name not in self._asked
        if first or self._clock() - self._asked[name] >= self._refresh_seconds:
            self._asked[name] = self._clock()
            self._fetches[name] = asyncio.create_task(self._fetch(name))
        if first:
            await asyncio.wait([self._fetches[name]], timeout=FIRST_SECONDS)
        return self._seen.get(name) or file_prompt(name)

    async def close(self) -> None:
        """Ask for nothing more."""
        for fetch in self._fetches.values():
            fetch.cancel()
        await asyncio.gather(*self._fetches.values(), return_exceptions=True)
        await self._http.aclose()

    async def _fetch(self, name: str) -> None:
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                found = await self._client.prompts.get(
                    quote(name, safe=""), label=self._label, request_options={"max_retries": 0}
                )
            text = _text(found.prompt)
            check_prompt(text)
        except BadPrompt as bad:
            log.error("Langfuse: prompt %s is passed over: %s", name, bad)
        except Exception as error:  # noqa: BLE001  # whatever a registry does, extraction goes on
            log.warning("Langfuse: prompt %s was not read (%s)", name, type(error).__name__)
        else:
            self._seen[name] = Prompt(name, f"langfuse:{found.version}", text)


def _text(prompt: Any) -> str:
    """A text prompt as it is; of a chat prompt, the last message behind the mark and the others before it."""
    if isinstance(prompt, str):
        return prompt
    parts = [text for message in prompt if isinstance(text := getattr(message, "content", None), str)]
    if len(parts) < 2:
        raise BadPrompt("a chat prompt has a system message and a user message")
    return "\n\n".join(parts[:-1]) + "\n\n=== user ===\n" + parts[-1]
