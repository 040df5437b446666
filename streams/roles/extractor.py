"""`keepsake run extractor`: turns windows into memories; keeps nothing but a journal of starts."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from agents.codec import RequestCodec
from agents.extractor import Extractor
from infra.faults import fault_point
from infra.metrics import PrometheusCounters
from infra.offline_extractor import OfflineExtractor
from infra.sealing import AesGcmSealer, KeysError, load_master_keys
from infra.starts import StartsFile
from models.topics import EXTRACTED, REQUESTED
from streams.consume import consume
from streams.dead_letters import KafkaDeadLetters
from streams.faust_app import StreamApp, make_app, role_directory
from streams.partitioner import partition_for
from streams.run import run_app
from streams.settings import Settings
from streams.topics import EXTRACTOR_GROUP

log = logging.getLogger(__name__)

ROLE = "extractor"
RETRY_SECONDS, RETRY_MAX_SECONDS = 0.5, 15.0


class KafkaResults:
    """Sends to `memory.extracted`, and goes on trying while the broker is away.

    A result that was sent twice does no harm: the first for an open request counts (I2).
    """

    def __init__(self, producer: AIOKafkaProducer, partitions: int) -> None:
        self._producer = producer
        self._partitions = partitions

    async def send(self, user_id: str, key: bytes, value: bytes) -> None:
        partition = partition_for(user_id, self._partitions)
        wait = RETRY_SECONDS
        while True:
            try:
                await self._producer.send_and_wait(EXTRACTED, value, key=key, partition=partition)
                return
            except KafkaError as error:
                if not error.retriable:
                    raise
                log.warning("cannot send a result (%s): trying again in %s s", type(error).__name__, wait)
            await asyncio.sleep(wait)
            wait = min(wait * 2, RETRY_MAX_SECONDS)


def run(settings: Settings, instance: str = "0", bootstrap: str | None = None) -> None:
    """Run an extractor in the foreground; leaves with its exit code."""
    keys = settings.master_keys_file or settings.data_dir / "keys.json"
    inline = settings.master_keys.get_secret_value() if settings.master_keys else None
    try:
        sealer = AesGcmSealer(load_master_keys(keys, inline))
    except KeysError as error:
        raise SystemExit(f"keepsake {ROLE}: {error}") from error
    app = make_app(settings, EXTRACTOR_GROUP, role=ROLE, instance=instance, bootstrap=bootstrap)

    @asynccontextmanager
    async def setup(app: StreamApp) -> AsyncIterator[None]:
        journal = StartsFile(role_directory(settings, ROLE, instance) / "starts.sqlite")
        with closing(journal):
            async with AIOKafkaProducer(
                bootstrap_servers=app.bootstrap, acks="all", enable_idempotence=True
            ) as producer:
                extractor = Extractor(
                    RequestCodec(sealer),
                    OfflineExtractor(),
                    KafkaResults(producer, settings.partitions),
                    KafkaDeadLetters(producer, sealer),
                    journal,
                    PrometheusCounters(ROLE),
                    deadline=settings.extraction_deadline_seconds,
                    fault=fault_point,
                )
                consume(app, [REQUESTED], extractor, concurrency=settings.extraction_concurrency)
                yield

    raise SystemExit(run_app(app, setup=setup))
