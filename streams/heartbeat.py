"""A role's sign of life: one small JSON file that `keepsake status` and `up` read."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import orjson

State = Literal["starting", "recovering", "running", "stopping"]


@dataclass(slots=True)
class Heartbeat:
    """Writes `data_dir/run/<role>-<instance>.json`, whole or not at all.

    A role that stops making progress stops writing: readers judge by `updated_at` (Unix seconds).
    """

    data_dir: Path
    role: str
    instance: str = "0"

    @property
    def path(self) -> Path:
        return self.data_dir / "run" / f"{self.role}-{self.instance}.json"

    def update(self, state: State, lag: int | None = None, detail: str = "") -> None:
        content = {
            "pid": os.getpid(),
            "state": state,
            "lag": lag,
            "updated_at": time.time(),
            "detail": detail,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        scratch = self.path.with_suffix(f".{os.getpid()}.tmp")
        scratch.write_bytes(orjson.dumps(content))
        scratch.replace(self.path)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
