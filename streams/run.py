"""Running a role: its directory, its signals, its sign of life, its exit code."""

import asyncio
import contextlib
import fcntl
import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from aiokafka.errors import KafkaConnectionError
from prometheus_client import start_http_server

from streams.errors import Explained
from streams.faust_app import StreamApp, role_directory
from streams.heartbeat import Heartbeat, State
from streams.settings import Settings

log = logging.getLogger(__name__)

STOP_SECONDS = 15.0
DAY_SECONDS = 86_400.0


class Refused(Explained):
    """The role cannot run; the message says why and what to do."""


@contextmanager
def own_directory(settings: Settings, role: str, instance: str) -> Iterator[Path]:
    """The role's directory, for this process alone; emptied when it is too old to be continued.

    After `state_max_age_days` without use the broker may have dropped the tombstones that this copy of
    the state has not seen: deleted rows would come back.
    """
    directory = role_directory(settings, role, instance)
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Refused(
                f"{directory} is in use by another process: "
                f"stop it, or start this one with another --instance (now {instance!r})"
            ) from error
        used = directory / "last_used"
        if used.exists() and time.time() - used.stat().st_mtime > settings.state_max_age_days * DAY_SECONDS:
            log.warning(
                "Discarding %s: unused for longer than %s days", directory, settings.state_max_age_days
            )
            for entry in directory.iterdir():
                if entry.is_dir():
                    shutil.rmtree(entry)
        used.touch()
        yield directory


def run_app(
    app: StreamApp,
    *,
    setup: Callable[[StreamApp], AbstractAsyncContextManager[None]] | None = None,
    healthy: Callable[[], bool] = lambda: True,
) -> int:
    """Run the app until SIGTERM or SIGINT (exit code 0) or a failure (1, its reason on standard error).

    `setup(app)` is entered in the running loop before anything is consumed, and left after: the place for
    producers and pools. While `healthy()` is false the sign of life is withheld.
    """
    try:
        if app.settings.metrics_port:
            start_http_server(app.settings.metrics_port)
        with own_directory(app.settings, app.role, app.instance) as directory:
            return asyncio.run(_run(app, directory, setup or _nothing, healthy))
    except Explained as refusal:
        print(f"keepsake {app.role}: {refusal}", file=sys.stderr)
    except KafkaConnectionError:
        print(f"keepsake {app.role}: no Kafka broker answers at {app.bootstrap}", file=sys.stderr)
    return 1


@asynccontextmanager
async def _nothing(_app: StreamApp) -> AsyncIterator[None]:
    yield


@asynccontextmanager
async def beside(app: StreamApp, *work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run these while the context lasts. One that fails stops the role instead of passing unseen."""
    tasks = [asyncio.create_task(each, name=getattr(each, "__qualname__", None)) for each in work]

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            app.fail(f"{task.get_name()} was {_described(error)}")

    for task in tasks:
        task.add_done_callback(ended)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _run(
    app: StreamApp,
    directory: Path,
    setup: Callable[[StreamApp], AbstractAsyncContextManager[None]],
    healthy: Callable[[], bool],
) -> int:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, app.stopping.set)
    heartbeat = Heartbeat(app.settings.data_dir, app.role, app.instance)
    try:
        # Signs of life from the first moment: what `setup` waits for may take longer than a silence may last.
        async with beside(app, _beat(app, heartbeat, directory, healthy)), setup(app):
            committing = () if app.commit_seconds is None else (_commit(app, app.commit_seconds),)
            async with beside(app, *committing):
                await _serve(app, heartbeat)
    finally:
        heartbeat.remove()
    if app.failure is not None:
        print(f"keepsake {app.role}: {app.failure}", file=sys.stderr)
        return 1
    return 0


async def _serve(app: StreamApp, heartbeat: Heartbeat) -> None:
    """Run the app until it is told to stop, fails, or crashes."""
    if app.stopping.is_set():  # during setup already
        return
    start = asyncio.create_task(app.start())
    stop = asyncio.create_task(app.stopping.wait())
    crash = asyncio.create_task(app._crashed.wait())
    await asyncio.wait({start, stop, crash}, return_when=asyncio.FIRST_COMPLETED)
    if start.done() and not start.cancelled() and (error := start.exception()) is not None:
        app.fail(f"did not start: {_described(error)}")
    await asyncio.wait({stop, crash}, return_when=asyncio.FIRST_COMPLETED)
    if crash.done() and app.failure is None:
        app.fail(_described(app.crash_reason))
    heartbeat.update("stopping")
    await _stop(app, [start, stop, crash])


def _described(error: BaseException | None) -> str:
    """Only messages of our own are quoted; others may hold anything."""
    return str(error) if isinstance(error, Explained) else f"stopped by {type(error).__name__}"


async def _stop(app: StreamApp, waiting: list[asyncio.Task[object]]) -> None:
    """Let work in flight end, commit, leave the group; not longer than `STOP_SECONDS`."""

    async def leave() -> None:
        with contextlib.suppress(Exception):  # the broker may be away: then there is nothing to commit to
            for hook in app.on_stopping:
                await hook()
        for task in waiting:
            task.cancel()
        await app.stop()

    try:
        await asyncio.wait_for(leave(), STOP_SECONDS)
    except Exception as error:  # noqa: BLE001  # leaving anyway
        log.warning("Did not stop cleanly within %s s: %s", STOP_SECONDS, type(error).__name__)
        if app.failure is not None:
            print(f"keepsake {app.role}: {app.failure}", file=sys.stderr)
        sys.stderr.flush()
        os._exit(1 if app.failure is not None else 0)


async def _commit(app: StreamApp, seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        await app.commit_finished()


async def _beat(app: StreamApp, heartbeat: Heartbeat, directory: Path, healthy: Callable[[], bool]) -> None:
    while True:
        if healthy():
            state: State = "starting"
            if app.deliveries.positions() or app.unassigned:
                state = "running"
            elif app.in_recovery:
                state = "recovering"
            heartbeat.update(state, app.lag())
            (directory / "last_used").touch()
        await asyncio.sleep(1)
