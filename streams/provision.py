"""Topics and migrations: makes what is missing, refuses what is there and wrong, changes nothing that exists.

A topic with another partition count would split users over two partitions, and one with another clean-up
policy would lose or keep what it must not: so both are checked here, and again by every role when it starts.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, for_code

from streams.errors import Explained
from streams.places import database_url, kafka_bootstrap
from streams.settings import Settings
from streams.topics import TOPICS, TopicSpec

REQUEST_MS = 15_000
APPEAR_SECONDS = 20.0
POLL_SECONDS = 0.1
ALREADY_EXISTS = 36


class ProvisionError(Explained):
    """Topics or database are not as they must be; the message says what is wrong and what to do."""


class KafkaUnavailable(ProvisionError):
    """The broker cannot be asked."""


@dataclass(slots=True)
class Findings:
    """What the broker has: topics that are missing, and what is wrong with those that are there."""

    missing: list[TopicSpec] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


async def provision(settings: Settings, progress: Callable[[str], None]) -> None:
    """Make missing topics and apply missing migrations. ProvisionError: something that exists is wrong."""
    await provision_topics(settings, progress)
    await provision_database(settings, progress)


async def provision_topics(
    settings: Settings, progress: Callable[[str], None], topics: Sequence[TopicSpec] = TOPICS
) -> None:
    """Make the topics that are missing, unless one that exists is wrong."""
    async with _admin(kafka_bootstrap(settings)) as admin:
        found = await _inspect(admin, settings.partitions, topics)
        _refuse_wrong(found)
        if not found.missing:
            progress(f"topics: all {len(topics)} are there")
            return
        await _create(admin, settings, found.missing)
        await _wait_for(admin, settings.partitions, topics)
        progress(f"topics: made {len(found.missing)} of {len(topics)}, {settings.partitions} partitions each")


async def provision_database(settings: Settings, progress: Callable[[str], None]) -> None:
    """Apply the migrations that are missing."""
    from models.store_errors import StoreUnavailable
    from sql.migrate import MigrationError, migrate

    try:
        applied = await migrate(database_url(settings))
    except MigrationError as error:
        raise ProvisionError(str(error)) from error
    except StoreUnavailable as error:
        raise ProvisionError(
            f"PostgreSQL cannot be reached ({error}): check that it runs and what KEEPSAKE_DATABASE_URL says"
        ) from error
    progress(f"database: applied {', '.join(applied)}" if applied else "database: up to date")


async def check_topics(settings: Settings, topics: Sequence[TopicSpec] = TOPICS) -> None:
    """Raise ProvisionError unless every topic is there and right; KafkaUnavailable if that is not known."""
    async with _admin(kafka_bootstrap(settings)) as admin:
        found = await _inspect(admin, settings.partitions, topics)
    _refuse_wrong(found)
    if found.missing:
        names = ", ".join(spec.name for spec in found.missing)
        raise ProvisionError(f"topics are missing: {names}. Run `keepsake provision`")


def _refuse_wrong(found: Findings) -> None:
    if found.wrong:
        raise ProvisionError(
            "topics are not as they must be:\n" + "\n".join(f"- {text}" for text in found.wrong)
        )


@asynccontextmanager
async def _admin(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=REQUEST_MS)
    try:
        await admin.start()
        yield admin
    except (KafkaError, OSError, TimeoutError) as error:
        raise KafkaUnavailable(
            f"Kafka at {bootstrap} does not answer as it should ({type(error).__name__}): "
            "check that it runs and what KEEPSAKE_KAFKA_BOOTSTRAP says"
        ) from error
    finally:
        await admin.close()


async def _inspect(admin: AIOKafkaAdminClient, partitions: int, topics: Sequence[TopicSpec]) -> Findings:
    found = Findings()
    # All topics, not these by name: some brokers make a missing topic when they are asked for it by name.
    counts = {topic["topic"]: len(topic["partitions"]) for topic in await admin.describe_topics()}
    found.missing = [spec for spec in topics if not counts.get(spec.name)]
    existing = [spec for spec in topics if counts.get(spec.name)]
    configs = await _configs(admin, [spec.name for spec in existing])
    found.wrong += _wrong_counts({spec.name: counts[spec.name] for spec in existing}, partitions)
    for spec in existing:
        for name in spec.enforced:
            actual = configs.get(spec.name, {}).get(name)
            if actual != spec.config[name]:
                found.wrong.append(_wrong_config(spec.name, name, actual, spec.config[name]))
    return found


async def _configs(admin: AIOKafkaAdminClient, names: Sequence[str]) -> dict[str, dict[str, str]]:
    if not names:
        return {}
    configs: dict[str, dict[str, str]] = {}
    for answer in await admin.describe_configs(
        [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    ):
        for code, _message, _type, name, entries in (resource[:5] for resource in answer.resources):
            if code:
                raise for_code(code)()
            configs[name] = {entry[0]: entry[1] for entry in entries}
    return configs


def _wrong_counts(counts: Mapping[str, int], wanted: int) -> list[str]:
    by_count: dict[int, list[str]] = defaultdict(list)
    for name, count in counts.items():
        by_count[count].append(name)
    wrong = []
    for count, names in sorted(by_count.items()):
        if count == wanted:
            continue
        told = f"{count} partitions, but KEEPSAKE_PARTITIONS is {wanted}: {', '.join(names)}. "
        if len(by_count) == 1:
            told += f"Set KEEPSAKE_PARTITIONS={count}: the number is fixed once the topics are made"
        else:
            told += (
                "Every topic must have as many. Move what these hold into new topics, or delete them if "
                "they hold nothing that is needed; then run `keepsake provision`"
            )
        wrong.append(told)
    return wrong


def _wrong_config(topic: str, name: str, actual: str | None, wanted: str) -> str:
    return (
        f"{topic} has {name}={actual}, and must have {wanted}. Set it: kafka-configs.sh --bootstrap-server … "
        f"--alter --entity-type topics --entity-name {topic} --add-config {name}={wanted}"
    )


async def _create(admin: AIOKafkaAdminClient, settings: Settings, missing: Sequence[TopicSpec]) -> None:
    answer = await admin.create_topics(
        [
            NewTopic(
                spec.name,
                num_partitions=settings.partitions,
                replication_factor=settings.replication_factor,
                topic_configs=spec.config,
            )
            for spec in missing
        ]
    )
    for name, code, *message in answer.topic_errors:
        # Another provisioning may have made it meanwhile: it is checked below like any other.
        if code not in (0, ALREADY_EXISTS):
            told = message[0] if message and message[0] else for_code(code).__name__
            raise ProvisionError(
                f"the broker does not make the topic {name}: {told}. It was asked for "
                f"{settings.partitions} partitions (KEEPSAKE_PARTITIONS) and "
                f"{settings.replication_factor} replicas (KEEPSAKE_REPLICATION_FACTOR)"
            )


async def _wait_for(admin: AIOKafkaAdminClient, partitions: int, topics: Sequence[TopicSpec]) -> None:
    """Until every broker's answer can be expected to name the new topics."""
    try:
        async with asyncio.timeout(APPEAR_SECONDS):
            while True:
                found = await _inspect(admin, partitions, topics)
                _refuse_wrong(found)
                if not found.missing:
                    return
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        names = ", ".join(spec.name for spec in found.missing)
        raise ProvisionError(
            f"the broker took the new topics but does not list {names} after {APPEAR_SECONDS:.0f} s: "
            "look at its log"
        ) from None
