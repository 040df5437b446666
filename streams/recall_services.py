"""What the recall service is made of: one instance of each step, put together (the composition root of the role)."""

from datetime import datetime, timedelta
from importlib.metadata import version

from agents.codec import MemoryCipher
from agents.context import Context, ContextRules
from agents.opening import MemoryOpener
from agents.pairs import Pairs
from agents.ports import Embedder
from agents.recall import Recall, RecallRules
from agents.row_codec import RowCodec
from agents.talk import Talk
from infra.failure_reports import NoReports, SentryReports
from infra.guarded_embedder import GuardedEmbedder
from infra.metrics import PrometheusCounters
from infra.referring import referring_words
from infra.sealing import AesGcmSealer
from infra.token_estimator import E5Tokens
from models.profiles import Profiles
from models.ranking import RankingRules
from models.utterance import WideningRules
from sql.config_store import ConfigStore
from sql.pool import Pool
from sql.recall_store import RecallStore
from streams.assignments import default_assignments
from streams.publisher import Publisher
from streams.readiness import Probes
from streams.settings import Settings
from streams.view import TableView
from streams.web.app import Services
from streams.web.auth import TokenSource
from streams.web.messages import MessageReader

ROLE = "recall"


def recall_rules(settings: Settings) -> RecallRules:
    ranking = RankingRules(
        half_life=settings.decay_half_life,
        floor=settings.decay_floor,
        k=settings.rrf_k,
        slot_importance=settings.slot_importance,
        slots=settings.slots,
        bar=settings.latest_bar,
    )
    return RecallRules(
        widening=WideningRules(referring_words(), settings.short_utterance, settings.widened_query),
        profiles=Profiles(settings.memory_limit, ranking, settings.profiles, settings.character_profiles),
        candidates=settings.candidates,
        query_terms=settings.query_terms,
        deadline_seconds=settings.recall_deadline_seconds,
    )


def failure_reports(settings: Settings) -> SentryReports | NoReports:
    if settings.sentry_dsn is None:
        return NoReports()
    return SentryReports(settings.sentry_dsn.get_secret_value(), f"keepsake@{version('keepsake')}")


def make_services(
    settings: Settings,
    *,
    sealer: AesGcmSealer,
    embedder: Embedder,
    view: TableView,
    publisher: Publisher,
    pool: Pool,
    config: ConfigStore,
    probes: Probes,
    reports: SentryReports | NoReports,
) -> Services:
    """The services of the routes."""
    counters = PrometheusCounters(ROLE)
    codec = RowCodec(sealer)
    opener = MemoryOpener(MemoryCipher(sealer, codec.pairs), view)
    index = RecallStore(pool)
    talk = Talk(view, codec, counters, settings.threshold)
    recall = Recall(
        index=index,
        embedder=GuardedEmbedder(embedder, settings.breaker_failures, settings.breaker_seconds),
        opener=opener,
        sealer=sealer,
        talk=talk,
        counters=counters,
        reports=reports,
        rules=recall_rules(settings),
    )
    context = Context(
        recall=recall,
        index=index,
        opener=opener,
        talk=talk,
        view=view,
        estimator=E5Tokens(),
        clock=datetime.now,
        rules=ContextRules(
            zone=settings.zone,
            turns=settings.recent_turns,
            overdue=timedelta(days=settings.overdue_days),
            deadline_seconds=settings.recall_deadline_seconds,
        ),
    )
    return Services(
        recall=recall,
        context=context,
        pairs=Pairs(
            index=index,
            rows=view,
            codec=codec,
            opener=opener,
            counters=counters,
            threshold=settings.threshold,
        ),
        log=publisher,
        view=view,
        readiness=probes,
        tokens=TokenSource(
            settings.token.get_secret_value() if settings.token else None, settings.data_dir / "token"
        ),
        reader=MessageReader(settings.partitions, settings.zone),
        counters=counters,
        assignments=config,
        default_assignments=default_assignments(settings),
    )
