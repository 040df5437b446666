"""Provisioning and its refusals, publishing a file, dead letters and parked windows, on a broker of their own."""

import asyncio
import io
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime

import orjson
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from agents.dead_letters import dead_letter
from agents.ledger import ORIGIN_HEADER
from infra.sealing import ensure_master_keys
from models.candidates import ParkedWindow
from models.commands import Retry, parse_command
from models.dead import MAX_SEALED_BYTES, DeadLetter
from models.records import Record
from models.topics import CHAT, COMMAND, DEAD
from streams.operations import OperationError, dead_letters, original, retry_letters, retry_windows
from streams.partitioner import partition_for
from streams.provision import KafkaUnavailable, ProvisionError, check_topics, provision, provision_topics
from streams.publish_file import publish_file
from streams.sealer import open_sealer
from streams.settings import Settings
from streams.topics import TOPICS, TopicSpec
from tests.engines import LocalEngines

PARTITIONS = 4
told: list[str] = []


@pytest.fixture(scope="module")
def settings() -> Iterator[Settings]:
    with LocalEngines() as engines:
        ensure_master_keys(engines.data_dir / "keys.json")
        made = Settings(data_dir=engines.data_dir, partitions=PARTITIONS)
        asyncio.run(provision(made, told.append))
        yield made


def message(user: str, number: int, **more: object) -> dict[str, object]:
    return {
        "message_id": f"{user}-{number}",
        "user_id": user,
        "character_ids": ["mina"],
        "session_id": "s",
        "role": "user",
        "text": f"marked words {number}",
        **more,
    }


async def ends(settings: Settings, topic: str) -> dict[TopicPartition, int]:
    async with consumer(settings) as client:
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        return dict(await client.end_offsets(partitions))


async def read_from(settings: Settings, begins: dict[TopicPartition, int], count: int) -> list[Record]:
    """The next `count` records of some partitions."""
    found: list[Record] = []
    async with consumer(settings) as client:
        client.assign(list(begins))
        for partition, offset in begins.items():
            client.seek(partition, offset)
        async with asyncio.timeout(20):
            while len(found) < count:
                for records in (await client.getmany(timeout_ms=200)).values():
                    found += [
                        Record(r.topic, r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers))
                        for r in records
                    ]
    return found


@asynccontextmanager
async def consumer(settings: Settings):  # type: ignore[no-untyped-def]  # aiokafka has no types
    from streams.places import kafka_bootstrap

    client = AIOKafkaConsumer(bootstrap_servers=kafka_bootstrap(settings), auto_offset_reset="earliest")
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


async def produce(settings: Settings, topic: str, partition: int, key: bytes | None, value: bytes) -> int:
    """The record's offset."""
    from streams.places import kafka_bootstrap

    async with AIOKafkaProducer(
        bootstrap_servers=kafka_bootstrap(settings), max_request_size=1 << 20
    ) as client:
        done = await client.send_and_wait(topic, value, key=key, partition=partition)
        return int(done.offset)


# --- provisioning ---


async def test_provisioning_again_changes_nothing(settings: Settings) -> None:
    lines: list[str] = []
    await provision(settings, lines.append)
    assert lines == [f"topics: all {len(TOPICS)} are there", "database: up to date"]
    await check_topics(settings)


async def test_another_partition_count_is_refused(settings: Settings) -> None:
    other = settings.model_copy(update={"partitions": PARTITIONS + 1})
    for attempt in (check_topics(other), provision_topics(other, told.append)):
        with pytest.raises(ProvisionError, match=f"Set KEEPSAKE_PARTITIONS={PARTITIONS}") as refused:
            await attempt
        assert CHAT in str(refused.value)
    await check_topics(settings)


async def test_one_topic_of_another_count_is_named(settings: Settings) -> None:
    odd = TopicSpec("test-odd", {"cleanup.policy": "delete"})
    await provision_topics(settings.model_copy(update={"partitions": 2}), told.append, [odd])
    with pytest.raises(ProvisionError, match="Every topic must have as many") as refused:
        await check_topics(settings, [*TOPICS, odd])
    assert "2 partitions" in str(refused.value)
    assert CHAT not in str(refused.value)


