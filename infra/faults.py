"""Fault points: places where a crash test may end the process at once.

`KEEPSAKE_FAULT=name` kills the process (SIGKILL to itself) the first time it passes the point of that
name; `name:3` the third time. `KEEPSAKE_FAULT_ONCE_FILE` names a file: the fault only strikes while it
does not exist, and makes it first, so that a restarted process lives. `KEEPSAKE_FAULT_SIGNAL=SIGSTOP` stops
the process there instead.
"""

import os
import signal
from collections import Counter
from pathlib import Path

_passed: Counter[str] = Counter()


def fault_point(name: str) -> None:
    """Kill this process here if the environment asks for it; otherwise do nothing."""
    wanted = os.environ.get("KEEPSAKE_FAULT")
    if not wanted:
        return
    point, _, count = wanted.partition(":")
    if point != name:
        return
    _passed[name] += 1
    if _passed[name] < int(count or 1):
        return
    once = os.environ.get("KEEPSAKE_FAULT_ONCE_FILE")
    if once:
        try:
            Path(once).touch(exist_ok=False)
        except FileExistsError:
            return
    os.kill(os.getpid(), signal.Signals[os.environ.get("KEEPSAKE_FAULT_SIGNAL", "SIGKILL")])
