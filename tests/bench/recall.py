"""Recall among many memories: how long it takes by the size of the pair, beside a bare service with the same SQL."""

import asyncio
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from pgvector import HalfVector

from infra.engines.processes import free_port
from infra.offline_embedder import OFFLINE_MODEL, OfflineEmbedder
from models.candidates import Scope
from models.query import query_terms
from models.tokens import query_tokens
from sql.index_store import token_key
from sql.pool import create_pool
from sql.recall_store import RecallStore
from tests.bench.population import CHARACTER, Pair, Population, nearest, skewed
from tests.engines import LocalEngines
from tests.integration.recall_service import World, make_world, ready

Row = tuple[str, str]
SIZES = (20, 200, 2_000, 20_000)
PAIRS = 20_000
QUERIES = (
    *("내 고양이 이름이 뭐였지?", "한시우랑 언제 만났어?", "부산에서 뭐 했지?", "치과 예약 언제야?"),
    *("where did I move to?", "which wine did I like?", "how was the marathon?", "my sister's name"),
    *("猫の名前は何だっけ？", "京都にいつ行った？", "ピアノはどう？", "誕生日はいつ？"),
)
ROUNDS = 10
CLIENTS, ASKED = 8, 800
# As a service has it that nobody hurries: the bench wants to know how long it takes.
DEADLINE = "30"


def recall(say: Callable[[str], None], memories: int = 1_000_000) -> list[Row]:
    """So many memories over 20,000 pairs (fewer with fewer memories), one pair of each of the sizes among them."""
    with LocalEngines() as engines, tempfile.TemporaryDirectory() as directory:
        return asyncio.run(_recall(engines, Path(directory), say, memories))


async def _recall(
    engines: LocalEngines, directory: Path, say: Callable[[str], None], memories: int
) -> list[Row]:
    world = await make_world(directory, engines.bootstrap, engines.database_url)
    sizes = [size for size in SIZES if size <= memories // 2]
    measured = []
    for size in sizes:
        await world.talk(f"measured-{size}", 0)
        measured.append(Pair(f"measured-{size}", size, world.wrapped))
    pairs = min(PAIRS, memories // 50) - len(sizes)
    others = [Pair(f"u{n}", size) for n, size in enumerate(skewed(memories - sum(sizes), pairs))]
    population = Population([*measured, *others], world.sealer, world.cipher)
    await population.load(world.database_url, say)
    rows: list[Row] = [("memories, pairs", f"{len(population):,}, {len(population.pairs):,}")]
    rows += await _exactness(world, population, sizes)
    async with world.served(KEEPSAKE_RECALL_DEADLINE_SECONDS=DEADLINE) as client:
        rows += await _measured(world, client, sizes, say)
    return rows


async def _exactness(world: World, population: Population, sizes: Sequence[int]) -> list[Row]:
    """What share of the 20 nearest of a full sort the vector path has."""
    pool = await create_pool(world.database_url)
    try:
        store, rows = RecallStore(pool), []
        for size in sizes:
            kept = []
            for subject in range(10):
                query = population.vector(subject)
                found = await store.candidates(
                    Scope(f"measured-{size}", (CHARACTER,)),
                    query_vector=query.tolist(),
                    model=OFFLINE_MODEL,
                    token_hashes=(),
                )
                expected = set(await nearest(world.database_url, f"measured-{size}", query, 20))
                kept.append(len(expected & {memory.memory_id for memory, _ in found.vector}) / len(expected))
            rows.append((f"recall@20 against a full sort, {size:,}", f"{statistics.mean(kept):.3f}"))
        return rows
    finally:
        await pool.close()


async def _measured(
    world: World, client: httpx.AsyncClient, sizes: Sequence[int], say: Callable[[str], None]
) -> list[Row]:
    await ready(client)
    first = await _timed(lambda: _ask(client, sizes[0], QUERIES[0]))
    rows: list[Row] = []
    typical = 200 if 200 in sizes else sizes[-1]
    times: dict[int, list[float]] = {}
    async with _bare(world, sizes) as bare:
        for size in sizes:
            say(f"recall: pair of {size:,}")
            times[size] = await _rounds(partial(_ask, client, size))
            rows.append((f"recall, pair of {size:,}, p50 / p95", _told(times[size])))
        baseline = await _rounds(
            lambda query: bare.post(
                "/bare", json={"number": sizes.index(typical) * len(QUERIES) + QUERIES.index(query)}
            )
        )
    ratio = statistics.median(times[typical]) / statistics.median(baseline)
    rows += [
        (f"bare FastAPI, same SQL, {typical:,}, p50 / p95", _told(baseline)),
        ("recall ÷ bare FastAPI, p50", f"{ratio:.2f}"),
        (
            f"p95 of {sizes[-1]:,} ÷ p95 of {typical:,}",
            f"{_p95(times[sizes[-1]]) / _p95(times[typical]):.2f}",
        ),
    ]
    say("recall: explain, cold clients, at once, under writes")
    explained = await _rounds(lambda query: _ask(client, typical, query, explain=True))
    rows.append(
        (
            f"explain ÷ plain, {typical:,}, p50",
            f"{statistics.median(explained) / statistics.median(times[typical]):.2f}",
        )
    )
    cold = await _rounds(lambda query: _cold(client, typical, query))
    rows.append(
        (
            "a client that never connected ÷ one that has, p50",
            f"{statistics.median(cold) / statistics.median(times[typical]):.2f}",
        )
    )
    rows.append(("the first request of a service", f"{first * 1000:.0f} ms"))
    rows.append((f"requests a second, {CLIENTS} clients, {typical:,}", f"{await _rate(client, typical):.0f}"))
    with _writing(world):
        await asyncio.sleep(3)
        for size in (typical, sizes[-1]):
            loaded = await _rounds(partial(_ask, client, size))
            rows.append((f"during a rebuild's writes, {size:,}, p50 / p95", _told(loaded)))
    return rows


async def _ask(client: httpx.AsyncClient, size: int, query: str, **more: object) -> httpx.Response:
    body = {"user_id": f"measured-{size}", "character_ids": [CHARACTER], "query": query, **more}
    answer = await client.post("/v1/recall", json=body)
    assert answer.json()["degraded"] is None, answer.text[:200]
    assert len(answer.json()["memories"]) == min(12, size)
    return answer


async def _cold(client: httpx.AsyncClient, size: int, query: str) -> httpx.Response:
    async with httpx.AsyncClient(base_url=client.base_url, headers=client.headers, timeout=30) as fresh:
        return await _ask(fresh, size, query)


async def _rounds(ask: Callable[[str], Any]) -> list[float]:
    """Seconds of each request, after one of each query that is not counted: their vectors are known then."""
    for query in QUERIES:
        await ask(query)
    return [await _timed(partial(ask, query)) for _ in range(ROUNDS) for query in QUERIES]


async def _timed(ask: Callable[[], Any]) -> float:
    began = time.perf_counter()
    answer = await ask()
    assert answer.status_code == 200, answer.text
    return time.perf_counter() - began


async def _rate(client: httpx.AsyncClient, size: int) -> float:
    numbers = iter(range(ASKED))

    async def one() -> None:
        for number in numbers:
            await _ask(client, size, QUERIES[number % len(QUERIES)])

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(CLIENTS)))
    return ASKED / (time.perf_counter() - began)


