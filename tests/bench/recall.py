"""Recall among many memories: how long it takes by the size of the pair, beside a bare service with the same SQL.

The queries are a few that come again and again, and the offline embedder remembers their vectors: what is measured
is recall without the 15 ms that a new text takes it. Where two services or two ways of asking are compared, their
requests take turns. A million memories take 10 to 20 minutes, and 8 GB of disk while it runs.
"""

import asyncio
import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import aiohttp
import psutil

from infra.offline_embedder import OFFLINE_MODEL
from models.candidates import Scope
from sql.pool import create_pool
from sql.recall_store import RecallStore
from tests.bench.beside import nearest, plan, writing
from tests.bench.compared import Ask, Compared, ask_service, compared, served, user_of
from tests.bench.population import CHARACTER, Pair, Population, skewed
from tests.bench.talk import queries
from tests.engines import LocalEngines
from tests.integration.recall_service import World, make_world

Row = tuple[str, str]
Say = Callable[[str], None]
SIZES = (20, 200, 2_000, 20_000)
TYPICAL = 200
PAIRS = 20_000
ROUNDS, STARTS = 25, 3
CLIENTS, ASKED = 8, 1_600


def recall(say: Say, memories: int = 1_000_000) -> list[Row]:
    """So many memories over 20,000 pairs (fewer with fewer memories), one pair of each of the sizes among them."""
    # It tells of every topic that has no leader yet.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    with LocalEngines() as engines, tempfile.TemporaryDirectory() as directory:
        return asyncio.run(_recall(engines, Path(directory), say, memories))


async def _recall(engines: LocalEngines, directory: Path, say: Say, memories: int) -> list[Row]:
    world = await make_world(directory, engines.bootstrap, engines.database_url)
    population = await populated(world, memories, say)
    sizes = measured_sizes(memories)
    rows: list[Row] = [("memories, pairs", f"{len(population):,}, {len(population.pairs):,}")]
    say("recall: exactness")
    for size, share in (await exactness(world, population, sizes)).items():
        rows.append((f"recall@20 against a full sort, {size:,}", f"{share:.3f}"))
    async with compared(world, sizes) as services:
        rows += await _by_size(services, sizes, say)
        say(f"\nThe SQL of a recall, pair of {sizes[-1]:,}:")
        for line in await plan(world.database_url, services.arguments[user_of(sizes[-1]), queries()[0]]):
            say(line[:200])
        rows += await _ways_of_asking(services, say)
        rows += await _at_once(services, say)
        rows += await _under_writes(world, services, sizes, say)
    rows += await _first_requests(world, say)
    return rows


