"""Calls the recall service on behalf of the command line."""

from typing import Any, cast

import httpx

from streams.errors import Explained
from streams.local_setup import token_path
from streams.places import recall_url
from streams.settings import Settings

TIMEOUT_SECONDS = 30.0


class ClientError(Explained):
    """The service cannot be asked, or has refused; the message says what to do."""


def bearer_token(settings: Settings) -> str:
    """The token of the settings, or of the data directory."""
    if settings.token is not None:
        return settings.token.get_secret_value()
    path = token_path(settings)
    try:
        return path.read_text().strip()
    except OSError as error:
        raise ClientError(
            f"no token at {path} ({error.strerror}): `keepsake up` makes one, or set KEEPSAKE_TOKEN"
        ) from error


def request(settings: Settings, method: str, path: str, body: object = None) -> dict[str, Any]:
    """The JSON object that the service answers. ClientError: it is away, or answers with a problem."""
    url = recall_url(settings)
    if url is None:
        raise ClientError("the recall service is not running: start it with `keepsake up`")
    headers = {"Authorization": f"Bearer {bearer_token(settings)}"}
    try:
        answer = httpx.request(
            method, url + path, json=body, headers=headers, timeout=TIMEOUT_SECONDS, trust_env=False
        )
    except httpx.HTTPError as error:
        raise ClientError(
            f"the recall service does not answer at {url} ({type(error).__name__}): see `keepsake status`"
        ) from error
    if answer.is_error:
        raise ClientError(f"the recall service answers {answer.status_code}: {_problem(answer)}")
    return cast(dict[str, Any], answer.json())


def _problem(answer: httpx.Response) -> str:
    try:
        problem = answer.json()
        fields = "; ".join(
            f"{item.get('field')}: {item.get('problem')}" for item in problem.get("errors", [])
        )
        return f"{problem['detail']} {fields}".strip()
    except (ValueError, KeyError, TypeError, AttributeError):
        return answer.reason_phrase
