"""Which attempts the extractor has started and not ended, on disk, so that a kill is remembered (I4)."""

import sqlite3
import time
from pathlib import Path

# Requests expire with their topic; a start that is older was ended by another instance.
MAX_AGE_SECONDS = 3 * 86_400


class StartsFile:
    """The journal as a SQLite file. It must outlive the process, not the machine: no fsync."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=OFF")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS starts"
            " (request_id TEXT, attempt INTEGER, count INTEGER, started_at REAL,"
            " PRIMARY KEY (request_id, attempt)) WITHOUT ROWID"
        )
        self._db.execute("DELETE FROM starts WHERE started_at < ?", (time.time() - MAX_AGE_SECONDS,))

    def unended(self, request_id: str, attempt: int) -> int:
        row = self._db.execute(
            "SELECT count FROM starts WHERE request_id = ? AND attempt = ?", (request_id, attempt)
        ).fetchone()
        return int(row[0]) if row else 0

    def begin(self, request_id: str, attempt: int) -> None:
        self._db.execute(
            "INSERT INTO starts VALUES (?, ?, 1, ?) ON CONFLICT DO UPDATE"
            " SET count = count + 1, started_at = excluded.started_at",
            (request_id, attempt, time.time()),
        )

    def withdraw(self, request_id: str, attempt: int) -> None:
        self._db.execute(
            "UPDATE starts SET count = count - 1 WHERE request_id = ? AND attempt = ?", (request_id, attempt)
        )
        self._db.execute(
            "DELETE FROM starts WHERE request_id = ? AND attempt = ? AND count <= 0", (request_id, attempt)
        )

    def end(self, request_id: str, attempt: int) -> None:
        self._db.execute("DELETE FROM starts WHERE request_id = ? AND attempt = ?", (request_id, attempt))

    def close(self) -> None:
        self._db.close()
