"""The Faust app that every worker role is, with Faust bent where it must be (design, section 3).

What is bent, and why:
- consumers are `read_committed`; the driver has no setting for it, so its consumer thread is subclassed;
- offsets are noted as they are fetched, and partitions sought back when Faust drops events
  (streams/delivery.py): the driver's consumer is subclassed;
- positions come from us, not from Faust's acknowledgements: `perform_seek`;
- Faust's web pages are open to everybody, its topic creation ignores our configurations, its leader
  topic is not needed: off.

    app = make_app(settings, EXTRACTOR_GROUP, role="extractor")
    consume(app, [REQUESTED], handler, concurrency=8)      # streams/consume.py
    raise SystemExit(run_app(app))                         # streams/run.py
"""

import asyncio
import hashlib
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import faust
from aiokafka.errors import IllegalStateError
from faust.transport.consumer import RecordMap
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from streams.delivery import Deliveries
from streams.places import kafka_bootstrap
from streams.settings import Settings

# Faust's driver asks the broker to hold an empty fetch for 1.5 s. A partition whose records were held
# back joins the next fetch only, so that is how late it may be.
FETCH_WAIT_MS = 250
# Past this many events that wait for another topic, a partition is not fetched further.
HELD_BACK = 2_000


class ConsumerThread(driver.AIOKafkaConsumerThread):
    """The driver's consumer thread, reading committed records only."""

    def _create_worker_consumer(self, transport: Any) -> Any:
        self.consumer.in_transaction = True  # the only thing the driver derives the isolation level from
        try:
            consumer = super()._create_worker_consumer(transport)
        finally:
            self.consumer.in_transaction = False
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS
        return consumer

    async def committed(self, tps: Iterable[TP]) -> dict[TP, int | None]:
        wanted = list(tps)

        async def ask() -> list[int | None]:
            consumer = self._ensure_consumer()
            return list(await asyncio.gather(*(consumer.committed(tp) for tp in wanted)))

        found: list[int | None] = await self.call_thread(ask)
        return dict(zip(wanted, found, strict=True))

    def partition_state(self, tp: TP) -> tuple[int, int] | None:
        """Fetch position and end of a partition as last fetched; None before the first fetch."""
        subscription = self._ensure_consumer()._subscription.subscription
        assignment = subscription.assignment if subscription else None
        state = assignment.state_value(tp) if assignment and tp in assignment.tps else None
        if state is None or not state.has_valid_position or state.highwater is None:
            return None
        return int(state.position), int(state.highwater)


class Consumer(driver.Consumer):
    """The driver's consumer, with every fetched offset noted and positions of our own."""

    app: "StreamApp"
    _thread: ConsumerThread
    _interrupted = False

    def _new_consumer_thread(self) -> ConsumerThread:
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def committed(self, tps: Iterable[TP]) -> dict[TP, int | None]:
        """The group's committed offsets, None where there are none."""
        return await self._thread.committed(tps)

    async def perform_seek(self) -> None:
        deliveries = self.app.deliveries
        assignment = self.assignment()
        positions = {tp: at for tp, at in deliveries.positions().items() if tp in assignment}
        try:
            if positions:
                await self.seek_wait(positions)
        finally:
            deliveries.rewound(positions)

    async def _wait_next_records(  # Faust calls it so
        self,
        timeout: float,  # noqa: ASYNC109 - Faust's own signature
    ) -> tuple[RecordMap | None, set[TP] | None]:
        if not self.flow_active:
            await self.wait(self.can_resume_flow)  # type: ignore[arg-type]  # as Faust itself does
        deliveries = self.app.deliveries
        try:
            if self._interrupted:
                await self.perform_seek()
                self._interrupted = False
            lost = deliveries.lost()
            if lost:
                self.log.info("Reading %d partitions again from events that Faust dropped", len(lost))
                await self.seek_wait(lost)
                deliveries.rewound(lost)
        except (IllegalStateError, TimeoutError):
            self._interrupted = True  # partitions were revoked meanwhile, or the broker is away
        active = self._get_active_partitions()
        held = self.app.held_back() & active
        if held:
            active, timeout = active - held, 0.1  # a copy: look again soon
        if not active:  # an empty set would ask the driver for everything
            await asyncio.sleep(0.05)
            return {}, active
        epoch = deliveries.epoch
        interrupted, self._interrupted = self._interrupted, True
        records: RecordMap = await self._getmany(active_partitions=active, timeout=timeout)
        self._interrupted = interrupted
        if epoch != deliveries.epoch:
            # A seek came between: whether these were read before or after it cannot be known.
            sources = deliveries.topics
            records = {tp: found for tp, found in records.items() if tp.topic not in sources}
            self._interrupted = True
            return records, active
        for tp, found in records.items():
            deliveries.fetched(TP(tp.topic, tp.partition), [record.offset for record in found])
        # Read here, between two fetches: at other times the thread may be ahead of what was noted.
        for tp in deliveries.fetched_to:
            state = self._thread.partition_state(tp)
            if state is not None:
                deliveries.fetched_to[tp] = state[0]
        return records, active


class Transport(driver.Transport):
    Consumer = Consumer


