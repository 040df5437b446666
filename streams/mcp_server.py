"""`keepsake mcp`: memory for any MCP client, over standard input and output, of one user and their characters (R30).

User and characters are fixed when the server is started, so that a model cannot ask for another's memories.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from models.context import ContextResponse
from models.tools import MOST_QUERY, RECALL, TIMELINE, Tool
from streams.client import AsyncKeepsake

CONTEXT = Tool(
    name="context",
    description="What is known before answering: where the relationship stands, plans of today, the memories that fit "
    "the message, and the recent talk. Call it at the start of a conversation, or with the user's message.",
    parameters={
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "the message that is to be answered; may be left out"}
        },
    },
)
# The definitions are those of the tools for models; here each stands under the name of its command.
TOOLS = {"recall": RECALL, CONTEXT.name: CONTEXT, TIMELINE.name: TIMELINE}


class MemoryServer:
    """Answers the tools with a client of the recall service."""

    def __init__(
        self, client: AsyncKeepsake, user_id: str, character_ids: Sequence[str], version: str
    ) -> None:
        self._client = client
        self._user = user_id
        self._characters = list(character_ids)
        self._server: Server[Any] = Server(
            "keepsake",
            version=version,
            instructions=f"Long-term memory of {user_id} with {', '.join(character_ids)}.",
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )

    async def serve(self) -> None:
        """Serve until the client closes its end."""
        async with stdio_server() as (reading, writing):
            await self._server.run(reading, writing, self._server.create_initialization_options())

    async def _list_tools(self, _context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(name=name, description=tool.description, input_schema=tool.parameters)
                for name, tool in TOOLS.items()
            ]
        )

    async def _call_tool(self, _context: Any, call: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            text, is_error = await self._answer(call.name, call.arguments or {})
        except Exception as error:  # noqa: BLE001  # a tool's failure is its result, and says nothing of the talk
            text, is_error = f"Memory cannot be reached ({type(error).__name__}).", True
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=is_error)

    async def _answer(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        """The text of an answer, and whether it is an error."""
        if name == CONTEXT.name:
            found = await self._client.context(
                user_id=self._user,
                character_ids=self._characters,
                query=str(arguments.get("query") or "")[:MOST_QUERY],
            )
            return _told(found), found.degraded == "unreachable"
        tool = TOOLS.get(name)
        answer = await self._client.run_tool(
            tool.name if tool else name, arguments, user_id=self._user, character_ids=self._characters
        )
        return json.dumps(answer, ensure_ascii=False), "error" in answer


def _told(context: ContextResponse) -> str:
    talk = [f"[{message.role}] {message.content}" for message in context.messages]
    return "\n\n".join([context.system, *talk])
