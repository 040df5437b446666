"""`keepsake run indexer`: embeds memories, and keeps PostgreSQL as the log says."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from agents.codec import MemoryCipher, PairCipher
from agents.embed import Embed, Sweep
from agents.embedding import MAX_BATCH, MemoryEmbedding
from agents.index import Index
from infra.faults import fault_point
from infra.metrics import PrometheusCounters
from infra.offline_embedder import OfflineEmbedder
from infra.sealing import AesGcmSealer, KeysError, load_master_keys
from models.topics import CHANGED, CREATED, EMBEDDED
from sql.index_store import IndexStore
from sql.pool import create_pool
from streams.consume import consume_batches
from streams.dead_letters import KafkaDeadLetters
from streams.embed_progress import EmbedProgress
from streams.faust_app import StreamApp, make_app
from streams.index_positions import IndexPositions
from streams.key_view import KeyStore
from streams.partitioner import partition_for
from streams.places import PlaceUnknown, database_url
from streams.run import run_app
from streams.settings import Settings
from streams.topics import INDEXER_GROUP
from streams.view import TableView

log = logging.getLogger(__name__)

ROLE = "indexer"
RETRY_SECONDS, RETRY_MAX_SECONDS = 0.5, 15.0
POOL_SIZE = 4
CONCURRENCY = 4
# The log may hold this many records that the index has not read when a sweep looks for missing vectors.
QUIET_LAG = 100


class KafkaEmbedded:
    """Sends to `memory.embedded`, and goes on trying while the broker is away: twice does no harm (I6)."""

    def __init__(self, producer: AIOKafkaProducer, partitions: int) -> None:
        self._producer = producer
        self._partitions = partitions

    async def send(self, user_id: str, key: bytes, value: bytes) -> None:
        partition = partition_for(user_id, self._partitions)
        wait = RETRY_SECONDS
        while True:
            try:
                await self._producer.send_and_wait(EMBEDDED, value, key=key, partition=partition)
                return
            except KafkaError as error:
                if not error.retriable:
                    raise
                log.warning("cannot send an embedding (%s): trying again in %s s", type(error).__name__, wait)
            await asyncio.sleep(wait)
            wait = min(wait * 2, RETRY_MAX_SECONDS)


def run(settings: Settings, instance: str = "0", bootstrap: str | None = None) -> None:
    """Run an indexer in the foreground; leaves with its exit code."""
    keys = settings.master_keys_file or settings.data_dir / "keys.json"
    inline = settings.master_keys.get_secret_value() if settings.master_keys else None
    try:
        sealer = AesGcmSealer(load_master_keys(keys, inline))
        dsn = database_url(settings)
    except (KeysError, PlaceUnknown) as error:
        raise SystemExit(f"keepsake {ROLE}: {error}") from error
    app = make_app(settings, INDEXER_GROUP, role=ROLE, instance=instance, bootstrap=bootstrap)

    @asynccontextmanager
    async def setup(app: StreamApp) -> AsyncIterator[None]:
        async with _wired(app, sealer, dsn):
            yield

    raise SystemExit(run_app(app, setup=setup))


@asynccontextmanager
async def _wired(app: StreamApp, sealer: AesGcmSealer, dsn: str) -> AsyncIterator[None]:
    """The two agents, with what they need, for as long as the app runs."""
    partitions = app.settings.partitions
    counters = PrometheusCounters(ROLE)
    view = TableView(KeyStore(), app.bootstrap, partitions)
    progress = EmbedProgress(app.bootstrap)
    embedder = OfflineEmbedder()
    cipher = MemoryCipher(sealer, PairCipher(sealer))
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(embedder.close)
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
            topic=KafkaEmbedded(producer, partitions),
            counters=counters,
        )
        index = Index(store, cipher, view, dead, counters, fault_point)
        embed = Embed(embedding, progress, dead, counters, fault_point)
        consume_batches(app, [CREATED], embed, concurrency=CONCURRENCY, limit=MAX_BATCH)
        consume_batches(app, [CREATED, EMBEDDED, CHANGED], index, concurrency=CONCURRENCY)
        app.first_positions = IndexPositions(app, index, store, progress)
        app.on_revoked.append(progress.commit)
        sweep = Sweep(
            store,
            embedding,
            lambda: {tp.partition for tp in app.deliveries.positions() if tp.topic == CREATED},
            lambda: app.lag() <= QUIET_LAG,
        )
        await embedder.warm_up()
        async with _running(view.run(), progress.run(), sweep.run()):
            # Until the view has the keys that exist, every record would wait for one.
            await view.wait_caught_up()
            yield


@asynccontextmanager
async def _running(*work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Run these beside, and cancel them at the end."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
