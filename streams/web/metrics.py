"""Metrics of the recall service, beside the counters of the steps (infra/metrics.py)."""

from prometheus_client import Gauge, Histogram

_BUCKETS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)

RECALL_SECONDS = Histogram(
    "keepsake_recall_seconds",
    "Time of a recall: query embedding, search, ranking and opening.",
    buckets=_BUCKETS,
)
CONTEXT_SECONDS = Histogram(
    "keepsake_context_seconds", "Time of a context: a recall, and composing the prompt.", buckets=_BUCKETS
)
VIEW_LAG = Gauge(
    "keepsake_view_lag_records",
    "Committed records of the changelog that the view has not applied; -1 unknown.",
)
