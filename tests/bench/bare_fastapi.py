"""The baseline: FastAPI that runs the SQL of a recall and gives back ids. Usage: bare_fastapi.py PORT DSN ARGUMENTS

ARGUMENTS is a pickled list: the arguments of the query `candidates`, and each request names one by its number.
"""

import asyncio
import pickle
import sys
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from sql.loader import load_queries
from sql.pool import create_pool

PORT, DSN = int(sys.argv[1]), sys.argv[2]
ARGUMENTS: list[tuple[Any, ...]] = pickle.loads(Path(sys.argv[3]).read_bytes())  # noqa: S301  # the bench's own file


class Asked(BaseModel):
    number: int


async def main() -> None:
    pool = await create_pool(DSN, max_size=8)
    statement = load_queries("recall")["candidates"]
    app = FastAPI()

    @app.post("/bare")
    async def bare(asked: Asked) -> list[str]:
        return [str(row["id"]) for row in await pool.fetch(statement, *ARGUMENTS[asked.number])]

    config = uvicorn.Config(app, port=PORT, log_level="warning", access_log=False)
    await uvicorn.Server(config).serve()


asyncio.run(main())
