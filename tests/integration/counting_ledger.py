"""A ledger with a step that counts: one row per key, and one output per message with the count it made.

Run as a process by test_transaction.py: `python -m tests.integration.counting_ledger INSTANCE [CLEARS]`,
settings from the environment. Keys of commands and ticks are the chat.message offsets that they wait for.
With CLEARS, Faust's queues are emptied so many times while they fill.
"""

import asyncio
import sys
from collections.abc import Iterable, Sequence
from functools import partial

from agents.ports import RowSource
from models.records import Batch, Output, Record
from models.topics import CHAT, COMMAND, REQUESTED, TICK
from streams.faust_app import StreamApp, make_app
from streams.ledger_loop import Ledger
from streams.recovery import FencedTables
from streams.run import run_app
from streams.settings import Settings
from streams.topics import LEDGER_GROUP


class Counting:
    """Row `count␟key` → how many messages of that key; output of a message → key and its number."""

    def chat_offset(self, record: Record) -> int | None:
        return int(record.key or b"0") if record.topic in (COMMAND, TICK) else None

    def fold(self, partition: int, records: Sequence[Record], rows: RowSource) -> Batch:
        changes: dict[bytes, bytes | None] = {}
        outputs: list[Output] = []
        for record in records:
            row = b"count\x1f" + (record.key or b"") if record.topic == CHAT else record.topic.encode()
            number = int(changes.get(row) or rows.get(row) or 0) + 1
            changes[row] = str(number).encode()
            key = record.key or b""
            outputs.append(
                Output(REQUESTED, partition, key, f"{record.topic} {number} {record.offset}".encode())
            )
        return Batch(tuple(outputs), changes)

    def assigned(self, partition: int, items: Iterable[tuple[bytes, bytes]]) -> None:
        rows = sum(int(value) for key, value in items if key.startswith(b"count"))
        print(f"assigned {partition} {rows}", flush=True)

    def revoked(self, partition: int) -> None:
        print(f"revoked {partition}", flush=True)

    def committed(self, partition: int, batch: Batch) -> None:
        pass

    def due(self, partition: int, now_ms: int, chat_end: int) -> list[Output]:
        return []


async def lose_events(app: StreamApp, times: int) -> None:
    """What Faust does when it resumes with queues that are filled already."""
    for _ in range(times):
        while not any(queue.qsize() for queue in app.flow_control._queues):  # noqa: ASYNC110 - Faust fills them, without an event
            await asyncio.sleep(0)
        app.flow_control.clear()
        print("cleared", flush=True)


def main() -> None:
    app = make_app(Settings(), LEDGER_GROUP, role="ledger", instance=sys.argv[1], TableManager=FencedTables)
    ledger = Ledger(app, Counting())
    if len(sys.argv) > 2:
        app.task(partial(lose_events, app, int(sys.argv[2])))
    raise SystemExit(run_app(app, setup=ledger.setup, healthy=ledger.healthy))


if __name__ == "__main__":
    main()
