"""`keepsake run extractor`: turns windows into memories; keeps nothing but a journal of starts."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

from aiokafka import AIOKafkaProducer

from agents.codec import RequestCodec
from agents.extractor import Extractor
from infra.faults import fault_point
from infra.metrics import PrometheusCounters
from infra.offline_extractor import OfflineExtractor
from infra.sealing import KeysError
from infra.starts import StartsFile
from models.topics import EXTRACTED, REQUESTED
from streams.consume import consume
from streams.dead_letters import KafkaDeadLetters
from streams.faust_app import StreamApp, make_app, role_directory
from streams.run import run_app
from streams.sealer import open_sealer
from streams.settings import Settings
from streams.topics import EXTRACTOR_GROUP
from streams.user_topic import UserTopic

ROLE = "extractor"


def run(settings: Settings, instance: str = "0", bootstrap: str | None = None) -> None:
    """Run an extractor in the foreground; leaves with its exit code."""
    try:
        sealer = open_sealer(settings)
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
                    UserTopic(producer, EXTRACTED, settings.partitions),
                    KafkaDeadLetters(producer, sealer),
                    journal,
                    PrometheusCounters(ROLE),
                    deadline=settings.extraction_deadline_seconds,
                    fault=fault_point,
                )
                consume(app, [REQUESTED], extractor, concurrency=settings.extraction_concurrency)
                yield

    raise SystemExit(run_app(app, setup=setup))
