"""`keepsake run ledger`: counts messages, cuts windows, asks for memories and records them."""

import logging

from agents.ledger import LedgerStep
from infra.metrics import PrometheusCounters
from infra.sealing import KeysError
from models.rules import Rules
from streams.faust_app import make_app
from streams.ledger_loop import Ledger
from streams.partitioner import partition_for
from streams.recovery import FencedTables
from streams.run import run_app
from streams.sealer import open_sealer
from streams.settings import Settings
from streams.topics import LEDGER_GROUP


def rules_of(settings: Settings) -> Rules:
    """The fold's numbers, in its units."""
    return Rules(
        threshold=settings.threshold,
        answer_wait_ms=round(settings.answer_wait_seconds * 1000),
        idle_close_ms=round(settings.idle_close_seconds * 1000) or None,
        window_bytes=settings.window_bytes,
        attempts=settings.extraction_attempts,
        retry_ms=round(settings.extraction_retry_seconds * 1000),
        resend_ms=round(settings.resend_seconds * 1000),
        resend_max_ms=round(settings.resend_max_seconds * 1000),
        ring=settings.dedup_ring,
        recent_windows=settings.recent_windows,
    )


def step_of(settings: Settings) -> LedgerStep:
    """The ledger's step with this deployment's keys and rules."""
    return LedgerStep(
        rules_of(settings),
        settings.zone,
        open_sealer(settings),
        lambda user_id: partition_for(user_id, settings.partitions),
        PrometheusCounters("ledger"),
        round(settings.tick_margin_seconds * 1000),
    )


def run(settings: Settings, instance: str = "0", bootstrap: str | None = None) -> None:
    """Run the ledger in the foreground; leaves with its exit code."""
    # The broker answers a transaction's first write with "not enough replicas" while it still verifies the
    # transaction, and the client tries again: a warning each, and nothing is wrong.
    logging.getLogger("aiokafka.producer.sender").setLevel(logging.ERROR)
    try:
        step = step_of(settings)
    except KeysError as error:
        raise SystemExit(f"keepsake ledger: {error}") from error
    app = make_app(
        settings,
        LEDGER_GROUP,
        role="ledger",
        instance=instance,
        bootstrap=bootstrap,
        TableManager=FencedTables,
    )
    ledger = Ledger(app, step)
    raise SystemExit(run_app(app, setup=ledger.setup, healthy=ledger.healthy))
