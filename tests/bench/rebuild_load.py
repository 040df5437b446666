"""A write load like that of a rebuild: memories with vectors and tokens, without a pause. Usage: rebuild_load.py DSN"""

import asyncio
import sys
from itertools import count

from models.index_rows import IndexRow
from sql.index_store import IndexStore
from sql.pool import create_pool
from tests.integration.databases import created_row, tokens_row, unit_vector, vector_row

BATCH = 100
USERS = [f"rebuilt-{at}" for at in range(BATCH)]
PAYLOAD = b"?" * 1_100
WORDS = 30


async def main() -> None:
    pool = await create_pool(sys.argv[1])
    store = IndexStore(pool)
    made = [(user, unit_vector(at), [f"{user} {n}" for n in range(WORDS)]) for at, user in enumerate(USERS)]
    for batch in count():
        rows: list[IndexRow] = []
        for at, (user, vector, words) in enumerate(made):
            number = batch * BATCH + at
            rows += [
                created_row(number, user=user, payload=PAYLOAD),
                vector_row(number, vector, user=user),
                tokens_row(number, *words),
            ]
        await store.apply(rows, {})


if __name__ == "__main__":
    asyncio.run(main())
