"""The HTTP service: routes, and what every request passes on its way to them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException

from agents.context import Context
from agents.pairs import Pairs
from agents.ports import Counters
from agents.recall import Recall
from models.assignments import Assignment, Task
from streams.web.auth import RequireToken, TokenSource
from streams.web.health import health_router
from streams.web.messages import MessageReader, messages_router
from streams.web.pairs import pairs_router
from streams.web.ports import AssignmentStore, EventLog, Readiness, ViewState
from streams.web.problems import (
    MEDIA_TYPE,
    ContainFailures,
    Problem,
    on_http_error,
    on_problem,
    on_validation_error,
)
from streams.web.recall import recall_router
from streams.web.requests import EncodedPaths, LimitBody
from streams.web.tasks import tasks_router
from streams.web.tools import tools_router

_PROBLEM = {
    "content": {
        MEDIA_TYPE: {
            "schema": {
                "type": "object",
                "properties": {
                    "type": {"type": "string"},
                    "title": {"type": "string"},
                    "status": {"type": "integer"},
                    "detail": {"type": "string"},
                },
            }
        }
    }
}
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    401: {"description": "No token, or not the right one", **_PROBLEM},
    422: {"description": "Something in the request is not as it must be", **_PROBLEM},
    503: {"description": "Something that this needs is away", **_PROBLEM},
}


@dataclass(frozen=True, slots=True)
class Services:
    """What the routes work with."""

    recall: Recall
    context: Context
    pairs: Pairs
    log: EventLog
    view: ViewState
    readiness: Readiness
    tokens: TokenSource
    reader: MessageReader
    counters: Counters
    assignments: AssignmentStore
    default_assignments: Mapping[Task, Assignment]


def make_app(services: Services) -> FastAPI:
    app = FastAPI(
        title="Keepsake",
        description="Long-term memory for AI characters, companions and coaches.",
        # The documentation pages load scripts from elsewhere; /openapi.json says the same.
        docs_url=None,
        redoc_url=None,
        responses=_PROBLEMS,
    )
    # Only describes the token in /openapi.json: RequireToken has checked it long before.
    bearer = [Depends(HTTPBearer(auto_error=False))]
    app.include_router(health_router(services.readiness, services.view))
    app.include_router(recall_router(services.recall, services.context), dependencies=bearer)
    app.include_router(messages_router(services.log, services.reader, services.counters), dependencies=bearer)
    app.include_router(
        pairs_router(
            services.pairs, services.log, services.view, services.counters, services.reader.partitions
        ),
        dependencies=bearer,
    )
    app.include_router(tools_router(), dependencies=bearer)
    app.include_router(tasks_router(services.assignments, services.default_assignments), dependencies=bearer)
    app.add_exception_handler(Problem, on_problem)
    app.add_exception_handler(RequestValidationError, on_validation_error)
    app.add_exception_handler(HTTPException, on_http_error)
    # The last one added is the first that a request meets.
    app.add_middleware(EncodedPaths)
    app.add_middleware(LimitBody)
    app.add_middleware(RequireToken, tokens=services.tokens)
    app.add_middleware(ContainFailures)
    return app
