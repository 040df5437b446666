"""Prometheus metrics: the counters that the steps report to."""

from prometheus_client import Counter, Gauge

EVENTS = Counter("keepsake_events", "What a role did, by event name.", ["role", "event"])

WITHOUT_VECTOR = Gauge(
    "keepsake_memories_without_vector", "Memories of this worker that the current model has not embedded."
)


class PrometheusCounters:
    """Counts into `keepsake_events_total{role, event}`."""

    def __init__(self, role: str) -> None:
        self._role = role

    def count(self, name: str, by: int = 1) -> None:
        EVENTS.labels(self._role, name).inc(by)
