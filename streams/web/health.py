"""Health, readiness and metrics."""

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from streams.web.metrics import VIEW_LAG
from streams.web.ports import Readiness, ViewState
from streams.web.problems import Problem


def health_router(readiness: Readiness, view: ViewState) -> APIRouter:
    router = APIRouter(tags=["health"])

    @router.get("/healthz")
    async def healthz() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @router.get("/readyz")
    async def readyz() -> dict[str, object]:
        """Everything that the service needs is there; else 503 with what is not. Recall answers even then.

        `warnings` tells what makes memories go missing though the service itself is well.
        """
        troubles = readiness.troubles
        if troubles:
            raise Problem(503, "Not ready: " + "; ".join(troubles.values()) + ".", checks=troubles)
        return {"status": "ready", "warnings": readiness.warnings}

    @router.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Prometheus metrics."""
        lag = view.lag()
        VIEW_LAG.set(-1 if lag is None else lag)
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    return router
