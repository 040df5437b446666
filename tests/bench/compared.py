"""The recall service and its baseline, running and asked alike."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import orjson

from tests.bench.beside import Arguments, bare_service, sql_arguments
from tests.bench.population import CHARACTER
from tests.bench.talk import queries
from tests.integration.recall_service import TOKEN, World, ready

Ask = Callable[[str], Awaitable[list[str]]]
# A service that nobody hurries: the bench wants to know how long it takes.
SETTINGS = {"KEEPSAKE_RECALL_DEADLINE_SECONDS": "30"}


def user_of(size: int) -> str:
    """The user whose pair has so many memories."""
    return f"measured-{size}"


@dataclass(frozen=True)
class Compared:
    """Ways to ask a pair of some size for its memories; each gives ids. An answer that is not whole is an error.

    `newcomers` opens a connection for each request; `pid` and `bare_pid` are the two processes.
    """

    kept: aiohttp.ClientSession
    newcomers: aiohttp.ClientSession
    baseline: aiohttp.ClientSession
    arguments: dict[tuple[str, str], Arguments]
    pid: int
    bare_pid: int

    def service(self, size: int, *, explain: bool = False) -> Ask:
        return lambda query: ask_service(self.kept, size, query, explain=explain)

    def newcomer(self, size: int) -> Ask:
        return lambda query: ask_service(self.newcomers, size, query)

    def bare(self, size: int) -> Ask:
        """The ids of every candidate."""
        numbers = {
            query: number for number, (user, query) in enumerate(self.arguments) if user == user_of(size)
        }

        async def ask(query: str) -> list[str]:
            async with self.baseline.post("/bare", json={"number": numbers[query]}) as answer:
                assert answer.status == 200, await answer.text()
                ids: list[str] = await answer.json()
                return ids

        return ask


async def ask_service(
    session: aiohttp.ClientSession, size: int, query: str, *, explain: bool = False
) -> list[str]:
    body = {"user_id": user_of(size), "character_ids": [CHARACTER], "query": query, "explain": explain}
    async with session.post("/v1/recall", json=body) as answer:
        assert answer.status == 200, await answer.text()
        found = await answer.json()
    assert found["degraded"] is None, found["degraded"]
    assert len(found["memories"]) == min(12, size), len(found["memories"])
    return [memory["id"] for memory in found["memories"]]


@asynccontextmanager
async def compared(world: World, sizes: Sequence[int]) -> AsyncIterator[Compared]:
    users = [user_of(size) for size in sizes]
    arguments = await sql_arguments(world.database_url, world.sealer, users, queries())
    async with (
        served(world) as (url, headers),
        bare_service(world.database_url, list(arguments.values()), world.data_dir) as (bare_url, bare_pid),
        aiohttp.ClientSession(url, headers=headers) as kept,
        aiohttp.ClientSession(
            url, headers=headers, connector=aiohttp.TCPConnector(force_close=True)
        ) as newcomers,
        aiohttp.ClientSession(bare_url) as baseline,
    ):
        beat = orjson.loads((world.data_dir / "run" / "recall-0.json").read_bytes())
        yield Compared(kept, newcomers, baseline, arguments, int(beat["pid"]), bare_pid)


@asynccontextmanager
async def served(world: World) -> AsyncIterator[tuple[str, dict[str, str]]]:
    """The service, ready, that nobody has asked for a memory yet: its URL, and the headers it wants."""
    async with world.served(**SETTINGS) as client:
        await ready(client)
        yield str(client.base_url), {"Authorization": f"Bearer {TOKEN}"}