@pytest.mark.parametrize(
    ("has", "must"),
    [
        ({"cleanup.policy": "delete"}, {"cleanup.policy": "compact"}),
        (
            {"cleanup.policy": "delete"},
            {"cleanup.policy": "delete", "message.timestamp.type": "LogAppendTime"},
        ),
        ({"cleanup.policy": "delete"}, {"cleanup.policy": "delete", "retention.ms": "-1"}),
    ],
)
async def test_another_configuration_is_refused(
    settings: Settings, has: dict[str, str], must: dict[str, str]
) -> None:
    name = f"test-{abs(hash(str(must)))}"
    await provision_topics(settings, told.append, [TopicSpec(name, has)])
    spec = TopicSpec(name, must, enforced=tuple(must))
    wrong = next(key for key in must if has.get(key) != must[key])
    with pytest.raises(ProvisionError, match=f"{wrong}=.* must have {must[wrong]}"):
        await check_topics(settings, [spec])
    # What is not enforced is the operator's.
    await check_topics(settings, [replace(spec, enforced=())])


async def test_missing_topics_are_named(settings: Settings) -> None:
    missing = TopicSpec("test-missing", {"cleanup.policy": "delete"})
    with pytest.raises(ProvisionError, match=r"test-missing.*keepsake provision"):
        await check_topics(settings, [*TOPICS, missing])
    await check_topics(settings)  # asking has not made it


async def test_two_provisionings_at_once_both_succeed(settings: Settings) -> None:
    new = [TopicSpec(f"test-race-{number}", {"cleanup.policy": "compact"}) for number in range(3)]
    await asyncio.gather(*(provision_topics(settings, told.append, new) for _ in range(2)))
    await check_topics(settings, new)


async def test_a_broker_that_is_away_is_explained() -> None:
    away = Settings(kafka_bootstrap="127.0.0.1:1")
    with pytest.raises(KafkaUnavailable, match="KEEPSAKE_KAFKA_BOOTSTRAP"):
        await check_topics(away)


