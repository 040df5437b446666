"""`keepsake tasks` with a real PostgreSQL, and --check with a local server that speaks like OpenAI's."""

import asyncio
import getpass
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sql.migrate import migrate
from tests.engines import LocalEngines
from tests.integration.databases import new_database
from tests.integration.wire import CHAT, KEY, Reply, Wire, openai_answer, openai_error


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    async with Wire() as server:
        yield server


class Cli:
    """Runs `keepsake tasks`, with settings that find the database and the server."""

    def __init__(self, directory: Path, dsn: str, wire: Wire) -> None:
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("KEEPSAKE_")},
            "KEEPSAKE_DATA_DIR": str(directory),
            "KEEPSAKE_DATABASE_URL": dsn,
            "KEEPSAKE_OPENAI_BASE_URL": f"{wire.url}/v1",
            "KEEPSAKE_OPENAI_API_KEY": KEY,
        }
        self.environment.pop("GEMINI_API_KEY", None)

    async def run(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output and error; not in a thread: the server runs in this loop."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "streams.cli", "tasks", *arguments),
            env=self.environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), 60)
        assert "Traceback" not in err.decode()
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    async def json(self, *arguments: str) -> list[dict[str, object]]:
        code, out, err = await self.run(*arguments, "--json")
        assert code == 0, err
        found: list[dict[str, object]] = json.loads(out)
        return found


@pytest.fixture
async def cli(database: LocalEngines, tmp_path: Path, wire: Wire) -> Cli:
    dsn = await new_database(database.database_url)
    await migrate(dsn)
    return Cli(tmp_path, dsn, wire)


async def test_an_assignment_is_set_listed_and_remembered(cli: Cli) -> None:
    me = f"cli:{getpass.getuser()}"
    assert {one["model"] for one in await cli.json("list")} == {"offline:keepsake-rules"}
    code, out, _ = await cli.run("set", "extraction", "openai:a", "--fallback", "offline:keepsake-rules")
    assert (code, out) == (0, "extraction is now done by openai:a, then by offline:keepsake-rules\n")
    code, out, _ = await cli.run("set", "extraction", "openai:b")
    assert (code, out) == (0, "extraction is now done by openai:b\n")
    assert "already" in (await cli.run("set", "extraction", "openai:b"))[1]
    listed = {one["task"]: one for one in await cli.json("list")}
    assert (listed["extraction"]["model"], listed["extraction"]["assigned_by"]) == ("openai:b", me)
    assert listed["insight"]["source"] == "default"
    second, first = await cli.json("history")
    assert (first["from_model"], first["to_model"], first["to_fallback"]) == (
        None,
        "openai:a",
        "offline:keepsake-rules",
    )
    assert (second["from_model"], second["to_model"], second["by"]) == ("openai:a", "openai:b", me)
    assert await cli.json("history", "insight") == []
    assert "default -> openai:a" in (await cli.run("history"))[1]


async def test_a_check_calls_every_model_of_it_first(cli: Cli, wire: Wire) -> None:
    wire.replies(Reply(body=openai_answer('{"ready": true}')))
    assert (await cli.run("set", "extraction", "openai:a", "--fallback", "openai:b", "--check"))[0] == 0
    assert [received.body["model"] for received in wire.received] == ["a", "b"]
    await cli.run("set", "extraction", "offline:keepsake-rules", "--check")
    assert len(wire.received) == 2
    assert (await cli.json("list"))[0]["model"] == "offline:keepsake-rules"


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (Reply(status=404, body=openai_error(404)), "does not know this model"),
        (Reply(status=401, body=openai_error(401)), "does not take the key"),
        (Reply(status=503, body=openai_error(503)), "cannot be reached"),
        (Reply(body=openai_answer("Hello! I am ready.")), "does not answer in JSON"),
    ],
    ids=["unknown", "unauthorized", "away", "prose"],
)
async def test_a_check_that_fails_changes_nothing(cli: Cli, wire: Wire, reply: Reply, told: str) -> None:
    wire.replies(reply)
    code, out, err = await cli.run("set", "extraction", "openai:a", "--check")
    assert (code, out) == (1, "")
    assert told in err
    assert "openai:a" in err
    assert KEY not in err
    assert CHAT not in err
    assert await cli.json("history") == []


async def test_a_check_of_what_is_not_configured_says_what_to_do(cli: Cli) -> None:
    code, _, err = await cli.run("set", "extraction", "gemini:gemini-2.5-flash", "--check")
    assert code == 1
    assert "GEMINI_API_KEY" in err


async def test_without_postgresql_it_is_said(cli: Cli) -> None:
    cli.environment["KEEPSAKE_DATABASE_URL"] = "postgresql://nobody@127.0.0.1:1/none"
    for arguments in (("list",), ("history",), ("set", "insight", "openai:a")):
        code, _, err = await cli.run(*arguments)
        assert code == 1
        assert "keepsake status" in err
