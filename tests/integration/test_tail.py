"""`keepsake tail` on a real broker: what it opens, what it passes over, where it begins."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest
from aiokafka import AIOKafkaProducer

from infra.sealing import MasterKeys
from models.topics import CREATED
from streams import tail
from streams.errors import Explained
from streams.provision import provision_topics
from streams.settings import Settings
from streams.tail import OpenedMemory, opened_memories
from tests.engines import LocalEngines
from tests.integration.brokers import delete_topic
from tests.integration.indexer_harness import PARTITIONS, FakeLedger

SECONDS = 60


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalEngines]:
    with LocalEngines(postgres=False) as engines:
        yield engines


@pytest.fixture
async def settings(broker: LocalEngines, tmp_path: Path) -> AsyncIterator[Settings]:
    """A deployment with topics of its own: those of the test before are gone."""
    made = Settings(data_dir=tmp_path, kafka_bootstrap=broker.bootstrap, partitions=PARTITIONS)
    await provision_topics(made, lambda _: None)
    yield made
    await delete_topic(broker.bootstrap, CREATED)


@pytest.fixture
async def ledger(settings: Settings) -> AsyncIterator[FakeLedger]:
    async with AIOKafkaProducer(bootstrap_servers=settings.kafka_bootstrap, acks="all") as producer:
        yield FakeLedger(producer, settings.data_dir)


async def first(settings: Settings, count: int) -> list[OpenedMemory]:
    """The first memories that are shown, from the beginning of the log."""
    shown: list[OpenedMemory] = []
    async with asyncio.timeout(SECONDS), aclosing(opened_memories(settings, from_beginning=True)) as memories:
        async for memory in memories:
            shown.append(memory)
            if len(shown) == count:
                break
    return shown


def user() -> str:
    return f"user-{uuid4().hex}"


async def test_memories_are_opened_and_what_cannot_be_is_passed_over(
    settings: Settings, ledger: FakeLedger, caplog: pytest.LogCaptureFixture
) -> None:
    one = user()
    await ledger.publish_key(one, "mina")
    await ledger.publish_key(one, "gone", epoch=2)
    await ledger.publish_memory(9, one, "The user likes coffee.", character="gone")
    await ledger.publish_raw(CREATED, one, b"garbage", b"{marked words")
    memory = await ledger.publish_memory(1, one, "The user likes tea.")
    await ledger.publish_memory(2, one, "The user has a cat.")
    tea, cat = await first(settings, 2)
    line = orjson.loads(tea.to_json())
    assert line["memory_id"] == memory
    assert line["summary"] == "The user likes tea."
    assert line["characters"] == [{"character_id": "mina", "seq": 1, "epoch": 1}]
    assert "payload" not in line
    assert cat.to_text() == f"2026-01-01  {one} with mina #2  window, importance 5: The user has a cat."
    assert "cannot be read: 1 fields are wrong" in caplog.text
    assert "marked" not in caplog.text


async def test_only_new_ones_are_shown_and_a_key_that_comes_late_is_waited_for(
    settings: Settings, ledger: FakeLedger
) -> None:
    one, late = user(), user()
    await ledger.publish_key(one, "mina")
    await ledger.publish_memory(1, one, "An old memory.")
    lines: asyncio.Queue[str] = asyncio.Queue()
    following = asyncio.create_task(
        tail.tail(settings, from_beginning=False, as_json=True, write=lines.put_nowait)
    )
    try:
        async with asyncio.timeout(SECONDS):
            # It does not tell when it has found the end of the log, so there is a new one until it shows one.
            number = 2
            while lines.empty():
                await ledger.publish_memory(number, one, "A new memory.")
                number += 1
                await asyncio.sleep(0.1)
            await ledger.publish_memory(1, late, "A memory before its key.")
            await ledger.publish_key(late, "mina")
            seen: list[dict[str, Any]] = []
            while not seen or seen[-1]["user_id"] != late:
                seen.append(orjson.loads(await lines.get()))
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    assert {memory["summary"] for memory in seen[:-1]} == {"A new memory."}
    assert seen[-1]["summary"] == "A memory before its key."


async def test_a_memory_whose_key_never_comes_is_left_out(
    settings: Settings, ledger: FakeLedger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tail, "KEY_SECONDS", 0.2)
    one = user()
    unknown = await ledger.publish_memory(1, one, "Without a key.", character="nobody")
    await ledger.publish_key(one, "mina")
    await ledger.publish_memory(2, one, "With a key.")
    (shown,) = await first(settings, 1)
    assert shown.content.summary == "With a key."
    assert f"Memory {unknown} cannot be opened: its pair's key is not known" in caplog.text


async def test_other_master_keys_open_nothing(
    settings: Settings, ledger: FakeLedger, caplog: pytest.LogCaptureFixture
) -> None:
    one = user()
    await ledger.publish_key(one, "mina")
    memory = await ledger.publish_memory(1, one, "Not for others.")
    (settings.data_dir / "keys.json").write_text(MasterKeys.generate().to_json())
    lines: list[str] = []
    following = asyncio.create_task(
        tail.tail(settings, from_beginning=True, as_json=True, write=lines.append)
    )
    try:
        async with asyncio.timeout(SECONDS):
            while f"Memory {memory} cannot be opened with these master keys" not in caplog.text:  # noqa: ASYNC110  # the log has no event
                await asyncio.sleep(0.05)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    assert lines == []


async def test_without_a_broker_it_says_so(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    (settings.data_dir / "keys.json").write_text(MasterKeys.generate().to_json())
    away = settings.model_copy(update={"kafka_bootstrap": "127.0.0.1:9"})
    with pytest.raises(Explained, match=r"Kafka at 127\.0\.0\.1:9 does not answer"):
        await anext(opened_memories(away, from_beginning=True))
