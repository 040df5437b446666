"""The bearer token: without it nothing but health answers."""

import hmac
from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from streams.web.problems import Problem

OPEN_PATHS = frozenset({"/healthz", "/readyz"})


class TokenSource:
    """The one token: that of the settings, else the file's as it is now, so that it can be replaced."""

    def __init__(self, token: str | None, file: Path) -> None:
        self._token = token
        self._file = file

    def current(self) -> str | None:
        """The token; None: there is none, and nobody gets in."""
        if self._token is not None:
            return self._token or None
        try:
            return self._file.read_text(encoding="utf-8").strip() or None
        except (OSError, UnicodeDecodeError):
            return None

    def accepts(self, authorization: str) -> bool:
        """Whether an Authorization header carries the token; compared in constant time."""
        scheme, _, given = authorization.partition(" ")
        expected = self.current()
        if expected is None or scheme.lower() != "bearer":
            return False
        return hmac.compare_digest(given.strip().encode("utf-8", "replace"), expected.encode())


class RequireToken:
    """Refuses requests without the token, before anything else of them is looked at."""

    def __init__(self, app: ASGIApp, tokens: TokenSource) -> None:
        self._app = app
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            authorization = Headers(scope=scope).get("authorization", "")
            if not self._tokens.accepts(authorization):
                problem = Problem(
                    401,
                    "Send the header 'Authorization: Bearer <token>'. The token is KEEPSAKE_TOKEN, or in the "
                    "file 'token' of the data directory, which `keepsake up` makes.",
                    headers={"WWW-Authenticate": 'Bearer realm="keepsake"'},
                )
                await problem.response()(scope, receive, send)
                return
        await self._app(scope, receive, send)
