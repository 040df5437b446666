"""`GET /v1/tools/{vendor}`: the declarations of memory as a tool (R30)."""

from typing import Any, get_args

from fastapi import APIRouter
from pydantic import BaseModel

from models.tools import Vendor, declarations
from streams.web.problems import Problem


class Declarations(BaseModel):
    """What the vendor's API takes under `tools`."""

    tools: list[dict[str, Any]]


def tools_router() -> APIRouter:
    router = APIRouter(tags=["tools"])

    @router.get("/v1/tools/{vendor}")
    async def get_tools(vendor: str) -> Declarations:
        """The tools for a model of gemini, anthropic, bedrock or openai. What it calls is run by `run_tool` of the
        client, with the user and the characters that the chat service names."""
        for known in get_args(Vendor):
            if vendor == known:
                return Declarations(tools=declarations(known))
        raise Problem(404, f"There are tools for {', '.join(get_args(Vendor))}.")

    return router
