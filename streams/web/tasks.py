"""`/v1/admin/tasks`: which model does which task (R9)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated

from fastapi import APIRouter
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from models.assignments import Assignment, ModelRef, Task
from models.store_errors import StoreUnavailable
from streams.assignments import TaskStanding, standings
from streams.web.ports import AssignmentStore
from streams.web.problems import Problem

PATH = "/v1/admin/tasks"
WHO = "api"


def _reference(text: str) -> str:
    return str(ModelRef.parse(text))


Model = Annotated[
    str,
    Field(description="provider:model", examples=["gemini:gemini-2.5-flash"], max_length=300),
    AfterValidator(_reference),
]


class TaskChange(BaseModel):
    """Who is to do a task; without a fall-back, none takes over when the first model fails."""

    model_config = ConfigDict(extra="forbid")

    task: Task
    model: Model
    fallback: Model | None = None

    @model_validator(mode="after")
    def _two_models(self) -> "TaskChange":
        self.assignment()
        return self

    def assignment(self) -> Assignment:
        return Assignment.parse(self.task, self.model, self.fallback)


class TaskList(BaseModel):
    """Every task with its models."""

    tasks: list[TaskStanding]


def tasks_router(store: AssignmentStore, defaults: Mapping[Task, Assignment]) -> APIRouter:
    router = APIRouter(tags=["admin"])

    async def standing() -> TaskList:
        return TaskList(tasks=standings(await store.assignments(), defaults))

    @router.get(PATH)
    async def get_tasks() -> TaskList:
        """Which model does which task; where none is assigned, the default as this service's settings say."""
        with _stored():
            return await standing()

    @router.put(PATH)
    async def put_task(change: TaskChange) -> TaskList:
        """Assign a model to a task; in effect within a minute, with nothing restarted."""
        with _stored():
            await store.assign(change.assignment(), WHO)
            return await standing()

    return router


@contextmanager
def _stored() -> Iterator[None]:
    """Where PostgreSQL is asked: 503 while it is away."""
    try:
        yield
    except StoreUnavailable as error:
        raise Problem(
            503, f"PostgreSQL cannot be used ({error}). Try again in a moment.", headers={"Retry-After": "2"}
        ) from None
