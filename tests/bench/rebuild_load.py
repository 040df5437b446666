"""A write load like that of a rebuild: memories with vectors and tokens, without a pause. Usage: rebuild_load.py DSN"""

import asyncio
import sys
from itertools import count

from models.index_rows import IndexRow
from sql.index_store import IndexStore
from sql.pool import create_pool
from tests.integration.databases import created_row, tokens_row, unit_vector, vector_row

BATCH = 100


async def main() -> None:
    pool = await create_pool(sys.argv[1])
    store = IndexStore(pool)
    vectors = [unit_vector(seed) for seed in range(BATCH)]
    for batch in count():
        rows: list[IndexRow] = []
        for at, vector in enumerate(vectors):
            number, user = batch * BATCH + at, f"rebuilt-{at}"
            rows += [
                created_row(number, user=user),
                vector_row(number, vector, user=user),
                tokens_row(number, "aa", "bb", f"t{number}"),
            ]
        await store.apply(rows, {})


asyncio.run(main())
