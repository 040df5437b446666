"""Errors as `application/problem+json` (RFC 9457); never with a word of what was sent."""

import logging
import traceback
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from models.context import ContextRequest
from models.recall import Filters

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
MAX_ERRORS = 20


class Problem(Exception):
    """An answer other than the one asked for. `more` are further members of the problem object."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})
        self.more = more

    def response(self) -> Response:
        body = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            **self.more,
        }
        return Response(orjson.dumps(body), self.status, self.headers, MEDIA_TYPE)


def field_errors(errors: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Pydantic's errors as places and sentences, without the input that they carry.

    Its sentences speak of the schema only; a place may hold a name of the sender's (a field that is not
    allowed), which is left out.
    """
    return [
        {"field": _place(error["loc"]), "problem": str(error["msg"]).removeprefix("Value error, ")}
        for error in errors
    ][:MAX_ERRORS]


def _place(location: Iterable[str | int]) -> str:
    origin, *parts = location
    return ".".join(str(p) if isinstance(p, int) or p in _FIELDS else "?" for p in parts) or str(origin)


_FIELDS = {
    *ContextRequest.model_fields,
    *Filters.model_fields,
    *("kind", "category"),
    *("task", "model", "fallback"),
}


async def on_problem(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return error.response()


async def on_validation_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    errors = error.errors()
    if any(item["type"] == "json_invalid" for item in errors):
        return Problem(400, "The body is not JSON in UTF-8.").response()
    return Problem(422, "Some fields are not as they must be.", errors=field_errors(errors)).response()


async def on_http_error(_request: Request, error: Exception) -> Response:
    """Starlette's own errors: no such path, method not allowed, a body that is not UTF-8."""
    assert isinstance(error, HTTPException)
    details = {
        400: "The body is not JSON in UTF-8.",
        404: "There is nothing at this path: see /openapi.json.",
        405: "This path does not take this method: see /openapi.json.",
    }
    detail = details.get(error.status_code, HTTPStatus(error.status_code).phrase)
    return Problem(error.status_code, detail, headers=error.headers).response()


class ContainFailures:
    """Answers 500 for what nobody expected, and logs where it was, not what it says: that may hold text."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def noting(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except Exception as error:  # noqa: BLE001  # the last place where it can be caught
            frame = traceback.extract_tb(error.__traceback__)[-1]
            log.error("Failed: %s in %s, line %s", type(error).__name__, frame.name, frame.lineno)
            if not started:
                problem = Problem(500, "The service failed; its log says where.")
                await problem.response()(scope, receive, send)
