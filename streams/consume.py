"""The consume loop of every role: what a handler must be, and when its offsets are committed.

A stateless role (extractor, indexer) is wired like this:

    app = make_app(settings, EXTRACTOR_GROUP, role="extractor", instance=instance)
    consume(app, [REQUESTED], handler, concurrency=8)       # handler.handle(record), up to 8 at once
    consume_batches(app, [CREATED, CHANGED], batch_handler)  # batch_handler.handle_batch(records)
    raise SystemExit(run_app(app))                           # streams/run.py; until SIGTERM or a failure

- One app may have several agents, on the same topics too: a partition's committed offset is that of
  the slowest. Names of agents default to the handler's class.
- `handle` returns when the record's effects are lasting. Its own retries are its own affair; an exception
  that leaves it stops the role with exit code 1 and the record's coordinates in the log (never its text).
- `handle_batch` gets up to `limit` records of one partition number, each topic's in order; different
  partitions run at once up to `concurrency`.
- When a rebalance starts, work in flight is cancelled (`CancelledError` in the handler), what is done
  is committed, and nothing is committed later. Cancelled records come again.
- Set up collaborators that need the running loop with `run_app(app, setup=…)`; see there.

Results are sent by the role itself, with a plain `AIOKafkaProducer(acks="all", enable_idempotence=True)`,
to `partition=partition_for(user_id, settings.partitions)` (streams/partitioner.py).
"""

import asyncio
import logging
import time
import traceback
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol, cast

from faust.types import TP, ChannelT, EventT, StreamT

from agents.ports import RowSource
from models.records import Batch, Output, Record
from streams.delivery import Feed
from streams.faust_app import StreamApp

log = logging.getLogger(__name__)

COMMIT_SECONDS = 0.5


class Handler(Protocol):
    async def handle(self, record: Record) -> None:
        """Return when the record's effects are lasting; raise to stop the role."""


class BatchHandler(Protocol):
    async def handle_batch(self, records: Sequence[Record]) -> None:
        """The same for records of one partition number, those of one topic in order."""


class Step(Protocol):
    """What the ledger does with events: pure, CPU only. Called in the app's loop, never two at once."""

    def chat_offset(self, record: Record) -> int | None:
        """The chat.message offset (exclusive) that must be folded before this tick or flush, else None."""

    def fold(self, partition: int, records: Sequence[Record], rows: RowSource) -> Batch:
        """What these events come to, given the committed rows. Nothing of it holds until `committed`."""

    def assigned(self, partition: int, items: Iterable[tuple[bytes, bytes]]) -> None:
        """All rows of a partition that is ours now: rebuild what is derived from them."""

    def revoked(self, partition: int) -> None: ...

    def committed(self, partition: int, batch: Batch) -> None:
        """The batch is in the log and in the rows."""

    def due(self, partition: int, now_ms: int, chat_end: int) -> list[Output]:
        """The ticks to send now; `chat_end` is the end of the partition's chat.message."""


def frames(error: BaseException) -> str:
    """Where an error was raised, without its message, which may quote what people said."""
    return "".join(traceback.format_tb(error.__traceback__))


def to_record(event: EventT[Any]) -> Record:
    message = event.message
    headers: Any = message.headers or ()
    return Record(
        message.topic,
        message.partition,
        message.offset,
        round((message.timestamp or 0.0) * 1000),
        message.key,
        message.value,
        tuple(headers),
    )


def source(app: StreamApp, topics: Iterable[str]) -> Any:
    """The topics as bytes: `value_type=bytes` alone would still run the JSON decoder."""
    return app.topic(
        *topics,
        acks=False,
        key_type=bytes,
        key_serializer="raw",
        value_type=bytes,
        value_serializer="raw",
    )


