"""The keys of all pairs, from the ledger's changelog: what the indexer needs of the ledger's table.

A TableView over a store that keeps nothing but pair keys, in memory (some 300 bytes a pair), and is read
again from the beginning at every start.
"""

import logging
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping

import orjson

from agents.row_codec import pair_key_of
from models.ids import SEP

log = logging.getLogger(__name__)

_PAIRS = f"pairs{SEP}".encode()


class KeyStore:
    """The pair rows of the table, cut to epoch and wrapped key."""

    def __init__(self) -> None:
        self._rows: dict[bytes, bytes] = {}
        self._offsets: dict[int, int] = {}
        self._complete = False

    def get(self, key: bytes) -> bytes | None:
        return self._rows.get(key)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The rows whose keys start with `prefix`, in the order of their keys."""
        return iter(sorted((key, row) for key, row in self._rows.items() if key.startswith(prefix)))

    def offsets(self) -> dict[int, int]:
        return dict(self._offsets)

    @property
    def complete(self) -> bool:
        return self._complete

    def mark_complete(self) -> None:
        self._complete = True

    def apply(self, rows: Iterable[tuple[bytes, bytes | None]], offsets: Mapping[int, int]) -> None:
        """Take the rows of the changelog, None where one was deleted, and the offsets after them."""
        for key, row in rows:
            if not key.startswith(_PAIRS):
                continue
            if row is None:
                self._rows.pop(key, None)
                continue
            try:
                epoch, wrapped = pair_key_of(row)
            except (ValueError, KeyError, TypeError):
                log.warning("A pair's row in the changelog cannot be read: its key stays unknown")
                continue
            self._rows[key] = orjson.dumps({"epoch": epoch, "key": b64encode(wrapped).decode()})
        self._offsets.update(offsets)

    def clear(self) -> None:
        self._rows.clear()
        self._offsets.clear()
        self._complete = False
