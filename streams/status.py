"""What runs in a data directory: the shape of `keepsake status --json` (spec, section H)."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx
import orjson
import psutil

from streams.children import ROLES
from streams.heartbeat import Heartbeat
from streams.local_setup import token_path
from streams.places import recall_url
from streams.settings import Settings
from streams.supervisor_state import is_alive, read_state

READY_SECONDS = 2.0
# Roles give a sign of life every second.
FRESH_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Beat:
    """A role's last sign of life. `lag`: events behind, None where it is not known."""

    pid: int
    state: str
    lag: int | None
    updated_at: float


def read_heartbeat(data_dir: Path, role: str, instance: str = "0") -> Beat | None:
    """The last sign of life of a role; None if there is none."""
    try:
        data = orjson.loads(Heartbeat(data_dir, role, instance).path.read_bytes())
        return Beat(int(data["pid"]), str(data["state"]), data["lag"], float(data["updated_at"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def answers_ready(url: str) -> bool:
    """Whether the recall service answers that it is ready."""
    try:
        return httpx.get(f"{url}/readyz", timeout=READY_SECONDS, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def status(settings: Settings) -> dict[str, Any]:
    """The status as JSON-able values.

    A role's `state` is its own word, or `stopped` (no process), `restarting` (`keepsake up` will start it
    again), `silent` (it runs, and has given no sign of life lately). `engines` holds the local ones only.
    """
    data_dir = settings.data_dir
    supervisor = read_state(data_dir)
    supervised = supervisor is not None and supervisor.alive
    roles: dict[str, dict[str, Any]] = {}
    for name in ROLES:
        child = supervisor.roles.get(name) if supervisor else None
        beat = read_heartbeat(data_dir, name)
        fresh = beat is not None and time.time() - beat.updated_at < FRESH_SECONDS
        if child is not None and is_alive(child.pid, child.created):
            pid: int | None = child.pid
        elif beat is not None and fresh and psutil.pid_exists(beat.pid):
            pid = beat.pid  # started by hand
        else:
            pid = None
        if pid is None:
            state, lag = "restarting" if supervised and child is not None else "stopped", None
        elif beat is None or beat.pid != pid:
            state, lag = "starting", None
        else:
            state, lag = beat.state if fresh else "silent", beat.lag
        roles[name] = {"pid": pid, "state": state, "restarts": child.restarts if child else 0, "lag": lag}
    running = roles["recall"]["pid"] is not None
    return {
        "url": recall_url(settings) if running or settings.http_port else None,
        "token_file": None if settings.token else str(token_path(settings)),
        **_engines(settings),
        "roles": roles,
    }


def _engines(settings: Settings) -> dict[str, Any]:
    """Places and local engines. The URL of the local database holds its password, as the file beside it does;
    that of another database is masked."""
    from infra.engines import read_engines

    local = read_engines(settings.data_dir)
    engines: dict[str, dict[str, int | None]] = {}
    kafka, database = settings.kafka_bootstrap, None
    if kafka is None:
        kafka = local.kafka.bootstrap if local.kafka else None
        engines["kafka"] = {"pid": local.kafka.pid if local.kafka else None}
    if settings.database_url is None:
        database = local.postgres.url if local.postgres else None
        engines["postgres"] = {"pid": local.postgres.pid if local.postgres else None}
    else:
        database = mask_password(settings.database_url.get_secret_value())
    return {"kafka": kafka, "database": database, "data_dir": str(settings.data_dir), "engines": engines}


def mask_password(url: str) -> str:
    """The URL without the password in it."""
    try:
        parts = urlsplit(url)
        if parts.password is None:
            return url
    except ValueError:
        return "***"
    user, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}:***@{host}"))
