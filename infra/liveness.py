"""A worker's liveness as an exit code, for container health checks: `python -m infra.liveness ROLE`.

A role that makes no progress stops renewing its sign of life in the data directory (`KEEPSAKE_DATA_DIR`).
"""

import os
import sys
import time
from pathlib import Path

import orjson

STALE_SECONDS = 30.0


def problem(data_dir: Path, role: str, now: float | None = None) -> str | None:
    """Why the role is not alive; None: it is."""
    path = data_dir / "run" / f"{role}-0.json"
    try:
        updated = float(orjson.loads(path.read_bytes())["updated_at"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"{role} has not started: no sign of life at {path}"
    age = (time.time() if now is None else now) - updated
    return f"{role} has made no progress for {age:.0f} s" if age > STALE_SECONDS else None


def main(role: str) -> int:
    found = problem(Path(os.environ.get("KEEPSAKE_DATA_DIR", "/var/lib/keepsake")), role)
    if found:
        sys.stderr.write(f"{found}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