async def next_events(stream: StreamT[Any], feed: Feed, limit: int) -> list[EventT[Any]]:
    """The next events of this agent that are its to finish: at most `limit`, no waiting for more than one.
    None at all when the agent is to end.

    They are taken from the stream's queue, not by iterating it: per event that costs a third.
    """
    queue = cast(ChannelT[Any], stream.channel).queue
    taken: list[EventT[Any]] = []
    while not taken:
        if queue.empty():
            feed.idle_since = time.monotonic()
        try:
            event = await queue.get()
        except StopAsyncIteration:  # how Faust ends a stream
            return []
        feed.idle_since = None
        while True:
            message = event.message
            if feed.take(message.tp, message.offset):
                taken.append(event)
            if len(taken) >= limit or queue.empty():
                break
            event = queue.get_nowait()
    return taken


class Worker:
    """One agent's work in flight: at most `concurrency` pieces, cancelled when a rebalance starts."""

    def __init__(self, app: StreamApp, feed: Feed, concurrency: int) -> None:
        self._app = app
        self._feed = feed
        self._slots = asyncio.Semaphore(concurrency)
        self._running: set[asyncio.Task[None]] = set()
        app.on_cancel.append(self.cancel)
        app.on_revoked.append(self.settle)
        app.on_stopping.append(self.settle)

    def cancel(self) -> None:
        for task in self._running:
            task.cancel()

    async def settle(self) -> None:
        """Cancel what is in flight, wait until it has stopped, and commit what is done."""
        self.cancel()
        await self.wait()
        await self._app.commit_finished()

    async def wait(self) -> None:
        """Wait until nothing is in flight."""
        while self._running:
            await asyncio.wait(self._running)

    async def start(self, records: Sequence[Record], work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` for these records as soon as there is a slot; raises nothing."""
        await self._slots.acquire()
        if self._app.stopping.is_set():  # not finished, so not committed: it comes again
            self._slots.release()
            return
        task = asyncio.create_task(self._run(records, work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, records: Sequence[Record], work: Callable[[], Awaitable[None]]) -> None:
        expected = self._feed.expected  # replaced at the next assignment
        try:
            await work()
        except asyncio.CancelledError:
            return
        except Exception as error:  # noqa: BLE001  # whatever it is, the role must not go on
            first = records[0]
            reason = f"{type(error).__name__} at {first.topic}/{first.partition}/{first.offset}"
            log.error("Stopping: a handler gave up with %s\n%s", reason, frames(error))
            self._app.fail(f"a handler gave up with {reason}")
            return
        finally:
            self._slots.release()
        if expected is self._feed.expected:
            for record in records:
                self._feed.finished(TP(record.topic, record.partition), record.offset)


def consume(
    app: StreamApp, topics: Iterable[str], handler: Handler, *, concurrency: int = 1, name: str | None = None
) -> None:
    """Add an agent that hands each record to `handler.handle`, up to `concurrency` at once.

    Records of one partition run at once too, and may end out of order.
    """
    feed = app.deliveries.feed(topics)
    worker = Worker(app, feed, concurrency)

    async def agent(stream: StreamT[Any]) -> None:
        while events := await next_events(stream, feed, 1):
            for record in map(to_record, events):
                await worker.start([record], partial(handler.handle, record))

    _add(app, topics, agent, name or type(handler).__name__)


def consume_batches(
    app: StreamApp,
    topics: Iterable[str],
    handler: BatchHandler,
    *,
    concurrency: int = 1,
    limit: int = 500,
    name: str | None = None,
) -> None:
    """Add an agent that hands what has arrived, by partition number, to `handler.handle_batch`.

    A partition's next batch starts when its last one is done; at most `concurrency` run at once.
    """
    feed = app.deliveries.feed(topics)
    worker = Worker(app, feed, concurrency)

    async def agent(stream: StreamT[Any]) -> None:
        while events := await next_events(stream, feed, limit):
            by_partition: dict[int, list[Record]] = defaultdict(list)
            for event in events:
                by_partition[event.message.partition].append(to_record(event))
            for records in by_partition.values():
                await worker.start(records, partial(handler.handle_batch, records))
            await worker.wait()

    _add(app, topics, agent, name or type(handler).__name__)


def _add(app: StreamApp, topics: Iterable[str], agent: Any, name: str) -> None:
    app.commit_seconds = COMMIT_SECONDS
    app.agent(source(app, topics), name=f"{app.role}.{name}")(agent)
