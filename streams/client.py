"""A client for chat services: publish, recall, compose a context; `AsyncKeepsake`, and `Keepsake` without asyncio.

    async with AsyncKeepsake("http://127.0.0.1:8377", token) as keepsake:
        await keepsake.publish(message)
        context = await keepsake.context(user_id="ann", character_ids=["coach"], query="Hi!", persona="…")

A turn never ends for want of memory: when the service cannot be reached in time, `recall` gives no memories and
`context` one without any (R34), both with `degraded="unreachable"`. `publish` raises Unreachable instead: what it was
given may not be in the log. A request that is wrong raises Refused, whatever the method.
"""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import uuid4

import httpx
from pydantic import ValidationError

from models.context import ContextMessage, ContextRequest, ContextResponse
from models.history import HistoryMessage, repaired
from models.language import language_of
from models.prompt_block import without_memories
from models.recall import RecallRequest, RecallResponse
from models.tools import Instruction, shorter_page, tool_answer, tool_request
from streams.exchange import Refused, Unreachable, Wait, exchange

PUBLISH_SECONDS = 5.0
RECALL_SECONDS = 1.0

Message = Mapping[str, Any]
Asked = TypeVar("Asked", bound=RecallRequest)
Answer = TypeVar("Answer", RecallResponse, ContextResponse)


class _Client:
    """What both clients share: requests, and what stands in for an answer."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        publish_seconds: float = PUBLISH_SECONDS,
        recall_seconds: float = RECALL_SECONDS,
    ) -> None:
        """`url` is the service's, `token` its bearer token; the seconds bound a call with all its attempts."""
        self._http: dict[str, Any] = {
            "base_url": url,
            "headers": {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
            "trust_env": False,
        }
        self._url = url
        self._publish_seconds = publish_seconds
        self._recall_seconds = recall_seconds

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._url!r})"

    def _messages(self, messages: Message | Sequence[Message]) -> list[dict[str, Any]]:
        given = [messages] if isinstance(messages, Mapping) else messages
        # Named before the first attempt, so that a message that comes twice counts once.
        return [{"message_id": str(uuid4()), **message} for message in given]


class AsyncKeepsake(_Client):
    """The client with asyncio. One for all turns: it keeps its connections."""

    def __init__(self, url: str, token: str, **options: float) -> None:
        super().__init__(url, token, **options)
        self._client = httpx.AsyncClient(**self._http)

    async def publish(self, messages: Message | Sequence[Message]) -> list[dict[str, Any]]:
        """Publish a `chat.message`, or several; the places in the log, once it has them. A message without
        `message_id` is given one. Unreachable, Refused."""
        body = self._messages(messages)
        answer = await self._call("/v1/messages", body, self._publish_seconds)
        positions: list[dict[str, Any]] = answer["positions"]
        return positions

    async def recall(self, **request: Any) -> RecallResponse:
        """The memories for the fields of `RecallRequest`."""
        asked = _checked(RecallRequest, request)
        try:
            answer = await self._call("/v1/recall", _wire(asked), self._recall_seconds)
            return _answered(RecallResponse, answer)
        except Unreachable:
            return _no_memories(asked)

    async def context(self, history: Sequence[Mapping[str, str]] = (), **request: Any) -> ContextResponse:
        """The prompt for the fields of `ContextRequest`. `history` is what you know of the talk before the query,
        as `{"role", "content"}`: it is used only where the service cannot be reached."""
        asked, known = _checked(ContextRequest, request), _known(history)
        try:
            answer = await self._call("/v1/context", _wire(asked), self._recall_seconds)
            return _answered(ContextResponse, answer)
        except Unreachable:
            return _no_context(asked, known)

    async def run_tool(
        self, name: str, arguments: object, *, user_id: str, character_ids: Sequence[str]
    ) -> dict[str, Any]:
        """What a model is told of its call of a tool (`GET /v1/tools/{vendor}`). `arguments` are as the model wrote
        them; user and characters are yours to give. A call that cannot be answered is told why, and what to ask."""
        whom = {"user_id": user_id, "character_ids": character_ids}
        try:
            request = tool_request(name, arguments)
            found = await self.recall(**whom, **request)
            if (fewer := shorter_page(request, found)) is not None:
                found = await self.recall(**whom, **fewer)
        except Instruction as instruction:
            return {"error": str(instruction)}
        except Refused as refused:
            return _refused_tool(refused)
        return tool_answer(found)

    async def _call(self, path: str, body: object, seconds: float) -> dict[str, Any]:
        content, steps = _json(body), exchange(seconds, time.monotonic)
        step = next(steps)
        while True:
            outcome: httpx.Response | Exception | None = None
            if isinstance(step, Wait):
                await asyncio.sleep(step)
            else:
                try:
                    async with asyncio.timeout(step):
                        outcome = await self._client.post(path, content=content, timeout=None)
                except (httpx.HTTPError, TimeoutError) as error:
                    outcome = error
            try:
                step = steps.send(outcome)
            except StopIteration as stop:
                answer: dict[str, Any] = stop.value
                return answer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._client.aclose()


