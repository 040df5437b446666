"""What requests go through before their routes: bounded bodies, and ids in paths."""

import asyncio
from typing import Annotated
from urllib.parse import unquote

from fastapi import Depends, Path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from models.ids import id_problem
from streams.web.problems import Problem

MAX_BODY_BYTES = 8 << 20
BODY_SECONDS = 30.0


class LimitBody:
    """Reads a body before its route runs, and refuses one that is too large or too slow."""

    def __init__(self, app: ASGIApp, limit: int = MAX_BODY_BYTES, seconds: float = BODY_SECONDS) -> None:
        self._app = app
        self._limit = limit
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self._seconds):
                first = await self._read(receive)
        except TimeoutError:
            await Problem(408, f"The body did not come within {self._seconds:g} s.").response()(
                scope, receive, send
            )
            return
        if first is None:
            await Problem(413, f"The body has more than {self._limit} bytes.").response()(
                scope, receive, send
            )
            return
        messages = iter((first,))

        async def replay() -> Message:
            message = next(messages, None)
            return await receive() if message is None else message

        await self._app(scope, replay, send)

    async def _read(self, receive: Receive) -> Message | None:
        """The whole body as one message, or the disconnect; None: it is too large."""
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return message
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._limit:
                return None
            if not message.get("more_body", False):
                return {"type": "http.request", "body": b"".join(parts), "more_body": False}


class EncodedPaths:
    """Routes by the path as it was sent, so that an id may hold an encoded slash."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope.get("raw_path")
        if scope["type"] == "http" and raw is not None:
            scope = {**scope, "path": raw.partition(b"?")[0].decode("latin-1")}
        await self._app(scope, receive, send)


def _decoded(name: str, value: str) -> str:
    try:
        # Servers give bytes beyond ASCII, which ought to have been encoded, as Latin-1.
        decoded = unquote(value.encode("latin-1"), errors="strict")
    except UnicodeError:
        raise Problem(422, f"The {name} in the path must be UTF-8, URL-encoded.") from None
    problem = id_problem(decoded)
    if problem:
        raise Problem(422, f"The {name} in the path {problem}.")
    return decoded


def _user(user: Annotated[str, Path(description="user id, URL-encoded")]) -> str:
    return _decoded("user id", user)


def _character(character: Annotated[str, Path(description="character id, URL-encoded")]) -> str:
    return _decoded("character id", character)


UserId = Annotated[str, Depends(_user)]
CharacterId = Annotated[str, Depends(_character)]
