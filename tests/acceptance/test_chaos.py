"""R28: whatever a recall depends on is slow, hangs, breaks off or is gone, or all of it at once: every answer is 200,
in time, and says why it holds less."""

import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from models.phrases import PHRASES
from tests.acceptance.chaos_proxy import ChaosProxy, Mode
from tests.acceptance.embedding_server import EmbeddingServer
from tests.acceptance.system import System, conversation

RECALLS = 50
CONTEXTS = 10
AT_ONCE = 5
DEADLINE = 1.0
# Slow is slower than the deadline: a little slow is only slow.
DELAY = 1.5
PERSONA = "You are A, who never forgets.\n<memories> & all."
INDEX = {"index_timeout", "index_unavailable", "index_failed"}
EMBEDDING = {"embedding_timeout", "embedding_failed", "embedding_suspended"}


@dataclass
class Rig:
    """A system whose recall service reaches PostgreSQL and the embedding provider through proxies."""

    system: System
    provider: EmbeddingServer
    database: ChaosProxy
    embedding: ChaosProxy
    round: int = 0

    def be(self, database: Mode, embedding: Mode) -> None:
        self.database.be(database)
        self.embedding.be(embedding)

    def asked(
        self, count: int, ask: Callable[[httpx.Client, int], httpx.Response]
    ) -> list[tuple[float, Any]]:
        """So many requests, some at once: how long each took, and its body."""
        headers = {"Authorization": "Bearer test-token"}
        with httpx.Client(base_url=self.system.url, headers=headers, timeout=30) as client:

            def one(number: int) -> tuple[float, Any]:
                started = time.perf_counter()
                answer = ask(client, number)
                took = time.perf_counter() - started
                assert answer.status_code == 200, answer.text
                return took, answer.json()

            with ThreadPoolExecutor(AT_ONCE) as pool:
                return list(pool.map(one, range(count)))

    def recalls(self, count: int = RECALLS) -> list[tuple[float, Any]]:
        """Each of a query that was never asked before: none is answered from what is kept."""
        self.round += 1
        return self.asked(
            count,
            lambda client, number: client.post(
                "/v1/recall",
                json={
                    "user_id": "u",
                    "character_ids": ["A"],
                    "query": f"Bori the dog {self.round} {number}",
                },
            ),
        )

    def contexts(self) -> list[tuple[float, Any]]:
        return self.asked(
            CONTEXTS,
            lambda client, number: client.post(
                "/v1/context",
                json={
                    "user_id": "u",
                    "character_ids": ["A"],
                    "query": f"Who is Bori, {self.round} {number}?",
                    "persona": PERSONA,
                },
            ),
        )


@contextmanager
def rig() -> Iterator[Rig]:
    with EmbeddingServer() as provider:
        settings: dict[str, Any] = {
            "idle_close_seconds": 0,
            "recall_deadline_seconds": DEADLINE,
            "breaker_seconds": 2,
            "embedding_model": "openai:vectors",
            "openai_base_url": provider.base_url,
            "openai_api_key": "none",
            "extraction_model": "offline:keepsake-rules",
        }
        with System(**settings) as system:
            system.start("ledger", "extractor", "indexer")
            said = system.publish(conversation("u", ["A"], 22))
            system.wait(lambda: system.counted() == len(said), "every message to be counted")
            system.wait(system.settled, "every window to be settled")
            system.wait(lambda: system.indexed() == 4, "every memory to be indexed")
            for role in ("ledger", "extractor", "indexer"):
                system.stop(role)
            with (
                ChaosProxy(system.engines.database_url, DELAY) as database,
                ChaosProxy(provider.base_url, DELAY) as embedding,
            ):
                system.start(
                    "recall", KEEPSAKE_DATABASE_URL=database.url, KEEPSAKE_OPENAI_BASE_URL=embedding.url
                )
                yield Rig(system, provider, database, embedding)
                # Whatever happened, it ends as it should.
                assert system.stop("recall") == 0


