"""Assigned models with real engines and a local server that speaks like OpenAI's: changes, the fall-back, the limit."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from uuid import uuid4

import httpx
import orjson
import pytest

from models.assignments import Assignment
from models.usage import UsageKey, UsageTotals
from sql.config_store import SCHEMA, ConfigStore
from sql.migrate import migrate
from sql.pool import Pool, create_pool
from tests.engines import LocalEngines
from tests.integration.role_processes import LINES, Deployment, deployed, end, prepare, requests
from tests.integration.wire import Received, Reply, Wire, openai_answer, openai_error

SECONDS = 90.0
QUOTE = {"type": "quote", "speaker": "user", "text": LINES[0], "context": ""}
ANSWER = json.dumps(
    {"summary": "사용자가 부산으로 이사했다", "keyDetails": [QUOTE], "searchTerms": ["이사"], "importance": 7}
)
# What openai_answer says that a call cost.
TOKENS = UsageTotals(1, 120, 42)


@pytest.fixture(scope="module")
def engines() -> Iterator[LocalEngines]:
    """Engines of this module's own: the topics of a deployment, and a PostgreSQL that may be stopped."""
    with LocalEngines() as running:
        prepare(running)
        asyncio.run(migrate(running.database_url))
        yield running


class Place:
    """One test's deployment, server and store."""

    def __init__(self, deployment: Deployment, wire: Wire, pool: Pool) -> None:
        self.deployment = deployment
        self.wire = wire
        self.pool = pool
        self.store = ConfigStore(pool)
        self.settings = {
            "KEEPSAKE_DATABASE_URL": deployment.engines.database_url,
            "KEEPSAKE_OPENAI_BASE_URL": f"{wire.url}/v1",
            "KEEPSAKE_ASSIGNMENTS_SECONDS": "0.5",
            "KEEPSAKE_THRESHOLD": "1",
            "KEEPSAKE_EXTRACTION_ATTEMPTS": "2",
            "KEEPSAKE_EXTRACTION_RETRY_SECONDS": "0.1",
            "KEEPSAKE_SCAN_SECONDS": "0.2",
        }
        wire.reply = self._reply
        self.broken: set[str] = set()

    def _reply(self, received: Received) -> Reply:
        if received.body["model"] in self.broken:
            return Reply(status=503, body=openai_error(503))
        return Reply(body=openai_answer(ANSWER))

    @property
    def asked(self) -> list[str]:
        """The models that were asked, in order."""
        return [str(received.body["model"]) for received in self.wire.received]

    @asynccontextmanager
    async def running(self, *roles: str, **settings: str) -> AsyncIterator[None]:
        """The roles as processes; they must leave with 0."""
        processes = [await self.deployment.start(role, **self.settings, **settings) for role in roles]
        try:
            yield
            codes = [await end(process) for process in processes]
            assert codes == [0] * len(roles)
        finally:
            for process in processes:
                if process.returncode is None:
                    process.kill()
                    await process.wait()

    async def assign(self, model: str, fallback: str | None = None) -> None:
        await self.store.assign(Assignment.parse("extraction", model, fallback), "test")

    async def extracted_by(self, name: str) -> str:
        """Ask for one window; the model that made its memory."""
        await self.deployment.ask(requests(name, 1)[0])
        [result] = await self.deployment.results(1)
        assert result.provenance is not None, result.reason
        return f"{result.provenance.provider}:{result.provenance.model}"

    async def until_extracted_by(self, model: str) -> None:
        """Ask, again and again, until the model makes the memory."""
        async with asyncio.timeout(SECONDS):
            while await self.extracted_by(uuid4().hex) != model:
                pass


@pytest.fixture
async def place(engines: LocalEngines) -> AsyncIterator[Place]:
    pool = await create_pool(engines.database_url, schema=SCHEMA)
    await pool.execute("TRUNCATE llm_task_assignments, llm_task_assignment_history, model_usage")
    async with Wire() as wire, deployed(engines) as deployment:
        yield Place(deployment, wire, pool)
    pool.terminate()


async def test_a_changed_assignment_is_used_with_nothing_restarted_and_told_in_the_memory(
    place: Place,
) -> None:
    async def made_by(user: str) -> tuple[str, str, bool]:
        await place.deployment.talk(user)
        created = await place.deployment.created()
        assert created.user_id == user
        origin = created.provenance
        assert (origin.task, bool(origin.prompt), bool(origin.prompt_version)) == ("extraction", True, True)
        return origin.provider, origin.model, origin.offline

    async with place.running("ledger", "extractor"):
        assert await made_by("first") == ("offline", "keepsake-rules", True)
        await place.assign("openai:local:8b")
        async with asyncio.timeout(60):
            while (origin := await made_by(uuid4().hex))[0] == "offline":
                pass
        assert origin == ("openai", "local:8b", False)
    assert set(place.asked) == {"local:8b"}
    [row] = await place.pool.fetch("SELECT * FROM model_usage")
    calls = len(place.asked)
    assert (row["task"], row["provider"], row["model"]) == ("extraction", "openai", "local:8b")
    assert (row["calls"], row["input_tokens"], row["output_tokens"]) == (
        calls,
        calls * TOKENS.input_tokens,
        calls * TOKENS.output_tokens,
    )


