"""`POST /v1/recall` and `POST /v1/context`."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import APIRouter

from agents.context import Context
from agents.recall import Recall
from models.candidates import InvalidCursor
from models.context import ContextRequest, ContextResponse
from models.context_fit import BudgetTooSmall
from models.profiles import UnknownProfile
from models.recall import RecallRequest, RecallResponse
from streams.web.metrics import CONTEXT_SECONDS, RECALL_SECONDS
from streams.web.problems import Problem


def recall_router(recall: Recall, context: Context) -> APIRouter:
    router = APIRouter(tags=["recall"])

    @router.post("/v1/recall")
    async def post_recall(request: RecallRequest) -> RecallResponse:
        """The memories that belong in the next prompt. Always 200: `degraded` says what failed."""
        started = time.perf_counter()
        with _refusals():
            answer = await recall.recall(request)
        RECALL_SECONDS.observe(time.perf_counter() - started)
        return answer

    @router.post("/v1/context")
    async def post_context(request: ContextRequest) -> ContextResponse:
        """System text and messages for the next turn. 200 whatever is away: `degraded` says what failed."""
        started = time.perf_counter()
        with _refusals():
            answer = await context.context(request)
        CONTEXT_SECONDS.observe(time.perf_counter() - started)
        return answer

    return router


@contextmanager
def _refusals() -> Iterator[None]:
    """What is wrong with the request itself, as a problem."""
    try:
        yield
    except (BudgetTooSmall, InvalidCursor, UnknownProfile) as error:
        raise Problem(422, f"{str(error)[0].upper()}{str(error)[1:]}.") from None
