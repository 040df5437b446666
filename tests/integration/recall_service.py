"""The recall service as a process, and a world for it to serve: rows in the log, memories in PostgreSQL."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson

from agents.codec import MemoryCipher
from agents.row_codec import Overlay, RowCodec
from infra.offline_embedder import OfflineEmbedder
from infra.sealing import AesGcmSealer, ensure_master_keys, load_master_keys
from models.index_rows import IndexRow, TokensRow, VectorRow
from models.memory import MemoryContent, Quote, RelationshipState
from models.rows import (
    PairKey,
    PairRow,
    ThreadKey,
    ThreadQueue,
    ThreadRow,
    UserKey,
    UserRow,
)
from models.tokens import index_tokens
from sql.index_store import IndexStore
from sql.migrate import migrate
from sql.pool import create_pool
from streams.partitioner import partition_for
from streams.topics import CHANGELOG, TOPICS
from tests.integration.brokers import new_topics, write
from tests.integration.databases import created_row, new_database

PARTITIONS = 4
TOKEN = "test-token"  # noqa: S105  # not a secret of anyone
SECONDS = 60.0


class World:
    """What the other roles would have left behind, for users who talk to mina."""

    def __init__(self, data_dir: Path, bootstrap: str, database_url: str) -> None:
        self.data_dir = data_dir
        self.bootstrap = bootstrap
        self.database_url = database_url
        ensure_master_keys(data_dir / "keys.json")
        (data_dir / "token").write_text(TOKEN)
        self.sealer = AesGcmSealer(load_master_keys(data_dir / "keys.json"))
        self.codec = RowCodec(self.sealer)
        self.cipher = MemoryCipher(self.sealer, self.codec.pairs)

    async def talk(self, user: str, memories: int) -> None:
        """Write the ledger's rows of a user: a thread with `memories` closed windows and two messages more."""
        rows = Overlay(lambda _: None, self.codec)
        closed = memories * 10
        pair = PairRow(
            1, self.codec.pair_key(user, "mina", 1), memories, RelationshipState(summary="friends"), 3
        )
        rows.put(PairKey(user, "mina"), pair)
        queue = ThreadQueue(closed=memories, next=memories + 1)
        rows.put(UserKey(user), UserRow(memories, {"mina": queue}))
        thread = ThreadRow(
            next_position=closed + 3,
            closed_position=closed,
            closed_windows=memories,
            user_messages=2,
            last_timestamp=1_767_225_600_000,
        )
        rows.put(ThreadKey(user, "mina"), thread)
        changes = rows.encode()
        self.wrapped = pair.key
        await write(self.bootstrap, CHANGELOG, partition_for(user, PARTITIONS), changes.items())

    async def remember(self, user: str, summaries: Sequence[str], terms: Sequence[str]) -> None:
        """Store memories of a user as the indexer does: sealed, with vector and tokens."""
        embedder = OfflineEmbedder()
        vectors = await embedder.embed_documents(summaries)
        await embedder.close()
        rows: list[IndexRow] = []
        for number, (summary, vector) in enumerate(zip(summaries, vectors, strict=True), start=1):
            row = created_row(number, user=user)
            payload = self.cipher.seal(
                row.memory.memory_id,
                user,
                row.memory.characters,
                [self.wrapped],
                MemoryContent(summary=summary, key_details=(Quote(speaker="user", text=summary),)),
            )
            rows.append(replace(row, memory=row.memory.model_copy(update={"payload": payload})))
            opened = np.asarray(vector, dtype="<f4").tobytes()
            rows.append(
                VectorRow(
                    *(row.memory.memory_id, embedder.model, 0, True, number),
                    opened=opened,
                    sealed=None,
                    user_id=user,
                )
            )
            hashes = tuple(self.sealer.hash_token(user, token) for token in index_tokens([terms[number - 1]]))
            rows.append(TokensRow(row.memory.memory_id, 0, hashes, True, number))
        pool = await create_pool(self.database_url)
        try:
            await IndexStore(pool).apply(rows, {})
        finally:
            await pool.close()

    @asynccontextmanager
    async def served(self, **settings: str) -> AsyncIterator[httpx.AsyncClient]:
        """The service as a process of its own; ended with SIGTERM, upon which it must leave with 0."""
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("KEEPSAKE_")},
            "KEEPSAKE_DATA_DIR": str(self.data_dir),
            "KEEPSAKE_KAFKA_BOOTSTRAP": self.bootstrap,
            "KEEPSAKE_DATABASE_URL": self.database_url,
            "KEEPSAKE_PARTITIONS": str(PARTITIONS),
            "KEEPSAKE_HTTP_PORT": "0",
            # Two busy cores must not decide what a test sees.
            "KEEPSAKE_RECALL_DEADLINE_SECONDS": "10",
            "PYTHONPATH": str(Path(__file__).parents[2]),
            **settings,
        }
        command = [
            sys.executable,
            "-c",
            "from streams.settings import Settings\nfrom streams.roles.recall import run\nrun(Settings())",
        ]
        process = subprocess.Popen(command, env=environment)  # noqa: ASYNC220  # starting does not wait
        try:
            url = await self._url(process)
            headers = {"Authorization": f"Bearer {TOKEN}"}
            async with httpx.AsyncClient(base_url=url, headers=headers, timeout=30) as client:
                yield client
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, SECONDS) == 0
        finally:
            process.kill()
            await asyncio.to_thread(process.wait)

    async def _url(self, process: subprocess.Popen[bytes]) -> str:
        beat = self.data_dir / "run" / "recall-0.json"
        async with asyncio.timeout(SECONDS):
            while True:
                assert process.poll() is None, f"the service ended with {process.returncode}"
                if beat.exists():
                    told = orjson.loads(beat.read_bytes())
                    if told["pid"] == process.pid and told["detail"].startswith("http"):
                        return str(told["detail"])
                await asyncio.sleep(0.05)


async def make_world(data_dir: Path, bootstrap: str, server: str) -> World:
    """A world with its own database and data directory, and the topics of the shared broker."""
    database_url = await new_database(server)
    await migrate(database_url)
    world = World(data_dir, bootstrap, database_url)
    await new_topics(bootstrap, TOPICS, PARTITIONS)
    return world


async def ready(client: httpx.AsyncClient, status: int = 200) -> dict[str, Any]:
    """Wait until readiness is as wanted; its body."""
    async with asyncio.timeout(SECONDS):
        while (answer := await client.get("/readyz")).status_code != status:  # noqa: ASYNC110 - another process makes it so
            await asyncio.sleep(0.1)
    body: dict[str, Any] = answer.json()
    return body
