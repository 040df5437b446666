"""What calls cost is counted without loss, and the day's limit holds them back."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from uuid import UUID

import pytest

from agents.ports import Completion
from agents.usage import MAX_TOKENS, Usage
from models.memory import Provenance
from models.store_errors import StoreUnavailable
from models.usage import UsageKey, UsageTotals

DAY = date(2026, 3, 1)
WORKER = UUID(int=1)


def made_by(model: str = "a") -> Provenance:
    return Provenance(
        task="extraction", prompt="p", prompt_version="1", provider="openai", model=model, offline=False
    )


def key(model: str = "a", day: date = DAY) -> UsageKey:
    return UsageKey(day, "extraction", "openai", model)


class Outside:
    """Store, gauges and calendar in memory."""

    def __init__(self) -> None:
        self.rows: dict[UsageKey, UsageTotals] = {}
        self.others: dict[date, int] = {}
        self.away = False
        self.on_put: Callable[[], object] = lambda: None
        self.day = DAY
        self.shown: list[bool] = []
        self.counted: list[tuple[str, int, int]] = []

    def usage(self, limit: int = 0) -> Usage:
        return Usage(self, self, limit=limit, today=lambda: self.day, worker=WORKER)

    async def put_usage(self, worker: UUID, totals: Mapping[UsageKey, UsageTotals]) -> None:
        self.on_put()
        if self.away:
            raise StoreUnavailable("test")
        self.rows.update(totals)

    async def spent_by_others(self, worker: UUID, day: date) -> int:
        if self.away:
            raise StoreUnavailable("test")
        return self.others.get(day, 0)

    def spent(self, key: UsageKey, input_tokens: int, output_tokens: int) -> None:
        self.counted.append((key.model, input_tokens, output_tokens))

    def held(self, reached: bool) -> None:
        self.shown.append(reached)


@pytest.fixture
def outside() -> Outside:
    return Outside()


async def settle() -> None:
    """Let the tasks that can run do so."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_counts_are_by_task_model_and_day(outside: Outside) -> None:
    usage = outside.usage()
    usage.add(made_by(), Completion("", 100, 10))
    usage.add(made_by(), Completion("", 100, 10))
    usage.add(made_by("b"), Completion("", 1, 2))
    await usage.sync()
    assert outside.rows == {key(): UsageTotals(2, 200, 20), key("b"): UsageTotals(1, 1, 2)}
    outside.day += timedelta(days=1)
    usage.add(made_by(), Completion("", 5, 5))
    await usage.sync()
    assert outside.rows[key()] == UsageTotals(2, 200, 20)
    assert outside.rows[key(day=outside.day)] == UsageTotals(1, 5, 5)
    assert outside.counted == [("a", 100, 10)] * 2 + [("b", 1, 2), ("a", 5, 5)]


async def test_nothing_is_lost_while_the_store_is_away(outside: Outside) -> None:
    usage = outside.usage()
    outside.away = True
    usage.add(made_by(), Completion("", 100, 10))
    with pytest.raises(StoreUnavailable):
        await usage.sync()
    outside.day += timedelta(days=1)
    usage.add(made_by(), Completion("", 7, 0))
    outside.away = False
    await usage.sync()
    assert outside.rows == {key(): UsageTotals(1, 100, 10), key(day=outside.day): UsageTotals(1, 7, 0)}


async def test_what_is_counted_during_a_write_is_written_next(outside: Outside) -> None:
    usage = outside.usage()
    usage.add(made_by(), Completion("", 100, 0))
    outside.on_put = lambda: usage.add(made_by(), Completion("", 1, 0))
    await usage.sync()
    outside.on_put = lambda: None
    await usage.sync()
    assert outside.rows == {key(): UsageTotals(2, 101, 0)}


async def test_what_a_server_cannot_mean_is_cut_off(outside: Outside) -> None:
    usage = outside.usage()
    usage.add(made_by(), Completion("", -5, 10**30))
    await usage.sync()
    assert outside.rows == {key(): UsageTotals(1, 0, MAX_TOKENS)}


async def test_without_a_limit_everything_is_admitted(outside: Outside) -> None:
    usage = outside.usage(limit=0)
    usage.add(made_by(), Completion("", 10**6, 0))
    await usage.admitted("extraction")
    assert outside.shown == [False]


async def test_a_reached_limit_holds_calls_until_the_day_ends(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    usage = outside.usage(limit=100)
    usage.add(made_by(), Completion("", 60, 39))
    await usage.admitted("extraction")
    usage.add(made_by(), Completion("", 0, 1))
    waiting = [asyncio.create_task(usage.admitted("extraction")) for _ in range(3)]
    for _ in range(3):
        await usage.sync()
        await settle()
    assert not any(task.done() for task in waiting)
    outside.day += timedelta(days=1)
    await usage.sync()
    await asyncio.gather(*waiting)
    assert outside.shown == [False, True, False]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "KEEPSAKE_DAILY_TOKEN_LIMIT" in caplog.text


async def test_the_limit_is_on_all_workers_together(outside: Outside) -> None:
    usage = outside.usage(limit=100)
    usage.add(made_by(), Completion("", 50, 0))
    outside.others = {DAY: 50}
    await usage.sync()
    waiting = asyncio.create_task(usage.admitted("extraction"))
    outside.away = True
    with pytest.raises(StoreUnavailable):
        await usage.sync()
    await settle()
    assert not waiting.done(), "what others are known to have spent today stays spent"
    outside.away, outside.others = False, {DAY: 49}
    await usage.sync()
    await waiting


async def test_a_store_that_is_away_holds_nobody_but_those_past_the_limit_themselves(
    outside: Outside,
) -> None:
    usage = outside.usage(limit=100)
    outside.away, outside.others = True, {DAY: 500}
    with pytest.raises(StoreUnavailable):
        await usage.sync()
    await usage.admitted("extraction")
    usage.add(made_by(), Completion("", 100, 0))
    waiting = asyncio.create_task(usage.admitted("extraction"))
    await settle()
    assert not waiting.done()
    waiting.cancel()


async def test_running_beside_the_calls_survives_a_store_that_fails(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    written = asyncio.Event()
    failures = [RuntimeError("a text that nobody may see"), StoreUnavailable("away"), None]

    def on_put() -> None:
        failure = failures.pop(0)
        if failure is not None:
            raise failure
        written.set()

    outside.on_put = on_put
    usage = Usage(outside, outside, limit=0, seconds=0.01, today=lambda: DAY, worker=WORKER)
    usage.add(made_by(), Completion("", 1, 1))
    running = asyncio.create_task(usage.run())
    await asyncio.wait_for(written.wait(), 30)
    running.cancel()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "nobody may see" not in caplog.text