def measured_sizes(memories: int) -> list[int]:
    return [size for size in SIZES if size <= memories // 2]


async def populated(world: World, memories: int, say: Say = lambda _: None) -> Population:
    """So many memories in the world's database; those of the measured pairs can be opened."""
    sizes = measured_sizes(memories)
    measured = []
    for size in sizes:
        await world.talk(user_of(size), 0)
        measured.append(Pair(user_of(size), size, world.wrapped))
    pairs = min(PAIRS, memories // 50) - len(sizes)
    others = [Pair(f"u{n}", size) for n, size in enumerate(skewed(memories - sum(sizes), pairs))]
    population = Population([*measured, *others], world.sealer, world.cipher)
    await population.load(world.database_url, say)
    return population


async def exactness(world: World, population: Population, sizes: Sequence[int]) -> dict[int, float]:
    """What share of the 20 nearest of a full sort the vector path has, by size."""
    pool = await create_pool(world.database_url)
    try:
        store, shares = RecallStore(pool), {}
        for size in sizes:
            kept = []
            for query in population.vectors(range(0, 100, 10)):
                found = await store.candidates(
                    Scope(user_of(size), (CHARACTER,)),
                    query_vector=query.tolist(),
                    model=OFFLINE_MODEL,
                    token_hashes=(),
                )
                expected = await nearest(world.database_url, user_of(size), query, 20)
                kept.append(
                    len({memory.memory_id for memory, _ in found.vector}.intersection(expected))
                    / len(expected)
                )
            shares[size] = statistics.mean(kept)
        return shares
    finally:
        await pool.close()


async def _by_size(services: Compared, sizes: Sequence[int], say: Say) -> list[Row]:
    rows: list[Row] = []
    p95: dict[int, float] = {}
    for size in sizes:
        say(f"recall: pair of {size:,}")
        times = await taking_turns({"recall": services.service(size), "bare": services.bare(size)})
        ours, bare = times["recall"], times["bare"]
        p95[size] = _p95(ours)
        rows += [
            (f"recall, pair of {size:,}, p50 / p95", _told(ours)),
            (f"bare FastAPI, same SQL, {size:,}, p50 / p95", _told(bare)),
            (f"recall ÷ bare FastAPI, {size:,}, p50", _ratio(ours, bare)),
        ]
    largest = sizes[-1]
    return [*rows, (f"p95 of {largest:,} ÷ p95 of {TYPICAL}", f"{p95[largest] / p95[TYPICAL]:.2f}")]


async def _ways_of_asking(services: Compared, say: Say) -> list[Row]:
    say("recall: explain, new connections")
    times = await taking_turns(
        {
            "plain": services.service(TYPICAL),
            "explain": services.service(TYPICAL, explain=True),
            "newcomer": services.newcomer(TYPICAL),
        }
    )
    return [
        (f"explain ÷ plain, {TYPICAL}, p50", _ratio(times["explain"], times["plain"])),
        (f"a new connection each time, {TYPICAL}, p50 / p95", _told(times["newcomer"])),
        ("a new connection ÷ a kept one, p50", _ratio(times["newcomer"], times["plain"])),
    ]


async def _at_once(services: Compared, say: Say) -> list[Row]:
    say(f"recall: {CLIENTS} clients at once")
    ours, cpu = await _rate(services.service(TYPICAL), services.pid)
    bare, bare_cpu = await _rate(services.bare(TYPICAL), services.bare_pid)
    return [
        (f"requests a second, {CLIENTS} clients, {TYPICAL}", f"{ours:.0f}"),
        ("requests a second ÷ bare FastAPI's", f"{ours / bare:.2f}"),
        ("processor time of a request in the service", f"{cpu * 1000:.1f} ms"),
        ("processor time ÷ bare FastAPI's", f"{cpu / bare_cpu:.2f}"),
    ]


async def _under_writes(world: World, services: Compared, sizes: Sequence[int], say: Say) -> list[Row]:
    rows: list[Row] = []
    async with writing(world.database_url) as written:
        began, before = time.perf_counter(), await written.count()
        for size in dict.fromkeys((TYPICAL, sizes[-1])):
            say(f"recall: under writes, pair of {size:,}")
            times = await taking_turns({"recall": services.service(size), "bare": services.bare(size)})
            rows += [
                (f"during a rebuild's writes, {size:,}, p50 / p95", _told(times["recall"])),
                (
                    f"during a rebuild's writes, {size:,}, recall ÷ bare, p50",
                    _ratio(times["recall"], times["bare"]),
                ),
            ]
        rate = (await written.count() - before) / (time.perf_counter() - began)
    # What writing leaves to be read: rows not yet vacuumed, the GIN index's list of pending entries.
    after = (await taking_turns({"recall": services.service(TYPICAL)}))["recall"]
    return [
        *rows,
        ("memories written a second meanwhile", f"{rate:,.0f}"),
        (f"right after the writes, {TYPICAL}, p50 / p95", _told(after)),
    ]


async def _first_requests(world: World, say: Say) -> list[Row]:
    say("recall: first requests")
    times = []
    for _ in range(STARTS):
        async with served(world) as (url, headers), aiohttp.ClientSession(url, headers=headers) as session:
            times.append(await _timed(partial(ask_service, session, TYPICAL), queries()[0]))
    told = ", ".join(f"{seconds * 1000:.0f}" for seconds in sorted(times))
    return [(f"the first request after a start, with embedding, {STARTS} starts", f"{told} ms")]


async def taking_turns(asks: Mapping[str, Ask], rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Seconds of each request, by what is asked, after one round that is not counted."""
    times: dict[str, list[float]] = {name: [] for name in asks}
    for number in range(-1, rounds):
        # Whoever comes second finds the pages in the processor's cache: each comes second every other round.
        order = list(asks) if number % 2 else list(asks)[::-1]
        for query in queries():
            for name in order:
                seconds = await _timed(asks[name], query)
                if number >= 0:
                    times[name].append(seconds)
    return times


async def _timed(ask: Ask, query: str) -> float:
    began = time.perf_counter()
    await ask(query)
    return time.perf_counter() - began


async def _rate(ask: Ask, pid: int) -> tuple[float, float]:
    """Answers a second, and seconds of the process's processor time each; after some that are not counted: every
    connection of the pool has its plan then."""
    await _asked_at_once(ask, ASKED // 4)
    process = psutil.Process(pid)
    began, before = time.perf_counter(), process.cpu_times()
    await _asked_at_once(ask, ASKED)
    seconds, after = time.perf_counter() - began, process.cpu_times()
    return ASKED / seconds, (after.user + after.system - before.user - before.system) / ASKED


async def _asked_at_once(ask: Ask, requests: int) -> None:
    numbers = iter(range(requests))

    async def client() -> None:
        for number in numbers:
            await ask(queries()[number % len(queries())])

    await asyncio.gather(*(client() for _ in range(CLIENTS)))


def _ratio(times: Sequence[float], baseline: Sequence[float]) -> str:
    return f"{statistics.median(times) / statistics.median(baseline):.2f}"


def _p95(times: Sequence[float]) -> float:
    return statistics.quantiles(times, n=20)[-1]


def _told(times: Sequence[float]) -> str:
    return f"{statistics.median(times) * 1000:.1f} / {_p95(times) * 1000:.1f} ms"
