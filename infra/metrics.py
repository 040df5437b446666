"""Prometheus metrics: the counters that the steps report to."""

from prometheus_client import Counter, Gauge

from models.usage import UsageKey

EVENTS = Counter("keepsake_events", "What a role did, by event name.", ["role", "event"])

WITHOUT_VECTOR = Gauge(
    "keepsake_memories_without_vector", "Memories of this worker that the current model has not embedded."
)
MODEL_TOKENS = Counter(
    "keepsake_model_tokens",
    "Tokens that models read (input) and wrote (output), as their providers count them.",
    ["task", "provider", "model", "direction"],
)
MODEL_CALLS = Counter(
    "keepsake_model_calls", "Calls of models that were answered.", ["task", "provider", "model"]
)
LIMIT_REACHED = Gauge(
    "keepsake_daily_token_limit_reached", "1 while the daily limit of tokens holds this worker's calls back."
)


class PrometheusUsage:
    """Counts into `keepsake_model_tokens_total` and `keepsake_model_calls_total`."""

    def spent(self, key: UsageKey, input_tokens: int, output_tokens: int) -> None:
        labels = (key.task, key.provider, key.model)
        MODEL_CALLS.labels(*labels).inc()
        MODEL_TOKENS.labels(*labels, "input").inc(input_tokens)
        MODEL_TOKENS.labels(*labels, "output").inc(output_tokens)

    def held(self, reached: bool) -> None:
        LIMIT_REACHED.set(int(reached))


class PrometheusCounters:
    """Counts into `keepsake_events_total{role, event}`."""

    def __init__(self, role: str) -> None:
        self._role = role

    def count(self, name: str, by: int = 1) -> None:
        EVENTS.labels(self._role, name).inc(by)