def hold(at: Rig, reasons: set[str], *, memories: bool) -> list[float]:
    """Every answer in time and with its reason; how long the recalls took."""
    told = at.recalls()
    for took, body in told:
        assert took <= 2 * DEADLINE, f"{took:.2f} s: {body['degraded']}"
        assert body["degraded"] in reasons
        assert bool(body["memories"]) == memories
    for took, body in at.contexts():
        assert took <= 2 * DEADLINE, f"{took:.2f} s: {body['degraded']}"
        assert body["degraded"] in reasons
        assert body["system"].startswith(PERSONA)
        assert PHRASES["en"].if_unknown in body["system"]
        assert body["messages"][-1]["role"] == "user"
        assert f"Who is Bori, {at.round}" in body["messages"][-1]["content"]
        # The ledger's rows are here whatever else is away: relationship and recent talk stay.
        assert "My dog is called Bori" in str(body["messages"])
    return [took for took, _ in told]


def recover(at: Rig) -> None:
    """All is well again: so are the answers, soon."""
    at.be("pass", "pass")
    at.system.wait(
        lambda: all(body["degraded"] is None for _, body in at.recalls(AT_ONCE)), "answers as before", 30
    )
    assert all(body["memories"] for _, body in at.recalls(AT_ONCE))


@pytest.mark.short
def test_everything_hangs_and_comes_back() -> None:
    with rig() as at:
        recover(at)
        at.be("hang", "hang")
        hold(at, INDEX, memories=False)
        recover(at)


def test_the_database_is_slow_hangs_breaks_off_or_is_gone() -> None:
    with rig() as at:
        for mode in ("slow", "hang", "half", "gone"):
            at.be(mode, "pass")
            hold(at, INDEX, memories=False)
            recover(at)


def test_the_provider_is_slow_hangs_breaks_off_or_is_gone() -> None:
    with rig() as at:
        for mode in ("slow", "hang", "half", "gone"):
            recover(at)
            before = at.embedding.connections
            at.be("pass", mode)
            took = hold(at, EMBEDDING, memories=True)
            # The breaker is open: nobody waits, and the provider is left alone.
            assert statistics.median(took) < DEADLINE / 2
            assert at.embedding.connections - before < RECALLS / 2
        recover(at)
        # It answers, and refuses.
        at.provider.status = 429
        hold(at, EMBEDDING, memories=True)


def test_everything_is_gone_at_once_and_the_view_with_it() -> None:
    with rig() as at:
        for mode in ("gone", "half", "slow"):
            at.be(mode, mode)
            hold(at, INDEX, memories=False)
        at.system.engines.stop_kafka()
        at.be("gone", "gone")
        hold(at, INDEX, memories=False)
        at.system.engines.start_kafka()
        recover(at)


def test_without_keys_nothing_is_invented() -> None:
    """A view that never saw the log: what is stored cannot be opened."""
    with rig() as at:
        at.system.stop("recall")
        at.system.start(
            "recall",
            instance="new",
            ready=False,
            KEEPSAKE_KAFKA_BOOTSTRAP="127.0.0.1:9",
            KEEPSAKE_DATABASE_URL=at.database.url,
            KEEPSAKE_OPENAI_BASE_URL=at.embedding.url,
        )
        url = at.system.wait(lambda: at.system.heartbeat("recall", "new").get("detail"), "the service")
        headers = {"Authorization": "Bearer test-token"}
        asked = {"user_id": "u", "character_ids": ["A"], "query": "Bori the dog"}
        with httpx.Client(base_url=str(url), headers=headers, timeout=30) as client:
            for _ in range(RECALLS):
                started = time.perf_counter()
                body = client.post("/v1/recall", json=asked).json()
                assert time.perf_counter() - started <= 2 * DEADLINE
                assert (body["memories"], body["degraded"]) == ([], "keys_unavailable")
            body = client.post("/v1/context", json={**asked, "persona": PERSONA}).json()
            assert body["degraded"] == "keys_unavailable"
            assert body["system"].startswith(PERSONA)
            assert PHRASES["en"].if_unknown in body["system"]
            assert body["messages"] == [{"role": "user", "content": "Bori the dog"}]
        at.system.kill("recall", "new")
        at.system.start(
            "recall", KEEPSAKE_DATABASE_URL=at.database.url, KEEPSAKE_OPENAI_BASE_URL=at.embedding.url
        )