async def test_the_fall_back_takes_over_after_the_attempts_of_the_first(place: Place) -> None:
    await place.assign("openai:broken", "openai:sound")
    place.broken = {"broken"}
    async with place.running("ledger", "extractor"):
        await place.deployment.talk(uuid4().hex)
        created = await place.deployment.created()
    assert created.provenance.model == "sound"
    assert place.asked == ["broken", "broken", "sound"]


async def test_a_reached_limit_lets_windows_wait_and_then_go_on(place: Place) -> None:
    await place.assign("openai:a")
    other = uuid4()
    spent = {UsageKey(datetime.now(UTC).date(), "insight", "gemini", "g"): UsageTotals(1, 400, 100)}
    await place.store.put_usage(other, spent)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    first, second = requests(uuid4().hex, 6), requests(uuid4().hex, 6)
    limited = {"KEEPSAKE_DAILY_TOKEN_LIMIT": "500", "KEEPSAKE_METRICS_PORT": str(port)}
    async with place.running("extractor", **limited):
        for request in first:
            await place.deployment.ask(request)
        await _metric(port, "keepsake_daily_token_limit_reached", 1.0)
        await _beaten_twice(place)
        assert place.asked == []
        assert place.deployment.waiting["memory.extracted"] == []
        await place.pool.execute("DELETE FROM model_usage WHERE worker = $1", other)
        results = await place.deployment.results(len(first))
        assert {(r.request_id, r.status) for r in results} == {(r.request_id, "memory") for r in first}
        # Its own calls have used the limit up by now: 6 of 162 tokens each.
        for request in second:
            await place.deployment.ask(request)
        await _metric(port, "keepsake_daily_token_limit_reached", 1.0)
    assert len(place.asked) == len(first)
    async with place.running("extractor"):
        results = await place.deployment.results(len(second))
        assert {(r.request_id, r.status) for r in results} == {(r.request_id, "memory") for r in second}


async def test_an_offline_model_goes_on_past_the_limit(place: Place) -> None:
    await place.assign("openai:a")
    limited = {"KEEPSAKE_DAILY_TOKEN_LIMIT": "1"}
    async with place.running("extractor", **limited):
        assert await place.extracted_by(uuid4().hex) == "openai:a"
        [held] = requests(uuid4().hex, 1)
        await place.deployment.ask(held)
        await place.assign("offline:keepsake-rules")
        [result] = await place.deployment.results(1)
        assert result.request_id == held.request_id
        assert result.provenance is not None
        assert result.provenance.offline


async def test_without_postgresql_the_last_seen_or_the_default_does_it(
    place: Place, engines: LocalEngines
) -> None:
    engines.stop_postgres()
    try:
        async with place.running("extractor"):
            assert await place.extracted_by(uuid4().hex) == "offline:keepsake-rules"
            engines.start_postgres()
            await place.assign("openai:a")
            await place.until_extracted_by("openai:a")
            engines.stop_postgres()
            assert await place.extracted_by(uuid4().hex) == "openai:a"
            engines.start_postgres()
            await place.assign("openai:b")
            await place.until_extracted_by("openai:b")
    finally:
        engines.start_postgres()
    counted = await place.pool.fetch("SELECT model, calls FROM model_usage")
    assert {row["model"]: row["calls"] for row in counted} == {
        model: place.asked.count(model) for model in ("a", "b")
    }


async def _metric(port: int, name: str, value: float) -> None:
    """Wait until the extractor's metric has the value."""
    async with asyncio.timeout(SECONDS), httpx.AsyncClient() as client:
        while True:
            try:
                text = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
            except httpx.TransportError:
                text = ""  # not listening yet
            if f"{name} {value}" in text.splitlines():
                return
            await asyncio.sleep(0.1)


async def _beaten_twice(place: Place) -> None:
    """Wait for two signs of life of the extractor, which says that it runs."""
    path = place.deployment.engines.data_dir / "run" / "extractor-0.json"
    seen: set[float] = set()
    async with asyncio.timeout(SECONDS):
        while len(seen) < 2:
            told = orjson.loads(path.read_bytes())
            if told["state"] == "running":
                seen.add(told["updated_at"])
            await asyncio.sleep(0.1)
