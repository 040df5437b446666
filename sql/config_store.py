"""The schema `config`: which model does which task, with its history, and what models have cost."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from uuid import UUID

import asyncpg

from models.assignments import Assigned, Assignment, AssignmentChange, InvalidAssignment, Task
from models.store_errors import StoreUnavailable
from models.usage import UsageKey, UsageTotals
from sql.loader import load_queries
from sql.pool import Pool, store_errors

log = logging.getLogger(__name__)

SCHEMA = "config"


class ConfigStore:
    """Rows of the schema `config`; the pool's connections must see it first. Every method: StoreUnavailable when
    PostgreSQL is away, or its migrations are not applied yet."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._sql = load_queries("config")

    async def assignments(self) -> dict[Task, Assigned]:
        """Those that were made; a task without one has its default. One that this version cannot read is left out."""
        with _errors():
            rows = await self._pool.fetch(self._sql["assignments"])
        found: dict[Task, Assigned] = {}
        for row in rows:
            try:
                assignment = Assignment.parse(row["task"], row["model"], row["fallback"])
            except InvalidAssignment as error:
                log.warning("The assignment of the task %s cannot be read: %s", row["task"], error)
                continue
            found[assignment.task] = Assigned(assignment, row["assigned_by"], row["assigned_at"])
        return found

    async def assign(self, assignment: Assignment, by: str) -> bool:
        """Put an assignment in place, and the change into the history; False: it is in place already."""
        model, fallback = str(assignment.model), assignment.fallback and str(assignment.fallback)
        with _errors():
            async with self._pool.acquire() as connection, connection.transaction():
                await connection.execute(self._sql["lock_assignments"])
                before = await connection.fetchrow(self._sql["assignment"], assignment.task)
                old = (before["model"], before["fallback"]) if before else (None, None)
                if old == (model, fallback):
                    return False
                await connection.execute(self._sql["assign"], assignment.task, model, fallback, by)
                await connection.execute(self._sql["add_history"], assignment.task, by, *old, model, fallback)
        return True

    async def history(self, task: Task | None = None, limit: int = 100) -> list[AssignmentChange]:
        """The latest changes (of a task), newest first."""
        with _errors():
            rows = await self._pool.fetch(self._sql["history"], task, limit)
        return [
            AssignmentChange(
                task=row["task"],
                at=row["changed_at"],
                by=row["changed_by"],
                from_model=row["from_model"],
                from_fallback=row["from_fallback"],
                to_model=row["to_model"],
                to_fallback=row["to_fallback"],
            )
            for row in rows
        ]

    async def put_usage(self, worker: UUID, totals: Mapping[UsageKey, UsageTotals]) -> None:
        """Write a worker's sums; written again, or late, they change nothing."""
        arguments = [
            (
                *(worker, key.day, key.task, key.provider, key.model),
                *(sums.calls, sums.input_tokens, sums.output_tokens),
            )
            for key, sums in totals.items()
        ]
        with _errors():
            await self._pool.executemany(self._sql["put_usage"], arguments)

    async def spent_by_others(self, worker: UUID, day: date) -> int:
        """Tokens of a day, read and written, of all workers but this one."""
        with _errors():
            return int(await self._pool.fetchval(self._sql["spent_by_others"], day, worker))


@contextmanager
def _errors() -> Iterator[None]:
    with store_errors():
        try:
            yield
        except asyncpg.UndefinedTableError as error:
            raise StoreUnavailable("its migrations are not applied: run `keepsake provision`") from error
