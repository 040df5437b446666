"""What an operator does about task assignments, straight in PostgreSQL: it works with every role stopped."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from models.assignments import Assignment, AssignmentChange, Task
from models.store_errors import StoreUnavailable
from sql.config_store import SCHEMA, ConfigStore
from sql.pool import create_pool
from streams.assignments import TaskStanding, default_assignments, standings
from streams.errors import Explained
from streams.model_check import model_problem
from streams.places import database_url
from streams.settings import Settings


class AssignmentRefused(Explained):
    """It was not assigned, or cannot be shown; the message says why and what to do."""


async def task_standings(settings: Settings) -> list[TaskStanding]:
    """Every task with its models; defaults are those of these settings."""
    async with _store(settings) as store:
        return standings(await store.assignments(), default_assignments(settings))


async def task_history(settings: Settings, task: Task | None, limit: int) -> list[AssignmentChange]:
    """The latest changes (of a task), newest first."""
    async with _store(settings) as store:
        return await store.history(task, limit)


async def assign_task(settings: Settings, assignment: Assignment, by: str, *, check: bool) -> bool:
    """Assign; False: it stood so already. With `check`, only if every model of it answers a call."""
    if check:
        for model in filter(None, (assignment.model, assignment.fallback)):
            problem = await model_problem(model, settings)
            if problem is not None:
                raise AssignmentRefused(f"nothing was changed: {model} cannot be used: {problem}")
    async with _store(settings) as store:
        return await store.assign(assignment, by)


@asynccontextmanager
async def _store(settings: Settings) -> AsyncIterator[ConfigStore]:
    pool = await create_pool(database_url(settings), schema=SCHEMA, max_size=1)
    try:
        yield ConfigStore(pool)
    except StoreUnavailable as error:
        raise AssignmentRefused(f"PostgreSQL cannot be used ({error}): see `keepsake status`") from error
    finally:
        pool.terminate()
