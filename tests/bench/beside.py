"""What the benchmark of recall runs beside the service: the baseline, a writer, and PostgreSQL's own account."""

import asyncio
import pickle
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import numpy as np

from infra.engines.processes import free_port
from infra.offline_embedder import OfflineEmbedder
from infra.sealing import AesGcmSealer
from models.candidates import Scope
from models.query import query_terms
from models.tokens import query_tokens
from sql.loader import load_queries
from sql.pool import create_pool
from sql.recall_store import RecallStore
from tests.bench.population import CHARACTER
from tests.bench.rebuild_load import USERS

Arguments = tuple[Any, ...]
ROOT = Path(__file__).parents[2]
SECONDS = 60.0


class _Recorder(RecallStore):
    """Keeps what the store would ask PostgreSQL."""

    asked: Arguments = ()

    async def _fetch(self, name: str, *arguments: object) -> list[asyncpg.Record]:
        assert name == "candidates"
        self.asked = arguments
        return []


async def sql_arguments(
    dsn: str, sealer: AesGcmSealer, users: Iterable[str], queries: Sequence[str]
) -> dict[tuple[str, str], Arguments]:
    """The arguments of the query `candidates`, by user and query, as a recall gives them."""
    pool, embedder = await create_pool(dsn), OfflineEmbedder()
    try:
        recorder, found = _Recorder(pool), {}
        for user in users:
            for query in queries:
                tokens = query_tokens(query_terms(query))
                await recorder.candidates(
                    Scope(user, (CHARACTER,)),
                    query_vector=await embedder.embed_query(query),
                    model=embedder.model,
                    token_hashes=[sealer.hash_token(user, token) for token in tokens],
                )
                found[user, query] = recorder.asked
        return found
    finally:
        await embedder.close()
        await pool.close()


@asynccontextmanager
async def bare_service(
    dsn: str, arguments: Sequence[Arguments], directory: Path
) -> AsyncIterator[tuple[str, int]]:
    """The baseline as a process; its URL and pid. `POST /bare` with the number of one of the arguments."""
    file = directory / "arguments"
    file.write_bytes(pickle.dumps(list(arguments)))
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    async with _process("tests.bench.bare_fastapi", str(port), dsn, str(file)) as process:
        async with aiohttp.ClientSession(url) as session, asyncio.timeout(SECONDS):
            while True:
                assert process.poll() is None, "the baseline ended"
                try:
                    async with session.post("/bare", json={"number": 0}) as answer:
                        assert answer.status == 200, await answer.text()
                        break
                except aiohttp.ClientConnectorError:
                    await asyncio.sleep(0.05)
        yield url, process.pid


@asynccontextmanager
async def writing(dsn: str) -> AsyncIterator["Written"]:
    """A process that writes as a rebuild does, and has begun to."""
    connection = await asyncpg.connect(dsn)
    try:
        async with _process("tests.bench.rebuild_load", dsn) as process:
            written = Written(connection)
            async with asyncio.timeout(SECONDS):
                while await written.count() == 0:
                    assert process.poll() is None, "the writer ended"
                    await asyncio.sleep(0.05)
            yield written
            assert process.poll() is None, "the writer ended"
    finally:
        await connection.close()


class Written:
    """How much the writer has written."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    async def count(self) -> int:
        statement = "SELECT count(*) FROM memory.user_memory_characters WHERE user_id = ANY ($1)"
        return int(await self._connection.fetchval(statement, USERS))


async def nearest(dsn: str, user: str, query: np.ndarray[Any, Any], count: int) -> list[str]:
    """The memories of a user that are nearest to a query, by a full sort outside of the database."""
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetch(
            "SELECT memory_id, embedding::text FROM memory.memory_vectors WHERE user_id = $1", user
        )
    finally:
        await connection.close()
    stored = np.array([np.fromstring(row["embedding"][1:-1], sep=",") for row in rows])
    asked = query.astype(float)
    cosine = stored @ asked / (np.linalg.norm(stored, axis=1) * np.linalg.norm(asked))
    return [str(rows[at]["memory_id"]) for at in np.argsort(-cosine)[:count]]


async def plan(dsn: str, arguments: Arguments) -> list[str]:
    """EXPLAIN ANALYZE of the query `candidates`: the plan that a connection of the pool keeps for it."""
    pool = await create_pool(dsn)
    try:
        async with pool.acquire() as connection:
            # EXECUTE, because EXPLAIN with parameters would plan for their values.
            await connection.execute(f"PREPARE candidates AS {load_queries('recall')['candidates']}")
            execute = f"EXECUTE candidates ({', '.join(map(_literal, arguments))})"
            await connection.fetch(execute)  # the first reads catalogues, and plans
            rows = await connection.fetch(f"EXPLAIN (ANALYZE, BUFFERS) {execute}")
            return [row[0] for row in rows]
    finally:
        await pool.close()


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return f"ARRAY[{', '.join(map(_literal, value))}]"
    if isinstance(value, int):
        return str(value)
    text = value if isinstance(value, str) else str(value.to_list())  # type: ignore[attr-defined]
    return "'" + text.replace("'", "''") + "'"


@asynccontextmanager
async def _process(module: str, *arguments: str) -> AsyncIterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-m", module, *arguments], cwd=ROOT)  # noqa: ASYNC220
    try:
        yield process
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)
