"""`POST /v1/recall`."""

import time

from fastapi import APIRouter

from agents.recall import Recall
from models.recall import RecallRequest, RecallResponse
from streams.web.metrics import RECALL_SECONDS


def recall_router(recall: Recall) -> APIRouter:
    router = APIRouter(tags=["recall"])

    @router.post("/v1/recall")
    async def post_recall(request: RecallRequest) -> RecallResponse:
        """The memories that belong in the next prompt. Always 200: `degraded` says what failed."""
        started = time.perf_counter()
        answer = await recall.recall(request)
        RECALL_SECONDS.observe(time.perf_counter() - started)
        return answer

    return router