@pytest.mark.parametrize("command", [("provision",), ("run", "ledger"), ("run", "recall")])
def test_commands_refuse_wrong_topics(settings: Settings, command: Sequence[str]) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KEEPSAKE_")}
    environment = {"KEEPSAKE_DATA_DIR": str(settings.data_dir), "KEEPSAKE_PARTITIONS": "5"}
    done = subprocess.run(
        [sys.executable, "-m", "streams.cli", *command],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert "KEEPSAKE_PARTITIONS=4" in done.stderr
    assert "Traceback" not in done.stderr


# --- publishing ---


async def test_a_file_is_published_line_by_line(settings: Settings) -> None:
    begins = await ends(settings, CHAT)
    users = ["지우", "ann", "ゆい"]
    good = [message(user, number) for number in range(700) for user in users]
    lines = [orjson.dumps(one) for one in good]
    lines[10:10] = [b"not json at all", b"", b'{"user_id": "\\ud800"}', b'"text"', b"\xff\xfe"]
    lines.append(orjson.dumps(message("ann", 1, role="narrator")))
    lines.append(orjson.dumps(message("ann", 2, text="x" * 65_537)))
    lines.append(orjson.dumps(message("ann", 3, metadata={"big": "y" * (1 << 20)})))
    reported: list[object] = []
    outcome = await publish_file(io.BytesIO(b"\r\n".join(lines)), settings, told.append, reported.append)
    assert outcome.published == len(good)
    assert reported == outcome.rejected
    assert [(one.line, one.reason) for one in outcome.rejected] == [
        (11, "invalid_json"),
        (13, "invalid_json"),
        (14, "not_an_object"),
        (15, "invalid_json"),
        (len(lines) - 2, "invalid_role"),
        (len(lines) - 1, "text_too_long"),
        (len(lines), "too_large"),
    ]
    assert "marked" not in str(outcome.rejected)
    records = await read_from(settings, begins, len(good))
    for user in users:
        own = [record for record in records if record.key == user.encode()]
        assert {record.partition for record in own} == {partition_for(user, PARTITIONS)}
        assert [orjson.loads(record.value or b"") for record in own] == [
            one for one in good if one["user_id"] == user
        ]


# --- dead letters ---


async def dead(settings: Settings, record: Record, reason: str) -> DeadLetter:
    """Put a record into the log where it stands, and its dead letter as the ledger would."""
    offset = await produce(settings, record.topic, record.partition, record.key, record.value or b"")
    record = replace(record, offset=offset)
    key, value = dead_letter(record, reason, "as a test says", open_sealer(settings))
    await produce(settings, DEAD, record.partition, key, value)
    return DeadLetter.model_validate_json(value)


async def test_a_dead_letter_goes_where_it_belongs_with_its_first_time(settings: Settings) -> None:
    target = partition_for("lost", PARTITIONS)
    wrong = (target + 1) % PARTITIONS
    value = orjson.dumps(message("lost", 1))
    letter = await dead(
        settings, Record(CHAT, wrong, 0, 1_700_000_000_123, b"lost", value), "wrong_partition"
    )
    assert letter in await dead_letters(settings)
    begins = await ends(settings, CHAT)
    assert [why for _, why in await retry_letters(settings, [letter])] == [None]
    (again,) = await read_from(settings, begins, 1)
    assert (again.partition, again.key, again.value) == (target, b"lost", value)
    assert dict(again.headers)[ORIGIN_HEADER] == b"1700000000123"
    # Refused once more, it keeps the time of the first attempt.
    second = replace(again, partition=wrong, timestamp=again.timestamp)
    letter = await dead(settings, second, "wrong_partition")
    begins = await ends(settings, CHAT)
    await retry_letters(settings, [letter])
    (third,) = await read_from(settings, begins, 1)
    assert dict(third.headers)[ORIGIN_HEADER] == b"1700000000123"


async def test_what_would_be_refused_again_stays(settings: Settings) -> None:
    record = Record(CHAT, 0, 0, 1, b"someone", orjson.dumps(message("lost", 2)))
    letters = [
        await dead(settings, record, "key_mismatch"),
        await dead(settings, replace(record, value=b"{"), "invalid_json"),
    ]
    begins = await ends(settings, CHAT)
    outcomes = await retry_letters(settings, letters)
    assert ["refused again" in (why or "") for _, why in outcomes] == [True, True]
    assert await ends(settings, CHAT) == begins


async def test_a_record_too_large_to_be_kept_is_read_where_it_stands(settings: Settings) -> None:
    value = orjson.dumps(message("lost", 3, metadata={"big": "z" * MAX_SEALED_BYTES}))
    letter = await dead(settings, Record(CHAT, 0, 0, 5, b"lost", value), "wrong_partition")
    assert letter.sealed is None
    assert (await original(settings, letter)).value == value
    gone = letter.model_copy(update={"offset": 1_000_000})
    with pytest.raises(OperationError, match="dropped"):
        await original(settings, gone)


async def test_a_letter_sealed_by_other_keys_is_explained(settings: Settings, tmp_path: object) -> None:
    letter = await dead(settings, Record(CHAT, 0, 0, 5, b"lost", b"{"), "invalid_json")
    other = settings.data_dir / "other-keys.json"
    ensure_master_keys(other)
    with pytest.raises(OperationError, match="master keys"):
        await original(settings.model_copy(update={"master_keys_file": other}), letter)


# --- parked windows ---


async def test_a_parked_window_is_asked_for_again(settings: Settings) -> None:
    window = ParkedWindow(
        user_id="지우",
        character_ids=("a", "b"),
        epoch=2,
        number=7,
        request_id="6f0c4f0e-5f0b-5c1c-9d59-0b7f6b1a52a4",
        first_position=1,
        last_position=10,
        reason="truncated",
        attempts=3,
        closed_at=datetime.now(UTC),
    )
    begins = await ends(settings, COMMAND)
    await retry_windows(settings, [window])
    (record,) = await read_from(settings, begins, 1)
    assert (record.partition, record.key) == (partition_for("지우", PARTITIONS), "지우".encode())
    command = parse_command(record.value)
    assert isinstance(command, Retry)
    assert (command.user_id, command.character_ids, command.epoch, command.number) == (
        "지우",
        ("a", "b"),
        2,
        7,
    )
