"""`keepsake run indexer`: embeds memories, and keeps PostgreSQL as the log says."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from aiokafka import AIOKafkaProducer

from agents.codec import MemoryCipher, PairCipher
from agents.embed import Embed
from agents.embedding import MAX_BATCH, MemoryEmbedding
from agents.index import Index
from agents.ports import Embedder
from agents.sweep import Sweep
from infra.faults import fault_point
from infra.metrics import WITHOUT_VECTOR, PrometheusCounters
from infra.providers import ProviderNotConfigured
from infra.sealing import AesGcmSealer, KeysError
from models.topics import CHANGED, CREATED, EMBEDDED
from sql.index_store import IndexStore
from sql.pool import create_pool
from streams.consume import consume_batches
from streams.coverage_reports import TickCoverageReports
from streams.dead_letters import KafkaDeadLetters
from streams.embed_progress import EmbedProgress
from streams.embedder import make_embedder, running
from streams.faust_app import StreamApp, make_app
from streams.index_positions import IndexPositions
from streams.key_view import KeyStore
from streams.places import PlaceUnknown, database_url
from streams.run import beside, run_app
from streams.sealer import open_sealer
from streams.settings import Settings
from streams.topics import INDEXER_GROUP
from streams.user_topic import UserTopic
from streams.view import TableView

ROLE = "indexer"
POOL_SIZE = 4
CONCURRENCY = 4
# The log may hold this many records that the index has not read when a sweep looks for missing vectors.
QUIET_LAG = 100


def run(settings: Settings, instance: str = "0", bootstrap: str | None = None) -> None:
    """Run an indexer in the foreground; leaves with its exit code."""
    try:
        sealer = open_sealer(settings)
        dsn = database_url(settings)
        embedder = make_embedder(settings)
    except (KeysError, PlaceUnknown, ProviderNotConfigured) as error:
        raise SystemExit(f"keepsake {ROLE}: {error}") from error
    app = make_app(settings, INDEXER_GROUP, role=ROLE, instance=instance, bootstrap=bootstrap)

    @asynccontextmanager
    async def setup(app: StreamApp) -> AsyncIterator[None]:
        async with _wired(app, sealer, dsn, embedder):
            yield

    raise SystemExit(run_app(app, setup=setup))


@asynccontextmanager
async def _wired(app: StreamApp, sealer: AesGcmSealer, dsn: str, embedder: Embedder) -> AsyncIterator[None]:
    """The two agents, with what they need, for as long as the app runs."""
    partitions = app.settings.partitions
    counters = PrometheusCounters(ROLE)
    view = TableView(KeyStore(), app.bootstrap, partitions)
    progress = EmbedProgress(app.bootstrap)
    cipher = MemoryCipher(sealer, PairCipher(sealer))
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(running(embedder))
        pool = await stack.enter_async_context(await create_pool(dsn, max_size=POOL_SIZE))
        producer = await stack.enter_async_context(
            AIOKafkaProducer(bootstrap_servers=app.bootstrap, acks="all", enable_idempotence=True)
        )
        await progress.start()
        stack.push_async_callback(progress.stop)
        store = IndexStore(pool, before_commit=lambda: fault_point("indexer.before_commit"))
        dead = KafkaDeadLetters(producer, sealer)
        embedding = MemoryEmbedding(
            cipher=cipher,
            keys=view,
            sealer=sealer,
            embedder=embedder,
            topic=UserTopic(producer, EMBEDDED, partitions),
            counters=counters,
        )
        coverage = TickCoverageReports(producer, partitions)
        stack.push_async_callback(coverage.close)
        index = Index(store, cipher, view, dead, coverage, counters, fault_point)
        embed = Embed(
            embedding,
            progress,
            dead,
            counters,
            fault_point,
            retry_seconds=app.settings.embedding_retry_seconds,
        )
        consume_batches(app, [CREATED], embed, concurrency=CONCURRENCY, limit=MAX_BATCH)
        consume_batches(app, [CREATED, EMBEDDED, CHANGED], index, concurrency=CONCURRENCY)
        app.first_positions = IndexPositions(app, index, store, progress)
        app.on_revoked.append(progress.commit)
        sweep = Sweep(
            store,
            embedding,
            lambda: {tp.partition for tp in app.deliveries.positions() if tp.topic == CREATED},
            lambda: app.lag() <= QUIET_LAG,
            WITHOUT_VECTOR.set,
            age=timedelta(seconds=app.settings.embedding_sweep_seconds),
        )
        async with beside(app, view.run(), progress.run(), sweep.run(app.settings.embedding_sweep_seconds)):
            # Until the view has the keys that exist, every record would wait for one.
            await _caught_up_or_stopping(view, app)
            yield


async def _caught_up_or_stopping(view: TableView, app: StreamApp) -> None:
    waits = [asyncio.create_task(view.wait_caught_up()), asyncio.create_task(app.stopping.wait())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
