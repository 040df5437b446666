"""`keepsake run recall`: the HTTP service, with its view of the ledger's state and its pool."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn

from agents.ports import Embedder
from infra.providers import ProviderNotConfigured
from infra.sealing import AesGcmSealer, KeysError
from models.topics import CHAT
from sql.config_store import SCHEMA, ConfigStore
from sql.pool import Pool, create_pool
from streams.embedder import make_embedder, running
from streams.heartbeat import Heartbeat
from streams.misplaced import MisplacedWatch
from streams.places import PlaceUnknown, database_url, kafka_bootstrap
from streams.publisher import LogUnavailable, Publisher
from streams.readiness import Probes
from streams.recall_services import ROLE, failure_reports, make_services
from streams.run import Refused, own_directory
from streams.sealer import open_sealer
from streams.settings import Settings
from streams.view import TableView
from streams.view_store import ViewStore
from streams.web.app import Services, make_app

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
STOP_SECONDS = 5
POOL_SIZE = 8
CONFIG_POOL_SIZE = 2


def run(settings: Settings, instance: str = "0", bootstrap: str | None = None) -> None:
    """Serve in the foreground until SIGTERM or SIGINT; leaves with the exit code."""
    try:
        servers = bootstrap or kafka_bootstrap(settings)
        sealer = open_sealer(settings)
        dsn = database_url(settings)
        embedder = make_embedder(settings)
        with own_directory(settings, ROLE, instance) as directory, _listen(settings) as listening:
            service = RecallService(settings, servers, dsn, sealer, embedder, directory)
            raise SystemExit(asyncio.run(service.serve(listening, instance)))
    except (Refused, PlaceUnknown, KeysError, ProviderNotConfigured) as refusal:
        raise SystemExit(f"keepsake {ROLE}: {refusal}") from refusal


class RecallService:
    """The service and everything that it holds open. It serves whatever is away: degraded, and not ready."""

    def __init__(
        self,
        settings: Settings,
        bootstrap: str,
        dsn: str,
        sealer: AesGcmSealer,
        embedder: Embedder,
        directory: Path,
    ) -> None:
        self._settings = settings
        self._bootstrap = bootstrap
        self._dsn = dsn
        self._sealer = sealer
        self._embedder = embedder
        self._directory = directory
        self._reports = failure_reports(settings)

    async def serve(self, listening: socket.socket, instance: str) -> int:
        """Serve until told to stop; the exit code."""
        stopping = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
        heartbeat = Heartbeat(self._settings.data_dir, ROLE, instance)
        heartbeat.update("starting")
        try:
            misplaced = MisplacedWatch(self._bootstrap, self._settings.partitions)
            async with self._opened(misplaced) as (services, view, probes):
                config = uvicorn.Config(
                    make_app(services),
                    log_config=None,
                    access_log=False,
                    lifespan="off",
                    server_header=False,
                    timeout_graceful_shutdown=STOP_SECONDS,
                )
                server = _Server(config)
                tasks = {
                    asyncio.create_task(server.serve(sockets=[listening]), name="HTTP server"),
                    asyncio.create_task(view.run(), name="table view"),
                    asyncio.create_task(misplaced.run(), name="watch of dead letters"),
                    asyncio.create_task(
                        self._beat(heartbeat, view, probes, _url(self._settings, listening)), name="heartbeat"
                    ),
                }
                stop = asyncio.create_task(stopping.wait())
                await asyncio.wait({*tasks, stop}, return_when=asyncio.FIRST_COMPLETED)
                code = 0 if stopping.is_set() else _report(tasks)
                heartbeat.update("stopping")
                server.should_exit = True
                await _end(tasks, stop)
                return code
        finally:
            heartbeat.remove()

    @asynccontextmanager
    async def _opened(self, misplaced: MisplacedWatch) -> AsyncIterator[tuple[Services, TableView, Probes]]:
        settings = self._settings
        store = ViewStore(self._directory / "view")
        publisher = Publisher(self._bootstrap)
        try:
            # No connection is made yet, so PostgreSQL may be away.
            pool = await create_pool(self._dsn, min_size=0, max_size=POOL_SIZE)
            config = await create_pool(self._dsn, schema=SCHEMA, max_size=CONFIG_POOL_SIZE)
            try:
                view = TableView(store, self._bootstrap, settings.partitions)
                probes = Probes(
                    {
                        "view": lambda: _look_at_view(view),
                        "database": lambda: _look_at_database(pool),
                        "kafka": lambda: _look_at_kafka(publisher),
                    },
                    lambda: misplaced.warnings,
                )
                services = make_services(
                    settings,
                    sealer=self._sealer,
                    embedder=self._embedder,
                    view=view,
                    publisher=publisher,
                    pool=pool,
                    config=ConfigStore(config),
                    probes=probes,
                    reports=self._reports,
                )
                async with running(self._embedder):
                    yield services, view, probes
            finally:
                self._reports.close()
                config.terminate()
                pool.terminate()
        finally:
            await publisher.stop()
            store.close()

    async def _beat(self, heartbeat: Heartbeat, view: TableView, probes: Probes, url: str) -> None:
        while True:
            await probes.refresh()
            heartbeat.update("running" if view.complete else "recovering", view.lag(), url)
            # A view that could not follow its log for too long is to be discarded (design, section 2).
            if view.caught_up:
                (self._directory / "last_used").touch()
            await asyncio.sleep(LOOK_SECONDS)


class _Server(uvicorn.Server):
    """uvicorn, but signals are ours: its own handling raises them again at the end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
def _listen(settings: Settings) -> Iterator[socket.socket]:
    address = (settings.http_host, settings.http_port)
    try:
        family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server(address, family=family, backlog=512)
        # asyncio sets this only on sockets that were made with the protocol's number; without it every
        # answer waits some 40 ms for the client's delayed acknowledgement. Accepted sockets inherit it.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        raise Refused(
            f"cannot listen on {settings.http_host}:{settings.http_port} ({error.strerror}): "
            "set KEEPSAKE_HTTP_PORT to a free port, or to 0 for any, and KEEPSAKE_HTTP_HOST to an address here"
        ) from error
    with listening:
        yield listening


def _url(settings: Settings, listening: socket.socket) -> str:
    host = settings.http_host
    return f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"


async def _look_at_view(view: TableView) -> str | None:
    return None if view.caught_up else "the view of the ledger's state is not at the end of its log"


async def _look_at_database(pool: Pool) -> str | None:
    try:
        await pool.fetchval("SELECT 1 FROM user_memories LIMIT 1")
    except Exception as error:  # noqa: BLE001  # away, not provisioned, wrong password: all the same here
        return f"PostgreSQL does not answer ({type(error).__name__})"
    return None


async def _look_at_kafka(publisher: Publisher) -> str | None:
    try:
        await publisher.end_offset(CHAT, 0)
    except LogUnavailable as error:
        return f"Kafka does not answer ({error})"
    return None


def _report(tasks: set[asyncio.Task[None]]) -> int:
    """One of the tasks ended by itself: say which, without what it says."""
    for task in tasks:
        if task.done() and not task.cancelled():
            error = task.exception()
            reason = type(error).__name__ if error else "its end"
            log.error("The %s was stopped by %s", task.get_name(), reason)
    return 1


async def _end(tasks: set[asyncio.Task[None]], stop: asyncio.Task[object]) -> None:
    """Let requests in flight be answered, then end the rest."""
    stop.cancel()
    serving = [task for task in tasks if task.get_name() == "HTTP server"]
    await asyncio.wait(serving, timeout=STOP_SECONDS + 2)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
