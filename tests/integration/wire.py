"""A local HTTP server that answers as a vendor's does, or fails as told; and each vendor's wire format."""

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from infra.providers import ProviderAccess
from models.prompt import RenderedPrompt

KEY = "k3y-that-nobody-may-see"
CHAT = "나비 is my cat's name"
ANSWER = '{"summary": "The cat is called 나비"}'
PROMPT = RenderedPrompt(
    name="pipeline/memory-summarize",
    version="v1",
    system="Keep what matters. Answer in JSON.",
    user=f"<talk>{CHAT}</talk>",
    schema={
        "type": "object",
        "properties": {"summary": {"type": "string"}},
        "required": ["summary"],
        "additionalProperties": False,
    },
)
# Far above what a call on this machine takes, and below the patience of a test.
LIMIT = 20.0


@dataclass(frozen=True)
class Reply:
    """What the server sends. `cut_off`: it promises more than it sends, and closes. `hangs`: it never answers.

    `trickles`: a byte now and then, without end.
    """

    status: int = 200
    body: object = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    cut_off: bool = False
    hangs: bool = False
    trickles: bool = False

    def encoded(self) -> bytes:
        return self.body.encode() if isinstance(self.body, str) else json.dumps(self.body).encode()


@dataclass(frozen=True)
class Received:
    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]


class Wire:
    """A server at `url`. `reply` says what it answers; `received` what it was sent."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.reply: Callable[[Received], Reply] = lambda _received: Reply(status=404)
        self._over = asyncio.Event()
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._server = TestServer(application)

    async def __aenter__(self) -> "Wire":
        await self._server.start_server()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        await self._server.close()

    @property
    def url(self) -> str:
        return str(self._server.make_url("")).rstrip("/")

    @property
    def only(self) -> Received:
        """The request, of which there was one."""
        [received] = self.received
        return received

    def replies(self, *replies: Reply) -> None:
        """Answer with these in order, and with the last of them from then on."""
        rest = list(replies)
        self.reply = lambda _received: rest.pop(0) if len(rest) > 1 else rest[0]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        received = Received(request.path_qs, request.headers, await request.json())
        self.received.append(received)
        reply = self.reply(received)
        if reply.hangs:
            await self._over.wait()
        body = reply.encoded()
        headers = {"Content-Type": "application/json", **reply.headers}
        if not (reply.cut_off or reply.trickles):
            return web.Response(status=reply.status, body=body, headers=headers)
        response = web.StreamResponse(status=reply.status, headers=headers)
        response.content_length = len(body) + 100_000
        await response.prepare(request)
        while reply.trickles and not self._over.is_set():
            await response.write(b" ")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), 0.05)
        await response.write(body)
        assert request.transport is not None
        request.transport.close()
        return response


@dataclass(frozen=True)
class Vendor:
    """How one vendor's API speaks: what it answers, and how an access finds it at an address."""

    provider: str
    model: str
    access: Callable[[str, float], ProviderAccess]
    answer: Callable[[str], object]
    error: Callable[[int], object]
    refusal: object
    empty: tuple[object, ...]


def gemini_answer(text: str, **candidate: object) -> dict[str, object]:
    return {
        "candidates": [
            {"content": {"role": "model", "parts": [{"text": text}]}, "finishReason": "STOP", **candidate}
        ],
        "usageMetadata": {"promptTokenCount": 120, "candidatesTokenCount": 30, "thoughtsTokenCount": 12},
        "modelVersion": "gemini-2.5-flash",
    }


def gemini_error(status: int, *details: object) -> dict[str, object]:
    return {
        "error": {"code": status, "message": f"about {CHAT}", "status": "STATUS", "details": list(details)}
    }


def openai_answer(text: str | None, finish: str = "stop", **message: object) -> dict[str, object]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "gpt-5-mini",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text, **message},
                "finish_reason": finish,
            }
        ],
        "usage": {"prompt_tokens": 120, "completion_tokens": 42, "total_tokens": 162},
    }


def openai_error(status: int) -> dict[str, object]:
    return {"error": {"message": f"about {CHAT}", "type": "error", "param": None, "code": None}}


def claude_answer(*content: object, stop: str = "tool_use") -> dict[str, object]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-haiku-4-5",
        "content": list(content),
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 100, "cache_read_input_tokens": 20, "output_tokens": 42},
    }


def claude_tool(answer: str) -> dict[str, object]:
    return {"type": "tool_use", "id": "toolu_1", "name": "answer", "input": json.loads(answer)}


def claude_error(status: int) -> dict[str, object]:
    return {"type": "error", "error": {"type": "error", "message": f"about {CHAT}"}}


GEMINI = Vendor(
    provider="gemini",
    model="gemini-2.5-flash",
    access=lambda url, limit: ProviderAccess(
        gemini_api_key=KEY, gemini_base_url=url, timeout_seconds=limit, max_output_tokens=777
    ),
    answer=gemini_answer,
    error=gemini_error,
    refusal={"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 9}},
    empty=(
        {"candidates": [], "usageMetadata": {}},
        {"candidates": [{"finishReason": "STOP"}]},
        {"candidates": [{"content": {"parts": [{"text": " "}]}, "finishReason": "STOP"}]},
    ),
)
OPENAI = Vendor(
    provider="openai",
    model="gpt-5-mini",
    access=lambda url, limit: ProviderAccess(
        openai_api_key=KEY, openai_base_url=f"{url}/v1", timeout_seconds=limit, max_output_tokens=777
    ),
    answer=openai_answer,
    error=openai_error,
    refusal=openai_answer(None, refusal=f"I will not talk of {CHAT}"),
    empty=({**openai_answer(""), "choices": []}, openai_answer(""), openai_answer(None)),
)
ANTHROPIC = Vendor(
    provider="anthropic",
    model="claude-haiku-4-5",
    access=lambda url, limit: ProviderAccess(
        anthropic_api_key=KEY, anthropic_base_url=url, timeout_seconds=limit, max_output_tokens=777
    ),
    answer=lambda text: claude_answer(claude_tool(text)),
    error=claude_error,
    refusal=claude_answer({"type": "text", "text": CHAT}, stop="refusal"),
    empty=(
        claude_answer(stop="end_turn"),
        claude_answer({"type": "text", "text": " "}, stop="end_turn"),
    ),
)
BEDROCK = Vendor(
    provider="bedrock",
    model="global.anthropic.claude-haiku-4-5-20251001-v1:0",
    access=lambda url, limit: ProviderAccess(
        bedrock_region="eu-central-1", bedrock_base_url=url, timeout_seconds=limit, max_output_tokens=777
    ),
    answer=ANTHROPIC.answer,
    error=lambda status: {"message": f"about {CHAT}"},
    refusal=ANTHROPIC.refusal,
    empty=ANTHROPIC.empty,
)
VENDORS = (GEMINI, OPENAI, ANTHROPIC, BEDROCK)
