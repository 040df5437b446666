"""`keepsake run extractor`: turns windows into memories; keeps nothing but a journal of starts."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaProducer

from agents.assigned import AssignedExtraction
from agents.codec import RequestCodec
from agents.extractor import Extractor
from agents.ports import ProviderError
from agents.usage import Usage
from infra.faults import fault_point
from infra.metrics import PrometheusCounters, PrometheusUsage
from infra.sealing import AesGcmSealer, KeysError
from infra.starts import StartsFile
from models.assignments import Assigned, Task
from models.topics import EXTRACTED, REQUESTED
from sql.config_store import SCHEMA, ConfigStore
from sql.pool import create_pool
from streams.assignments import AssignmentWatch, default_assignments
from streams.consume import consume
from streams.dead_letters import KafkaDeadLetters
from streams.faust_app import StreamApp, make_app, role_directory
from streams.model_factory import ExtractionModels
from streams.places import PlaceUnknown, database_url
from streams.run import beside, run_app
from streams.sealer import open_sealer
from streams.settings import Settings
from streams.topics import EXTRACTOR_GROUP
from streams.user_topic import UserTopic

log = logging.getLogger(__name__)

ROLE = "extractor"
POOL_SIZE = 2


def run(settings: Settings, instance: str = "0", bootstrap: str | None = None) -> None:
    """Run an extractor in the foreground; leaves with its exit code."""
    try:
        sealer = open_sealer(settings)
    except KeysError as error:
        raise SystemExit(f"keepsake {ROLE}: {error}") from error
    app = make_app(settings, EXTRACTOR_GROUP, role=ROLE, instance=instance, bootstrap=bootstrap)

    @asynccontextmanager
    async def setup(app: StreamApp) -> AsyncIterator[None]:
        async with _wired(app, sealer):
            yield

    raise SystemExit(run_app(app, setup=setup))


@asynccontextmanager
async def _wired(app: StreamApp, sealer: AesGcmSealer) -> AsyncIterator[None]:
    """The agent, with what it needs, for as long as the app runs."""
    settings = app.settings
    async with contextlib.AsyncExitStack() as stack:
        journal = StartsFile(role_directory(settings, ROLE, app.instance) / "starts.sqlite")
        stack.callback(journal.close)
        producer = await stack.enter_async_context(
            AIOKafkaProducer(bootstrap_servers=app.bootstrap, acks="all", enable_idempotence=True)
        )
        store = await _config_store(settings, stack)
        usage = Usage(store, PrometheusUsage(), limit=settings.daily_token_limit)
        stack.push_async_callback(usage.refresh)
        watch = AssignmentWatch(
            store.assignments if store else _none_assigned,
            default_assignments(settings),
            seconds=settings.assignments_seconds,
        )
        models = AssignedExtraction(
            lambda: watch.current("extraction"),
            await stack.enter_async_context(ExtractionModels(settings, usage)),
            usage,
            attempts=settings.extraction_attempts,
        )
        extractor = Extractor(
            RequestCodec(sealer),
            models,
            UserTopic(producer, EXTRACTED, settings.partitions),
            KafkaDeadLetters(producer, sealer),
            journal,
            PrometheusCounters(ROLE),
            deadline=settings.extraction_deadline_seconds,
            fault=fault_point,
        )
        # Before the first window: a limit that is reached already holds it too.
        await asyncio.gather(watch.refresh(), usage.refresh())
        # Now, not within the first attempt: an SDK takes seconds to import. What is missing is in the log then.
        assignment = watch.current("extraction")
        for model in filter(None, (assignment.model, assignment.fallback)):
            with contextlib.suppress(ProviderError):
                models.open(model)
        consume(app, [REQUESTED], extractor, concurrency=settings.extraction_concurrency)
        async with beside(app, watch.run(), usage.run()):
            yield


async def _config_store(settings: Settings, stack: contextlib.AsyncExitStack) -> ConfigStore | None:
    """The schema `config`, which may be away for a while; None: nothing says where PostgreSQL is."""
    try:
        dsn = database_url(settings)
    except PlaceUnknown as error:
        log.warning("The models are those of the settings, and usage is not kept: %s", error)
        return None
    # No connection is made yet.
    pool = await create_pool(dsn, schema=SCHEMA, max_size=POOL_SIZE)
    stack.callback(pool.terminate)
    return ConfigStore(pool)


async def _none_assigned() -> Mapping[Task, Assigned]:
    return {}