@asynccontextmanager
async def _bare(world: World, sizes: Sequence[int]) -> AsyncIterator[httpx.AsyncClient]:
    """The baseline as a process, with the arguments that recall gives the same query."""
    embedder = OfflineEmbedder()
    arguments = []
    for size in sizes:
        user = f"measured-{size}"
        for query in QUERIES:
            vector = HalfVector(await embedder.embed_query(query))
            tokens = [
                token_key(world.sealer.hash_token(user, one)) for one in query_tokens(query_terms(query))
            ]
            arguments.append(
                (user, [CHARACTER], vector, OFFLINE_MODEL, tokens, None, None, None, 20, 6, 2, None, None)
            )
    await embedder.close()
    file = world.data_dir / "arguments"
    file.write_bytes(pickle.dumps(arguments))
    port = free_port()
    process = subprocess.Popen(  # noqa: ASYNC220  # starting does not wait
        [sys.executable, "-m", "tests.bench.bare_fastapi", str(port), world.database_url, str(file)]
    )
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            async with asyncio.timeout(60):
                while True:
                    try:
                        await client.post("/bare", json={"number": 0})
                        break
                    except httpx.TransportError:
                        assert process.poll() is None, "the baseline ended"
                        await asyncio.sleep(0.1)
            yield client
    finally:
        process.kill()
        process.wait()


class _writing:  # noqa: N801  # used as a `with` statement's verb
    """A process that writes as a rebuild does."""

    def __init__(self, world: World) -> None:
        self._dsn = world.database_url

    def __enter__(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-m", "tests.bench.rebuild_load", self._dsn])

    def __exit__(self, *_: object) -> None:
        assert self._process.poll() is None, "the writer ended"
        self._process.kill()
        self._process.wait()


def _p95(times: Sequence[float]) -> float:
    return statistics.quantiles(times, n=20)[-1]


def _told(times: Sequence[float]) -> str:
    return f"{statistics.median(times) * 1000:.1f} / {_p95(times) * 1000:.1f} ms"
