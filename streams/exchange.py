"""How the client gets an answer: what to send and how long to wait, whatever does the sending."""

from collections.abc import Callable, Generator
from typing import Any

import httpx

FIRST_WAIT, LAST_WAIT = 0.05, 1.0
# The service is busy. Whatever a server says of itself (5xx) is tried again too: it is away, restarting, failing, or
# behind a proxy that cannot reach it.
BUSY = frozenset({408, 425, 429})


class Unreachable(Exception):
    """The service did not answer in time; it says nothing of what was sent."""


class Refused(Exception):
    """The service refused the request. `status` is HTTP's; the message is the service's, without what was sent."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"{status}: {detail}")
        self.status = status


class Wait(float):
    """Wait for so many seconds."""


class Send(float):
    """Send the request, and wait for its answer for so many seconds."""


# What is to be done next; what came of it is sent back.
Steps = Generator[Wait | Send, httpx.Response | Exception | None, dict[str, Any]]


def exchange(seconds: float, clock: Callable[[], float]) -> Steps:
    """Try until there is an answer or the time is over: the one place that knows how, whatever does the sending."""
    end, wait = clock() + seconds, FIRST_WAIT
    while True:
        outcome = yield Send(max(0.001, end - clock()))
        pause = wait
        if isinstance(outcome, httpx.Response):
            if not outcome.is_server_error and outcome.status_code not in BUSY:
                return _body(outcome)
            pause = max(wait, _retry_after(outcome))
        if clock() + pause >= end:
            told = f"HTTP {outcome.status_code}" if isinstance(outcome, httpx.Response) else "no answer"
            raise Unreachable(f"Keepsake could not be reached within {seconds:g} s ({told})")
        yield Wait(pause)
        wait = min(2 * wait, LAST_WAIT)


def _body(answer: httpx.Response) -> dict[str, Any]:
    try:
        body = answer.json()
    except ValueError:
        body = None
    if answer.is_success and isinstance(body, dict):
        return body
    if answer.is_success:
        raise Unreachable("what answers is not Keepsake")
    problem = body if isinstance(body, dict) else {}
    fields = [
        f"{one.get('field')}: {one.get('problem')}" for one in problem.get("errors", ()) if "field" in one
    ]
    raise Refused(answer.status_code, " ".join([str(problem.get("detail", answer.reason_phrase)), *fields]))


def _retry_after(answer: httpx.Response) -> float:
    try:
        return max(0.0, float(answer.headers.get("Retry-After", 0)))
    except ValueError:
        return 0.0
