"""Which model does which task now: as assigned in PostgreSQL, as last seen there, or as the settings say."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Literal

from pydantic import BaseModel

from models.assignments import TASKS, Assigned, Assignment, Task, default_model
from models.store_errors import StoreUnavailable
from streams.provider_access import provider_access
from streams.settings import Settings

log = logging.getLogger(__name__)

READ_SECONDS = 5.0


def default_assignments(settings: Settings) -> dict[Task, Assignment]:
    """The assignment of every task where none is made."""
    gemini_key = provider_access(settings).gemini_api_key is not None
    set_here = {"extraction": settings.extraction_model}
    return {
        task: Assignment(task, default_model(set_here.get(task), gemini_key=gemini_key)) for task in TASKS
    }


class TaskStanding(BaseModel):
    """Who does a task. `source` default: nothing is assigned, and the settings of this process say so."""

    task: Task
    model: str
    fallback: str | None
    source: Literal["assigned", "default"]
    assigned_by: str | None = None
    assigned_at: datetime | None = None


def standings(assigned: Mapping[Task, Assigned], defaults: Mapping[Task, Assignment]) -> list[TaskStanding]:
    """Every task with its models."""
    found = []
    for task in TASKS:
        made = assigned.get(task)
        assignment = made.assignment if made else defaults[task]
        found.append(
            TaskStanding(
                task=task,
                model=str(assignment.model),
                fallback=str(assignment.fallback) if assignment.fallback else None,
                source="assigned" if made else "default",
                assigned_by=made.by if made else None,
                assigned_at=made.at if made else None,
            )
        )
    return found


class AssignmentWatch:
    """Reads the assignments every `seconds`. Whatever becomes of PostgreSQL, there is always one to go by."""

    def __init__(
        self,
        read: Callable[[], Awaitable[Mapping[Task, Assigned]]],
        defaults: Mapping[Task, Assignment],
        *,
        seconds: float,
    ) -> None:
        self._read = read
        self._defaults = defaults
        self._seconds = seconds
        self._current = dict(defaults)
        self._away = False

    def current(self, task: Task) -> Assignment:
        """The assignment as last seen."""
        return self._current[task]

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self._seconds)
            await self.refresh()

    async def refresh(self) -> None:
        """Look once; raises nothing, and takes no longer than READ_SECONDS."""
        try:
            async with asyncio.timeout(READ_SECONDS):
                assigned = await self._read()
        except Exception as error:  # noqa: BLE001  # whatever it is: the work goes on with the model it has
            if not self._away:
                log.warning(
                    "The task assignments cannot be read (%s): extraction goes on with %s",
                    error if isinstance(error, StoreUnavailable) else type(error).__name__,
                    self._current["extraction"].model,
                )
            self._away = True
            return
        self._away = False
        for task, default in self._defaults.items():
            made = assigned.get(task)
            assignment = made.assignment if made else default
            if assignment != self._current[task]:
                log.info(
                    "The task %s is now done by %s, fall-back %s (%s)",
                    task,
                    assignment.model,
                    assignment.fallback or "none",
                    f"assigned by {made.by}" if made else "default",
                )
                self._current[task] = assignment
