"""R30: an MCP client (the SDK's own) on `keepsake mcp`, a process, on the recall service, another."""

import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp import StdioServerParameters, types
from mcp.client.session import ClientSession
from mcp.client.stdio import stdio_client

from models.phrases import PHRASES
from tests.engines import LocalEngines
from tests.integration.recall_service import World, make_world, ready

SUMMARIES = ["지수는 매운 떡볶이를 좋아한다.", "Jisu has a cat called Nabi."]
TERMS = ["떡볶이 음식", "cat Nabi"]


@pytest.fixture
def own_engines() -> Iterator[LocalEngines]:
    """The topics have their real names here, so that the broker is not shared."""
    with LocalEngines() as running:
        yield running


@pytest.fixture
async def world(own_engines: LocalEngines, tmp_path: Path) -> World:
    made = await make_world(tmp_path, own_engines.bootstrap, own_engines.database_url)
    await made.talk("jisu", 2)
    await made.remember("jisu", SUMMARIES, TERMS)
    return made


@asynccontextmanager
async def session(world: World, user: str = "jisu") -> AsyncIterator[ClientSession]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KEEPSAKE_")}
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "streams.cli", "mcp", "--user", user, "--character", "mina"],
        env={
            **kept,
            "KEEPSAKE_DATA_DIR": str(world.data_dir),
            "PYTHONPATH": str(Path(__file__).parents[2]),
        },
    )
    async with stdio_client(server) as (reading, writing), ClientSession(reading, writing) as opened:
        await opened.initialize()
        yield opened


async def told(opened: ClientSession, name: str, **arguments: object) -> tuple[str, bool]:
    result = await opened.call_tool(name, arguments)
    assert isinstance(result, types.CallToolResult)
    [content] = result.content
    assert isinstance(content, types.TextContent)
    return content.text, bool(result.is_error)


async def test_an_mcp_client_recalls_composes_and_lists(world: World) -> None:
    async with world.served() as service:
        await ready(service)
        async with session(world) as opened:
            listed = await opened.list_tools()
            assert {tool.name for tool in listed.tools} == {"recall", "context", "timeline"}
            for tool in listed.tools:
                assert tool.input_schema["type"] == "object"
                # Nobody can be chosen but whom the server was started for.
                assert not {"user_id", "character_ids"} & set(tool.input_schema["properties"])

            text, is_error = await told(opened, "recall", query="고양이 이름이 뭐야?")
            found = json.loads(text)
            assert not is_error
            assert {memory["summary"] for memory in found["memories"]} == set(SUMMARIES)

            text, is_error = await told(opened, "timeline", date_from="2026-01-01", date_to="2026-01-01")
            assert [memory["summary"] for memory in json.loads(text)["memories"]] == SUMMARIES

            text, is_error = await told(opened, "timeline", date_from="2026-01-01")
            assert is_error
            assert "date_to" in json.loads(text)["error"]

            text, is_error = await told(opened, "context", query="나 뭐 좋아해?")
            assert not is_error
            assert SUMMARIES[0] in text
            assert PHRASES["ko"].if_unknown in text
            assert "[user] 나 뭐 좋아해?" in text

            text, is_error = await told(opened, "recall", query="x", user_id="someone", character_ids=["x"])
            assert len(json.loads(text)["memories"]) == len(SUMMARIES)
            text, is_error = await told(opened, "forget", query="x")
            assert is_error
        async with session(world, user="someone else") as opened:
            text, _ = await told(opened, "recall", query="고양이 이름이 뭐야?")
            assert json.loads(text)["memories"] == []
            assert "do not know" in json.loads(text)["note"]


async def test_a_service_that_goes_away_is_told_and_the_server_stays(world: World) -> None:
    async with world.served() as service:
        await ready(service)
        opening = session(world)
        opened = await opening.__aenter__()
        await told(opened, "recall", query="cat")
    text, _ = await told(opened, "recall", query="dog")
    answer = json.loads(text)
    assert answer["memories"] == []
    assert "cannot be searched" in answer["note"]
    text, is_error = await told(opened, "context", query="Who am I?")
    assert is_error
    assert PHRASES["en"].if_unknown in text
    await opening.__aexit__(None, None, None)
