"""The ledger's table: what Faust recovers, when, and how its rows are written (design, section 3).

Faust's table gives the files, one RocksDB per partition, and their recovery from the changelog. It is not
written through: `table[key] = …` would send a changelog record of its own, outside the transaction. So
rows are read and written at the partition's file, with the changelog offset in the same write.

Before each recovery, for partitions that were ours before too, in this order:
1. new transactional producers, which fence the previous owner and settle what is in flight. Offsets read
   earlier are stale half of the time: a transaction's end is answered before its markers are written;
2. one plain tombstone to each changelog partition: recovery ends when it has seen the last offset, and a
   transaction leaves a marker there, which no consumer ever sees;
3. only then the ends that recovery runs to, and (after it) the offsets that reading starts from.
No standby replicas: recovery clears their queued rows.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, cast

import orjson
import rocksdict
from faust.stores.rocksdb import Store
from faust.tables.manager import TableManager
from faust.tables.recovery import Recovery
from faust.types import TP

from streams.faust_app import StreamApp
from streams.topics import STATE_TABLE

log = logging.getLogger(__name__)

#: The row with the next offset of each source topic: state and position are one.
OFFSETS_KEY = b"offsets"
#: The key of the tombstone that ends a recovery.
RECOVERY_KEY = b"recovery"

# Per partition file; rocksdict's own block cache would be 2 GiB each.
BLOCK_CACHE_BYTES = 8 * 2**20
WRITE_BUFFER_BYTES = 8 * 2**20


class FencedRecovery(Recovery):
    """Faust's recovery, after the previous owners are fenced."""

    async def _build_highwaters(self, consumer: Any, tps: set[TP], destination: Any, title: str) -> None:
        if title == "active":
            await cast(FencedTables, self.tables).fence({tp.partition for tp in tps})
        await super()._build_highwaters(consumer, tps, destination, title)


class FencedTables(TableManager):
    """Faust's tables. `fence` is awaited with the assigned partitions before each recovery."""

    fence: Callable[[set[int]], Awaitable[None]]

    async def on_start(self) -> None:
        """As Faust's, without its pause of a second for tables that are declared late: there is one."""
        await self._update_channels()
        await self.recovery.start()

    @property
    def recovery(self) -> Recovery:
        if self._recovery is None:
            self._recovery = FencedRecovery(self.app, self, beacon=self.beacon, loop=self.loop)
        return self._recovery


class Rows:
    """The committed rows of one partition."""

    def __init__(self, file: Any) -> None:
        self.get: Callable[[bytes], bytes | None] = file.get


class StateTable:
    """The ledger's rows on disk, by partition."""

    def __init__(self, app: StreamApp, partitions: int) -> None:
        self._table: Any = app.Table(
            STATE_TABLE,
            key_type=bytes,
            value_type=bytes,
            partitions=partitions,
            options={
                "block_cache_size": BLOCK_CACHE_BYTES,
                "write_buffer_size": WRITE_BUFFER_BYTES,
                "max_write_buffer_number": 2,
            },
        )

    def _file(self, partition: int) -> Any:
        # Never kept: Faust closes a revoked partition's file by dropping the last reference to it.
        return self._table.data._db_for_partition(partition)

    def rows(self, partition: int) -> Rows:
        return Rows(self._file(partition))

    def items(self, partition: int) -> Iterator[tuple[bytes, bytes]]:
        """The step's rows of a partition."""
        for key, value in self._file(partition).items():
            if key not in (OFFSETS_KEY, Store.offset_key):
                yield key, value

    def offsets(self, partition: int) -> dict[str, int]:
        """The next offset of each source topic, as of the rows; {} for a new partition."""
        blob = self._file(partition).get(OFFSETS_KEY)
        return cast(dict[str, int], orjson.loads(blob)) if blob else {}

    def write(self, partition: int, changes: Mapping[bytes, bytes | None], changelog_offset: int) -> None:
        """Write rows (None deletes) that the changelog holds up to this offset, all or none."""
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value in changes.items():
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        batch.put(Store.offset_key, str(changelog_offset).encode())  # where Faust's recovery looks for it
        self._file(partition).write(batch)
