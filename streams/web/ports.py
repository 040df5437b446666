"""What the routes need from the role that serves them."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from models.assignments import Assigned, Assignment, Task
from streams.publisher import Draft, Place


class EventLog(Protocol):
    """The log (streams/publisher.py)."""

    async def publish(self, drafts: Sequence[Draft]) -> list[Place]: ...

    async def end_offset(self, topic: str, partition: int) -> int: ...


class ViewState(Protocol):
    """How far the view of the ledger's table has come (streams/view.py)."""

    @property
    def complete(self) -> bool: ...

    def lag(self) -> int | None: ...


class Readiness(Protocol):
    """What is not ready, by name, as last looked at; nothing: everything is (streams/readiness.py)."""

    @property
    def troubles(self) -> dict[str, str]: ...

    @property
    def warnings(self) -> list[str]:
        """What makes memories go missing though everything is ready (streams/misplaced.py)."""
        ...


class AssignmentStore(Protocol):
    """Which model does which task (sql/config_store.py). StoreUnavailable when PostgreSQL is away."""

    async def assignments(self) -> Mapping[Task, Assigned]: ...

    async def assign(self, assignment: Assignment, by: str) -> bool: ...
