"""The baseline: an agent of plain Faust that writes one table row a message. Usage: bare_faust.py BOOTSTRAP DIR N"""

import asyncio
import os
import sys

import faust

BOOTSTRAP, DIRECTORY, MESSAGES = sys.argv[1], sys.argv[2], int(sys.argv[3])

app = faust.App(
    "bare-faust",
    broker=f"kafka://{BOOTSTRAP}",
    store="rocksdb://",
    datadir=DIRECTORY,
    web_enabled=False,
    worker_redirect_stdouts=False,
    consumer_auto_offset_reset="earliest",
    topic_disable_leader=True,
    topic_replication_factor=1,
)
counts = app.Table("counts", default=int, partitions=int(os.environ["KEEPSAKE_PARTITIONS"]))
done = asyncio.Event()


@app.agent(app.topic("chat.message", value_type=bytes, value_serializer="raw"))
async def count(stream: faust.StreamT[bytes]) -> None:
    seen = 0
    async for event in stream.events():
        counts[event.key] += 1
        seen += 1
        if seen >= MESSAGES * 9 // 10:
            # Plain Faust drops events at a first start (design, section 3), so the last may never come.
            done.set()


async def main() -> None:
    await app.start()
    await done.wait()
    await asyncio.sleep(3)
    os._exit(0)


asyncio.run(main())
