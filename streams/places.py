"""Where Kafka, PostgreSQL and the recall service are: as set, or as they run in the data directory."""

import orjson
from pydantic import SecretStr

from streams.errors import Explained
from streams.heartbeat import Heartbeat
from streams.settings import Settings


class PlaceUnknown(Explained):
    """Neither a setting nor a local engine says where something is; the message says what to do."""


def kafka_bootstrap(settings: Settings) -> str:
    """host:port,… of the brokers. PlaceUnknown: none is set and none runs here."""
    if settings.kafka_bootstrap:
        return settings.kafka_bootstrap
    from infra.engines import read_engines

    local = read_engines(settings.data_dir).kafka
    if local is None:
        raise PlaceUnknown(
            f"no Kafka broker is known: none runs in {settings.data_dir}; start all with `keepsake up`, "
            "the engines alone with `keepsake engines up`, or set KEEPSAKE_KAFKA_BOOTSTRAP"
        )
    return local.bootstrap


def database_url(settings: Settings) -> str:
    """URL of the database, its password included. PlaceUnknown: none is set and none runs here."""
    if settings.database_url:
        return settings.database_url.get_secret_value()
    from infra.engines import read_engines

    local = read_engines(settings.data_dir).postgres
    if local is None:
        raise PlaceUnknown(
            f"no PostgreSQL is known: none runs in {settings.data_dir}; start all with `keepsake up`, "
            "the engines alone with `keepsake engines up`, or set KEEPSAKE_DATABASE_URL"
        )
    return local.url


def with_places(settings: Settings) -> Settings:
    """A copy of the settings in which both places are set."""
    return settings.model_copy(
        update={
            "kafka_bootstrap": kafka_bootstrap(settings),
            "database_url": SecretStr(database_url(settings)),
        }
    )


def recall_url(settings: Settings) -> str | None:
    """Base URL of the recall service: where that of this data directory says it listens, else as set.

    None: it takes a free port and has not said which.
    """
    try:
        told = orjson.loads(Heartbeat(settings.data_dir, "recall").path.read_bytes())["detail"]
    except (OSError, ValueError, KeyError, TypeError):
        told = None
    if isinstance(told, str) and told.startswith("http"):
        return told.rstrip("/")
    return f"http://{settings.http_host}:{settings.http_port}" if settings.http_port else None