class StreamApp(faust.App):
    """A Faust app whose offsets are ours. Made by `make_app`, run by `run_app`.

    `first_positions` may be replaced: given the assigned partitions, where to read them from (default:
    the group's committed offsets). Hooks, all in the app's loop: `on_cancel` when a rebalance starts,
    `on_revoked` before the partitions go, `on_assigned` with the positions of the new ones (after table
    recovery), `on_stopping` before the app leaves its group.
    """

    consumer: Consumer

    def __init__(
        self, group: str, *, settings: Settings, role: str, instance: str, bootstrap: str, **conf: Any
    ) -> None:
        super().__init__(group, broker=broker_url(bootstrap), **conf)
        self.bootstrap = bootstrap
        self.settings = settings
        self.role = role
        self.instance = instance
        self.deliveries = Deliveries()
        self.failure: str | None = None
        self.stopping = asyncio.Event()
        #: How often what is finished is committed; None where the loop commits in transactions.
        self.commit_seconds: float | None = None
        self.on_cancel: list[Callable[[], None]] = []
        self.on_revoked: list[Callable[[], Awaitable[None]]] = []
        self.on_assigned: list[Callable[[Mapping[TP, int]], None]] = []
        self.on_stopping: list[Callable[[], Awaitable[None]]] = []
        self.held_back: Callable[[], set[TP]] = set
        self.first_positions: Callable[[set[TP]], Awaitable[Mapping[TP, int]]] = self.committed_positions
        self.on_partitions_revoked.connect(self._revoked)
        self.on_rebalance_complete.connect(self._assigned)

    def _new_transport(self) -> Transport:
        return Transport(self.conf.broker_consumer, self)

    def fail(self, reason: str) -> None:
        """Stop the role with exit code 1. `reason` is printed: never any text of a message in it."""
        self.failure = self.failure or reason
        self.stopping.set()

    def on_rebalance_start(self) -> None:
        """Called by Faust in the consumer's thread, before it waits for anything."""
        super().on_rebalance_start()
        for cancel in self.on_cancel:
            self.loop.call_soon_threadsafe(cancel)

    async def _revoked(self, *_args: Any, **_kwargs: Any) -> None:
        for hook in self.on_revoked:
            await hook()
        self.deliveries.clear()

    async def _assigned(self, *_args: Any, **_kwargs: Any) -> None:
        """Tables are recovered (or there are none): fix where each partition is read from."""
        sources = self.deliveries.topics
        tps = {tp for tp in self.consumer.assignment() if tp.topic in sources}
        rebalances = self.rebalancing_count
        positions = await self.first_positions(tps)
        if rebalances != self.rebalancing_count:
            return  # the next rebalance has begun meanwhile: these partitions are not ours to read
        self.deliveries.reset(positions)
        for hook in self.on_assigned:
            hook(positions)

    async def committed_positions(self, tps: set[TP]) -> Mapping[TP, int]:
        """The group's committed offsets; the start of the log where it has none."""
        if not tps:
            return {}
        committed = await self.consumer.committed(tps)
        starts = await self.consumer.earliest_offsets(*tps)
        return {tp: starts.get(tp) or 0 if (at := committed[tp]) is None else at for tp in tps}

    async def commit_finished(self) -> None:
        """Commit, for each assigned partition, the offset up to which every agent has finished."""
        finished = {
            tp: at
            for tp, at in self.deliveries.committable().items()
            if self.consumer._committed_offset[tp] != at
        }
        if finished and await self.consumer._commit(finished):
            self.consumer._committed_offset.update(finished)

    def lag(self) -> int:
        """Events between what is finished and the end of the assigned partitions, as last fetched."""
        total = 0
        for tp in self.deliveries.positions():
            state = self.consumer._thread.partition_state(tp)
            # From the fetch position, not the next offset: it is past a transaction's marker too.
            total += self.deliveries.backlog(tp) + (max(0, state[1] - state[0]) if state else 0)
        return total


def broker_url(bootstrap: str) -> str:
    return ";".join(f"kafka://{server.strip()}" for server in bootstrap.split(",") if server.strip())


def make_app(
    settings: Settings,
    group: str,
    *,
    role: str,
    instance: str = "0",
    bootstrap: str | None = None,
    **conf: Any,
) -> StreamApp:
    """A Faust app of this group; its files are below `data_dir/roles/<role>-<instance>`.

    `bootstrap` (host:port,…) defaults to that of the settings, or of the local engines (PlaceUnknown:
    neither). `conf` overrides Faust's settings.
    """
    servers = bootstrap or kafka_bootstrap(settings)
    directory = role_directory(settings, role, instance)
    options: dict[str, Any] = {
        "datadir": directory,
        "store": "rocksdb://",
        "autodiscover": False,
        "web_enabled": False,
        "worker_redirect_stdouts": False,
        "topic_allow_declare": False,
        "topic_disable_leader": True,
        "table_standby_replicas": 0,
        "stream_wait_empty": False,
        "stream_buffer_maxsize": 4_096,
        "consumer_auto_offset_reset": "earliest",
        "consumer_group_instance_id": group_instance_id(role, instance, directory),
        "broker_session_timeout": settings.session_timeout_seconds,
        "broker_heartbeat_interval": settings.session_timeout_seconds / 3,
        # Kept members that are slow: backpressure must not make a worker leave for good.
        "broker_max_poll_interval": 86_400.0,
        "stream_processing_timeout": 86_400.0,
        "broker_commit_livelock_soft_timeout": 86_400.0,
    }
    return StreamApp(
        group, settings=settings, role=role, instance=instance, bootstrap=servers, **{**options, **conf}
    )


def group_instance_id(role: str, instance: str, directory: Path) -> str:
    """Who this worker is to its group: the same after a restart, so that it takes up its partitions at
    once, instead of after the session timeout of the process that it follows."""
    place = hashlib.sha256(f"{socket.gethostname()}:{directory.resolve()}".encode()).hexdigest()
    return f"{role}-{instance}-{place[:12]}"


def role_directory(settings: Settings, role: str, instance: str) -> Path:
    return settings.data_dir / "roles" / f"{role}-{instance}"
