"""The files of a table view: the rows of a changelog, and the offsets up to which they are applied."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from rocksdict import BlockBasedOptions, Cache, Options, Rdict, WriteBatch

log = logging.getLogger(__name__)

# Rows of the table start with the name of a kind, never with NUL.
_OFFSET = b"\x00offset\x00"
_COMPLETE = b"\x00complete"

BLOCK_CACHE_BYTES = 32 << 20
WRITE_BUFFER_BYTES = 8 << 20
MAX_OPEN_FILES = 256


def _options() -> Options:
    # Unset, the block cache may grow to 2 GiB.
    table = BlockBasedOptions()
    table.set_block_cache(Cache(BLOCK_CACHE_BYTES))
    table.set_bloom_filter(10, False)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(table)
    options.set_write_buffer_size(WRITE_BUFFER_BYTES)
    options.set_max_write_buffer_number(2)
    options.set_max_open_files(MAX_OPEN_FILES)
    options.set_keep_log_file_num(2)
    return options


class ViewStore:
    """Rows in RocksDB. Rows and offsets change in one write, so a kill leaves both as they were, or neither.

    A directory that does not open is emptied: everything here comes again from the log.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        try:
            self._db = Rdict(str(directory), _options())
        except Exception as error:  # noqa: BLE001  # rocksdict raises bare Exception
            log.warning("The view in %s does not open (%s): it is rebuilt", directory, type(error).__name__)
            self._db = self._fresh()

    def get(self, key: bytes) -> bytes | None:
        value: bytes | None = self._db.get(key)
        return value

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The rows whose keys start with `prefix`, in the order of their keys, as they are at the call."""
        rows = self._db.iter()
        rows.seek(prefix)
        while rows.valid() and (key := bytes(rows.key())).startswith(prefix):
            yield key, bytes(rows.value())
            rows.next()

    def offsets(self) -> dict[int, int]:
        """The next offset to apply, by partition; only of partitions that were ever applied."""
        return {
            int(key.removeprefix(_OFFSET)): int.from_bytes(value, "big") for key, value in self.scan(_OFFSET)
        }

    def apply(self, rows: Iterable[tuple[bytes, bytes | None]], offsets: Mapping[int, int]) -> None:
        """Write rows (None: delete) and the next offset of their partitions, all or nothing."""
        batch = WriteBatch(raw_mode=True)
        for key, value in rows:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        for partition, offset in offsets.items():
            batch.put(_OFFSET + str(partition).encode(), offset.to_bytes(8, "big"))
        self._db.write(batch)

    @property
    def complete(self) -> bool:
        """Whether the view had once reached the end of its log: before that, a missing row says nothing."""
        return self._db.get(_COMPLETE) is not None

    def mark_complete(self) -> None:
        self._db.put(_COMPLETE, b"1")

    def clear(self) -> None:
        self._db.close()
        self._db = self._fresh()

    def close(self) -> None:
        self._db.close()

    def _fresh(self) -> Rdict:
        Rdict.destroy(str(self._directory), _options())
        return Rdict(str(self._directory), _options())
