"""What runs beside a role's app: its failure stops the role, and says which it was and nothing else."""

import asyncio
import inspect
from pathlib import Path

from streams.faust_app import make_app
from streams.run import beside
from streams.settings import Settings


async def endless() -> None:
    await asyncio.Event().wait()


async def failing() -> None:
    raise ValueError("text of a chat")


async def test_a_failure_beside_stops_the_role_and_the_rest_is_cancelled(tmp_path: Path) -> None:
    app = make_app(Settings(data_dir=tmp_path), "group", role="indexer", bootstrap="nowhere:9092")
    rest = endless()
    async with beside(app, rest, failing()):
        await app.stopping.wait()
    assert app.failure == "failing was stopped by ValueError"
    assert inspect.getcoroutinestate(rest) == inspect.CORO_CLOSED


async def test_an_end_without_failure_stops_nothing(tmp_path: Path) -> None:
    app = make_app(Settings(data_dir=tmp_path), "group", role="indexer", bootstrap="nowhere:9092")
    async with beside(app, endless(), asyncio.sleep(0)):
        await asyncio.sleep(0)
    assert app.failure is None
    assert not app.stopping.is_set()
