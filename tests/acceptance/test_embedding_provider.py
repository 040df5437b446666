"""R14: a provider that is away, comes back, and is exchanged for another; memories are found all the while."""

import asyncpg
import httpx
import pytest

from infra.engines.processes import free_port
from infra.offline_embedder import OFFLINE_MODEL
from streams.settings import Settings
from tests.acceptance.embedding_server import EmbeddingServer
from tests.acceptance.system import System, conversation

USERS = 6


def vectors(system: System) -> dict[str, int]:
    """How many vectors of each model are there."""
    rows: list[asyncpg.Record] = system.fetch(
        "SELECT embedding_model, count(*) AS number FROM memory.memory_vectors WHERE embedding IS NOT NULL GROUP BY 1"
    )
    return {row["embedding_model"]: row["number"] for row in rows}


def tokens(system: System) -> int:
    return int(system.fetch("SELECT count(*) FROM memory.memory_tokens")[0][0])


def without_vector(system: System, port: int) -> float | None:
    """What the indexer's gauge says."""
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text
    lines = [line for line in text.splitlines() if line.startswith("keepsake_memories_without_vector ")]
    return float(lines[0].split()[1]) if lines else None


@pytest.mark.short
def test_what_could_not_be_embedded_is_found_and_embedded_later_and_a_new_model_takes_over() -> None:
    assert Settings.model_fields["embedding_retry_seconds"].default == (2, 4, 8)
    assert Settings.model_fields["embedding_sweep_seconds"].default * 2 <= 60
    with (
        EmbeddingServer() as server,
        System(
            embedding_model="openai:words",
            openai_base_url=server.base_url,
            embedding_retry_seconds="[0.1, 0.1, 0.1]",
            embedding_sweep_seconds=2,
            recall_deadline_seconds=5,
        ) as system,
    ):
        server.status = 429
        system.start("ledger", "extractor", "indexer", "recall")
        said = system.publish([one for n in range(USERS) for one in conversation(f"u{n}", ["A"], 5)])
        system.wait(lambda: tokens(system) == USERS, "every memory to be stored without a vector")
        assert vectors(system) == {}
        answer = system.recall("u0", ["A"], "Busan")
        assert answer["degraded"] == "embedding_failed"
        assert len(answer["memories"]) == 1  # type: ignore[arg-type]  # JSON
        # The provider is back.
        server.status = 200
        system.wait(lambda: vectors(system) == {"words": USERS}, "every memory to be embedded", 60)
        answer = system.recall("u0", ["A"], "Busan")
        assert (answer["degraded"], len(answer["memories"])) == (None, 1)  # type: ignore[arg-type]  # JSON
        embedded = server.texts
        # Another model: nothing is asked of the old one, and vectors of the two are never compared.
        for role in ("indexer", "recall"):
            assert system.stop(role) == 0
        port = free_port()
        other = f"offline:{OFFLINE_MODEL}"
        system.start("recall", KEEPSAKE_EMBEDDING_MODEL=other)
        answer = system.recall("u0", ["A"], "Busan")
        assert (answer["degraded"], len(answer["memories"])) == (None, 1)  # type: ignore[arg-type]  # JSON
        system.start("indexer", KEEPSAKE_METRICS_PORT=port, KEEPSAKE_EMBEDDING_MODEL=other)
        system.wait(
            lambda: vectors(system).get(OFFLINE_MODEL) == USERS, "every memory to be embedded anew", 60
        )
        system.wait(lambda: without_vector(system, port) == 0, "the gauge to say that none is left")
        found = system.recall("u0", ["A"], "Where does she live?", explain=True)
        assert found["memories"][0]["explain"]["vector"] is not None  # type: ignore[index]  # JSON
        assert server.texts == embedded
        system.check(said)
