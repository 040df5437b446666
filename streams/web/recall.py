"""`POST /v1/recall` and `POST /v1/context`."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import APIRouter

from agents.recall import Recall
from models.candidates import InvalidCursor
from models.profiles import UnknownProfile
from models.recall import RecallRequest, RecallResponse
from streams.web.metrics import RECALL_SECONDS
from streams.web.problems import Problem


def recall_router(recall: Recall) -> APIRouter:
    router = APIRouter(tags=["recall"])

    @router.post("/v1/recall")
    async def post_recall(request: RecallRequest) -> RecallResponse:
        """The memories that belong in the next prompt. Always 200: `degraded` says what failed."""
        started = time.perf_counter()
        with _refusals():
            answer = await recall.recall(request)
        RECALL_SECONDS.observe(time.perf_counter() - started)
        return answer

    return router


@contextmanager
def _refusals() -> Iterator[None]:
    """What is wrong with the request itself, as a problem."""
    try:
        yield
    except (InvalidCursor, UnknownProfile) as error:
        raise Problem(422, f"{str(error)[0].upper()}{str(error)[1:]}.") from None
