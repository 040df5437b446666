"""Failures of providers as ProviderError: one table for all vendors, and never a word of what was sent.

| what came back | reason |
|---|---|
| 400, 413, 422, other 4xx | bad_request |
| 401, 402 (no credit), 403 | unauthorized |
| 404 | unknown_model |
| 408, or the time limit was reached | timeout |
| 429 | rate_limited |
| 424 (Bedrock: the model failed), 5xx, no connection | unavailable |
| connection closed inside the body, not JSON, not the vendor's format, any other status | broken_answer |

`retry_after` is that of a Retry-After header (seconds or a date), or of the vendor's own notice. The SDKs' errors may
quote chat: they are left behind (`raise … from None`), and their loggers are quiet, for some log requests whole.
"""

import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx2

from agents.ports import ProviderError

MAX_RETRY_AFTER = 86_400.0
# What reading an answer that is not of the vendor's format may raise: the SDKs build it unchecked.
_MISREAD = (AttributeError, IndexError, KeyError, TypeError, ValueError)


def status_failure(status: int, headers: Mapping[str, str]) -> ProviderError:
    """The failure that an HTTP status tells; the headers' names may be in any case."""
    return ProviderError(_reason(status), retry_after(headers))


def _reason(status: int) -> str:
    match status:
        case 401 | 402 | 403:
            return "unauthorized"
        case 404:
            return "unknown_model"
        case 408:
            return "timeout"
        case 424:
            return "unavailable"
        case 429:
            return "rate_limited"
        case _ if 400 <= status < 500:
            return "bad_request"
        case _ if 500 <= status < 600:
            return "unavailable"
    return "broken_answer"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of a Retry-After header, at most a day; None if there is none that can be read."""
    given = {name.lower(): value for name, value in headers.items()}.get("retry-after", "").strip()
    if not given:
        return None
    seconds = to_seconds(given)
    if seconds is not None:
        return seconds
    try:
        when = parsedate_to_datetime(given)
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return min(max(0.0, (when - datetime.now(UTC)).total_seconds()), MAX_RETRY_AFTER)


def to_seconds(text: str) -> float | None:
    """A number of seconds as a pause, at most a day; None if it is no number."""
    try:
        seconds = float(text)
    except ValueError:
        return None
    return min(max(0.0, seconds), MAX_RETRY_AFTER) if math.isfinite(seconds) else None


def connection_failure(error: Exception) -> ProviderError:
    """The failure behind a connection error of an SDK built on httpx2: its cause tells a cut-off body."""
    cause = error.__cause__
    if isinstance(cause, httpx2.TimeoutException):
        return ProviderError("timeout")
    if isinstance(cause, httpx2.DecodingError) or (
        # httpx2 has one class for a body that ends early and for a server that never answered.
        isinstance(cause, httpx2.RemoteProtocolError) and "message body" in str(cause)
    ):
        return ProviderError("broken_answer")
    return ProviderError("unavailable")


@contextmanager
def reading() -> Iterator[None]:
    """Where an answer is taken apart: what is not of the vendor's format is broken_answer."""
    try:
        yield
    except _MISREAD:
        raise ProviderError("broken_answer") from None


def sendable(text: str) -> str:
    """The text as every server takes it: no lone surrogates, which have no UTF-8, and no NUL."""
    return text.replace("\x00", " ").encode("utf-8", "replace").decode()


def quiet(*loggers: str) -> None:
    """Keep an SDK's loggers to warnings: below, some of them write whole requests, keys and chat included."""
    for name in loggers:
        logging.getLogger(name).setLevel(logging.WARNING)