class Keepsake(_Client):
    """The client without asyncio; it may be used by several threads."""

    def __init__(self, url: str, token: str, **options: float) -> None:
        super().__init__(url, token, **options)
        self._client = httpx.Client(**self._http)

    def publish(self, messages: Message | Sequence[Message]) -> list[dict[str, Any]]:
        """As `AsyncKeepsake.publish`."""
        answer = self._call("/v1/messages", self._messages(messages), self._publish_seconds)
        positions: list[dict[str, Any]] = answer["positions"]
        return positions

    def recall(self, **request: Any) -> RecallResponse:
        """As `AsyncKeepsake.recall`."""
        asked = _checked(RecallRequest, request)
        try:
            answer = self._call("/v1/recall", _wire(asked), self._recall_seconds)
            return _answered(RecallResponse, answer)
        except Unreachable:
            return _no_memories(asked)

    def context(self, history: Sequence[Mapping[str, str]] = (), **request: Any) -> ContextResponse:
        """As `AsyncKeepsake.context`."""
        asked, known = _checked(ContextRequest, request), _known(history)
        try:
            answer = self._call("/v1/context", _wire(asked), self._recall_seconds)
            return _answered(ContextResponse, answer)
        except Unreachable:
            return _no_context(asked, known)

    def run_tool(
        self, name: str, arguments: object, *, user_id: str, character_ids: Sequence[str]
    ) -> dict[str, Any]:
        """As `AsyncKeepsake.run_tool`."""
        whom = {"user_id": user_id, "character_ids": character_ids}
        try:
            request = tool_request(name, arguments)
            found = self.recall(**whom, **request)
            if (fewer := shorter_page(request, found)) is not None:
                found = self.recall(**whom, **fewer)
        except Instruction as instruction:
            return {"error": str(instruction)}
        except Refused as refused:
            return _refused_tool(refused)
        return tool_answer(found)

    def _call(self, path: str, body: object, seconds: float) -> dict[str, Any]:
        content, steps = _json(body), exchange(seconds, time.monotonic)
        step = next(steps)
        while True:
            outcome: httpx.Response | Exception | None = None
            if isinstance(step, Wait):
                time.sleep(step)
            else:
                try:
                    outcome = self._post(path, content, step)
                except httpx.HTTPError as error:
                    outcome = error
            try:
                step = steps.send(outcome)
            except StopIteration as stop:
                answer: dict[str, Any] = stop.value
                return answer

    def _post(self, path: str, content: bytes, seconds: float) -> httpx.Response:
        """The whole answer within the time: httpx bounds each read, and an answer may come byte by byte."""
        end = time.monotonic() + seconds
        with self._client.stream("POST", path, content=content, timeout=seconds) as answer:
            parts = []
            for part in answer.iter_bytes():
                parts.append(part)
                if time.monotonic() > end:
                    raise httpx.ReadTimeout("the answer did not come in time")
            return httpx.Response(answer.status_code, headers=_plain(answer.headers), content=b"".join(parts))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()


def _plain(headers: httpx.Headers) -> dict[str, str]:
    """Without what described the bytes on the wire, which are decoded by now."""
    wire = ("content-encoding", "content-length", "transfer-encoding")
    return {name: value for name, value in headers.items() if name not in wire}


def _checked(kind: type[Asked], request: Mapping[str, Any]) -> Asked:
    """The request, checked as the service would: what stands in for an answer is never that of a bad one."""
    try:
        return kind.model_validate(request)
    except ValidationError as error:
        told = [
            f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors(include_input=False)
        ]
        raise Refused(422, "; ".join(told)) from None


def _wire(asked: RecallRequest) -> dict[str, Any]:
    return asked.model_dump(mode="json", exclude_unset=True)


def _json(body: object) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError):
        # The error itself holds what was to be encoded.
        told = (
            "it cannot be written as JSON: it holds half a character (a lone surrogate), NaN, or no JSON type"
        )
        raise Refused(422, told) from None


def _known(history: Sequence[Mapping[str, str]]) -> list[HistoryMessage]:
    """What the caller knows of the talk; checked at every call, not only in the hour of need."""
    known = []
    for at, one in enumerate(history):
        role, content = one.get("role"), one.get("content")
        if role in ("user", "assistant"):
            if not isinstance(content, str):
                raise Refused(422, f"history.{at}.content: Input should be a valid string")
            known.append(HistoryMessage("assistant" if role == "assistant" else "user", content))
    return known


def _answered(kind: type[Answer], answer: Mapping[str, Any]) -> Answer:
    try:
        return kind.model_validate(answer)
    except ValidationError:
        raise Unreachable("what answers is not a Keepsake of this version") from None


def _refused_tool(refused: Refused) -> dict[str, Any]:
    """A refusal that lies in what the model wrote (a cursor of another request) is told to it; any other is ours."""
    if refused.status != 422:
        raise refused
    return {"error": f"The call cannot be answered: {refused}"}


def _no_memories(asked: RecallRequest) -> RecallResponse:
    return RecallResponse(memories=(), query=asked.query, degraded="unreachable")


def _no_context(asked: ContextRequest, known: list[HistoryMessage]) -> ContextResponse:
    """The persona, the rules (R34, R35), and what is known of the talk."""
    known = known or [HistoryMessage("user", text) for text in asked.recent_user_messages]
    # The query may be the last of what the caller keeps.
    if asked.query and not (known and known[-1].role == "user" and known[-1].content == asked.query):
        known.append(HistoryMessage("user", asked.query))
    locale = asked.locale or language_of(asked.query) or language_of(asked.persona) or "en"
    return ContextResponse(
        system=without_memories(asked.persona, len(set(asked.character_ids)), locale),
        messages=tuple(
            ContextMessage.model_validate({"role": one.role, "content": one.content})
            for one in repaired(known).messages
        ),
        memories=(),
        degraded="unreachable",
    )
