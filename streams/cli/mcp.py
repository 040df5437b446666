"""`mcp`: an MCP server on standard input and output."""

import asyncio
from importlib.metadata import version
from typing import Annotated

import typer

from streams.cli.common import fail, load_settings
from streams.cli.recall import CharacterOption

# Nobody waits for an MCP tool as they do for a turn.
ANSWER_SECONDS = 5.0


def mcp(
    user: Annotated[str, typer.Option("--user", "-u", help="The user whose memories are served.")],
    character: CharacterOption,
) -> None:
    """Serve the memories of a user with some characters to an MCP client, and nobody else's.

    The tools are recall, context and timeline. Standard output is the protocol's; ends when the client goes.
    """
    settings = load_settings()
    try:
        from streams.mcp_server import MemoryServer
    except ImportError:
        fail("the MCP SDK is not installed: pip install 'keepsake[mcp]'")
    from streams.cli.service import bearer_token
    from streams.client import AsyncKeepsake
    from streams.places import recall_url

    url = recall_url(settings)
    if url is None:
        fail("the recall service is not running: start it with `keepsake up`")
    characters = [one for given in character for one in given.split(",") if one]

    async def serve() -> None:
        async with AsyncKeepsake(url, bearer_token(settings), recall_seconds=ANSWER_SECONDS) as client:
            await MemoryServer(client, user, characters, version("keepsake")).serve()

    asyncio.run(serve())


def add_to(app: typer.Typer) -> None:
    app.command()(mcp)
