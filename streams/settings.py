"""Every setting: its environment variable, default and meaning. `keepsake settings` prints them."""

import os
from functools import cached_property
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from models.assignments import ModelRef
from models.profiles import Profile


def default_data_dir() -> Path:
    """Where local state lives: under /var/lib for root (PostgreSQL's own user must get in), else at home."""
    if os.geteuid() == 0:
        return Path("/var/lib/keepsake")
    return Path.home() / ".local" / "share" / "keepsake"


class Settings(BaseSettings):
    """Settings from the environment: `KEEPSAKE_` and the field's name in capitals."""

    model_config = SettingsConfigDict(env_prefix="KEEPSAKE_", extra="ignore", frozen=False)

    # Places
    data_dir: Path = Field(
        default_factory=default_data_dir, description="local engines, role state, keys, token"
    )
    kafka_bootstrap: str | None = Field(
        None, description="host:port,…; unset: the local broker of `keepsake engines up`"
    )
    database_url: SecretStr | None = Field(
        None, description="postgresql://…; unset: the local PostgreSQL of `keepsake engines up`"
    )
    http_host: str = Field("127.0.0.1", description="address of the recall service")
    http_port: int = Field(8377, description="port of the recall service; 0 takes a free one")
    metrics_port: int = Field(0, description="port for Prometheus metrics of a worker role; 0 is off")
    partitions: int = Field(12, ge=1, le=1000, description="partitions of every topic; fixed for ever")
    replication_factor: int = Field(1, ge=1, description="replication factor of topics that are made")
    timezone: str = Field("UTC", description="zone of times without an offset, and of days")

    # Deciding what to keep
    threshold: int = Field(5, ge=1, description="user messages that make a window due (R1)")
    answer_wait_seconds: float = Field(
        60, gt=0, description="how long a due window waits for its answer (R3)"
    )
    idle_close_seconds: float = Field(
        1800, ge=0, description="a thread idle for so long closes its window; 0 is off (R11)"
    )
    tick_margin_seconds: float = Field(5, ge=0, description="how far past a limit its tick is sent (I3)")
    scan_seconds: float = Field(1, gt=0, description="how often the ledger looks for what is due")
    # Its request, in base64 and with the relationship states of 32 characters, must stay below Kafka's 1 MB.
    window_bytes: int = Field(262_144, ge=1024, le=393_216, description="largest window, encoded (I3)")
    dedup_ring: int = Field(
        128, ge=1, le=4096, description="message ids remembered per thread; an older duplicate counts again"
    )
    recent_windows: int = Field(
        2, ge=0, description="settled windows whose messages are still kept, for recent talk"
    )

    # Extraction
    extraction_deadline_seconds: float = Field(45, gt=0, description="deadline of one attempt (R4)")
    extraction_attempts: int = Field(3, ge=1, description="attempts before a window is parked (R10)")
    extraction_retry_seconds: float = Field(
        10, ge=0, description="wait before the second attempt; doubles with each (R10)"
    )
    resend_seconds: float = Field(
        300, gt=0, description="an unanswered request is sent again after this; doubles with each (I4)"
    )
    resend_max_seconds: float = Field(86_400, gt=0, description="longest wait before a request is sent again")
    extraction_concurrency: int = Field(8, ge=1, description="windows that one extractor works on at once")

    # Ledger
    batch_events: int = Field(500, ge=1, description="most events in one transaction (design 4)")
    batch_milliseconds: int = Field(50, ge=1, description="longest wait for a batch to fill (design 4)")
    transaction_timeout_seconds: float = Field(
        15, gt=0, description="the broker aborts after this (design 4)"
    )
    session_timeout_seconds: float = Field(
        10, gt=0, description="a silent worker loses its partitions after this"
    )
    state_max_age_days: float = Field(
        30, gt=0, description="local state unused for longer is discarded and rebuilt (design 2)"
    )

    # Embedding and recall
    embedding_model: str | None = Field(
        None,
        description="provider:model of embeddings, for the indexer and recall alike: gemini:…, openai:… or offline:…; "
        "unset: gemini:gemini-embedding-2-preview with GEMINI_API_KEY, else offline (R14)",
    )
    embedding_retry_seconds: tuple[float, ...] = Field(
        (2, 4, 8),
        description="waits before a failed embedding is tried again, as JSON; then a sweep does it (R14)",
    )
    embedding_sweep_seconds: float = Field(
        30,
        gt=0,
        description="how often memories without a vector are looked for, and how old these must be (R14)",
    )
    candidates: int = Field(20, ge=1, description="candidates of each search path (R22)")
    memory_limit: int = Field(12, ge=1, description="most memories of one recall (R26)")
    decay_half_life: float = Field(40, gt=0, description="half-life of decay, in seq (R23)")
    decay_floor: float = Field(0.3, ge=0, le=1, description="lowest decay factor (R23)")
    rrf_k: int = Field(60, ge=1, description="k of reciprocal rank fusion (R25)")
    slot_importance: int = Field(6, ge=1, le=10, description="importance that qualifies for a slot (R26)")
    slots: int = Field(2, ge=0, description="reserved importance slots (R26)")
    latest_bar: float = Field(
        0.65,
        ge=0,
        le=1,
        description="where the subject of a query ends in mode latest: 0 weakest, 1 best (R20)",
    )
    query_terms: int = Field(20, ge=1, description="most terms of a keyword query (R24)")
    short_utterance: int = Field(20, ge=0, description="code points below which a query may be widened (R27)")
    widened_query: int = Field(120, ge=1, description="most code points of a widened query (R27)")
    recall_deadline_seconds: float = Field(0.3, gt=0, description="deadline of one recall (R28)")
    breaker_failures: int = Field(
        5, ge=1, description="query embeddings that fail in a row before none is tried for a while (R28)"
    )
    breaker_seconds: float = Field(10, gt=0, description="how long none is tried then (R28)")
    profiles: dict[str, Profile] = Field(
        {"companion": Profile(), "coach": Profile(limit=20)},
        description="ranking profiles by name, as JSON: limit, half_life, floor, slots, slot_importance (R26)",
    )
    character_profiles: dict[str, str] = Field(
        {}, description='which profile a character has, as JSON: {"coach-kim": "coach"}'
    )
    overdue_days: int = Field(
        7, ge=0, description="for how many days after its day a plan is told as overdue (R32)"
    )
    recent_turns: int = Field(6, ge=0, description="turns of recent talk in a context at least (R32)")

    # Models
    extraction_model: str | None = Field(
        None,
        description="provider:model of extraction where `keepsake tasks` has set none; unset: "
        "gemini:gemini-2.5-flash with GEMINI_API_KEY, else offline:keepsake-rules (R9)",
    )
    assignments_seconds: float = Field(
        20, gt=0, le=55, description="how often the extractor looks which model is assigned (R9)"
    )
    daily_token_limit: int = Field(
        0, ge=0, description="most tokens a day (UTC) of all workers; then windows wait; 0 is off"
    )

    # Providers of models
    gemini_api_key: SecretStr | None = Field(
        None, validation_alias="GEMINI_API_KEY", description="key of Gemini"
    )
    gemini_base_url: str | None = Field(None, description="address of Gemini; unset: Google's own")
    openai_api_key: SecretStr | None = Field(
        None, description="key of OpenAI, or of the server at KEEPSAKE_OPENAI_BASE_URL"
    )
    openai_base_url: str | None = Field(
        None, description="http://host:port/v1 of a server that speaks like OpenAI's; unset: OpenAI's own"
    )
    anthropic_api_key: SecretStr | None = Field(None, description="key of Anthropic")
    anthropic_base_url: str | None = Field(None, description="address of Anthropic; unset: its own")
    bedrock_region: str | None = Field(
        None, description="AWS region of Bedrock; unset: as AWS tools find it, credentials too"
    )
    bedrock_base_url: str | None = Field(None, description="address of Bedrock; unset: that of the region")
    langfuse_public_key: str | None = Field(
        None,
        validation_alias="LANGFUSE_PUBLIC_KEY",
        description="with the secret key: prompts from Langfuse (R9)",
    )
    langfuse_secret_key: SecretStr | None = Field(
        None, validation_alias="LANGFUSE_SECRET_KEY", description="secret key of the Langfuse project"
    )
    langfuse_host: str | None = Field(
        None, validation_alias="LANGFUSE_HOST", description="address of Langfuse; unset: its own cloud"
    )
    langfuse_label: str = Field("production", description="which version of a Langfuse prompt is used")
    model_timeout_seconds: float = Field(
        30, gt=0, description="time limit of one call of a model or embedder (R4)"
    )
    model_max_output_tokens: int = Field(
        8192, ge=1, description="most tokens of one answer, those of its thoughts included"
    )

    # Secrets
    master_keys_file: Path | None = Field(
        None, description="JSON file of master keys; unset: keys.json in the data directory"
    )
    master_keys: SecretStr | None = Field(None, description="the same JSON, in the environment itself")
    token: SecretStr | None = Field(
        None, description="bearer token; unset: the file `token` in the data directory"
    )
    sentry_dsn: SecretStr | None = Field(
        None,
        validation_alias="SENTRY_DSN",
        description="where degraded recalls are reported: a DSN of Sentry or GlitchTip (R28)",
    )
    log_level: str = Field("INFO", description="DEBUG, INFO, WARNING or ERROR")

    @field_validator("embedding_model")
    @classmethod
    def _known_embedder(cls, value: str | None) -> str | None:
        provider, colon, model = (value or "").partition(":")
        if value and not (provider in ("gemini", "openai", "offline") and colon and model):
            raise ValueError("write provider:model with a provider of gemini, openai, offline")
        return value or None

    @field_validator("sentry_dsn")
    @classmethod
    def _known_dsn(cls, value: SecretStr | None) -> SecretStr | None:
        from sentry_sdk.utils import BadDsn, Dsn

        if value is None or not value.get_secret_value():
            return None
        try:
            Dsn(value.get_secret_value())
        except (BadDsn, ValueError) as error:
            raise ValueError("must be a DSN like https://key@host/1") from error
        return value

    @field_validator("extraction_model")
    @classmethod
    def _known_model(cls, value: str | None) -> str | None:
        return str(ModelRef.parse(value)) if value else None

    @model_validator(mode="after")
    def _known_profiles(self) -> "Settings":
        missing = sorted(set(self.character_profiles.values()) - set(self.profiles))
        if missing:
            raise ValueError(
                f"KEEPSAKE_CHARACTER_PROFILES names {', '.join(missing)}: add it to KEEPSAKE_PROFILES"
            )
        return self

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ValueError(f"unknown time zone {value!r}: use an IANA name like Asia/Seoul") from error
        return value

    @cached_property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.timezone)

    @property
    def keys_path(self) -> Path:
        """The file of master keys, where they are not given in the environment."""
        return self.master_keys_file or self.data_dir / "keys.json"
