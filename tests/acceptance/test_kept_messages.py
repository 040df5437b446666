"""The ledger keeps messages until a memory that can be recalled holds them (I11), and no longer than it must."""

import asyncio

import pytest
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.structs import TopicPartition

from models.commands import CoveredTick, parse_tick
from models.rows import MessageKey, ThreadKey, WindowKey
from models.rules import Rules
from models.topics import TICK
from tests.acceptance.system import Said, System, conversation

TURNS = 5
RECENT = Rules().recent_windows


def say(system: System, windows: int, *, start: int = 0) -> list[Said]:
    """Talk that makes this many windows of ten messages, and each of them a memory; returns when all are settled."""
    said = system.publish(conversation("u", ["A"], windows * TURNS, start=start * TURNS))
    total = (start + windows) * TURNS * 2
    system.wait(lambda: system.counted() == total, "every message to be counted")
    system.wait(
        lambda: [one[3] for one in system.shape()["u", "A"]] == ["remembered"] * (start + windows),
        "every window to be remembered",
    )
    return said


def kept(system: System) -> dict[int, int]:
    """How many messages the changelog still has of each window, by number."""
    rows = system.rows()
    thread = rows.get(ThreadKey("u", "A"))
    assert thread is not None
    found = {}
    for number in range(1, thread.closed_windows + 1):
        window = rows.get(WindowKey("u", "A", thread.epoch, number))
        assert window is not None
        keys = (MessageKey("u", "A", thread.epoch, at) for at in range(window.first, window.last + 1))
        found[number] = sum(rows.get(key) is not None for key in keys)
    return found


def whole(first: int, last: int) -> dict[int, int]:
    """All windows up to `last`, those from `first` on with all of their messages, and the others with none."""
    return {number: TURNS * 2 * (number >= first) for number in range(1, last + 1)}


@pytest.mark.short
def test_messages_wait_for_an_indexer_that_is_stopped() -> None:
    with System(idle_close_seconds=0) as system:
        system.start("ledger", "extractor")
        say(system, 6)
        assert kept(system) == whole(1, 6)
        system.start("indexer")
        system.wait(lambda: kept(system) == whole(7 - RECENT, 6), "the first windows to be let go")

        # Down again, while talk goes on: nothing more is let go.
        assert system.stop("indexer") == 0
        say(system, 2, start=6)
        assert kept(system) == whole(7 - RECENT, 8)
        system.start("indexer")
        system.wait(lambda: kept(system) == whole(9 - RECENT, 8), "the next windows to be let go")


def test_reports_that_were_lost_are_made_up_for_when_talk_goes_on() -> None:
    with System(idle_close_seconds=0) as system:
        system.start("ledger", "extractor")
        say(system, 4)
        # The ledger is down for longer than ticks are kept: it never hears of these windows.
        assert system.stop("ledger") == 0
        system.start("indexer")
        system.wait(lambda: len(covered_numbers(system)) == 4, "all four windows to be reported")
        assert system.stop("indexer") == 0
        asyncio.run(expire(system, TICK))
        system.start("ledger", "indexer")
        assert kept(system) == whole(1, 4)
        say(system, 1, start=4)
        system.wait(lambda: kept(system) == whole(6 - RECENT, 5), "all but the recent windows to be let go")


def covered_numbers(system: System) -> set[int]:
    """The windows that the indexer has reported."""
    ticks = (parse_tick(value) for _, _, value in system.read(TICK))
    return {number for tick in ticks if isinstance(tick, CoveredTick) for number in tick.numbers}


async def expire(system: System, topic: str) -> None:
    """Delete all records of a topic, as its retention does in time."""
    admin = AIOKafkaAdminClient(bootstrap_servers=system.engines.bootstrap)
    await admin.start()
    try:
        places = [TopicPartition(topic, number) for number in range(system.partitions)]
        await admin.delete_records({place: RecordsToDelete(before_offset=-1) for place in places})
    finally:
        await admin.close()
    assert await asyncio.to_thread(system.read, topic) == []
