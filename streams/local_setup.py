"""What a first start makes in the data directory: the directory itself, master keys, the bearer token."""

import os
import secrets
from collections.abc import Callable
from pathlib import Path

from infra.sealing import ensure_master_keys
from streams.errors import Explained
from streams.settings import Settings

TOKEN_BYTES = 32


class SetupError(Explained):
    """The data directory cannot be used; the message says what to do."""


def token_path(settings: Settings) -> Path:
    return settings.data_dir / "token"


def make_data_dir(data_dir: Path) -> None:
    """Make the data directory unless it is there.

    For root others may pass through it, not list it: PostgreSQL runs as a user of its own and must reach its
    files. What is secret has mode 600.
    """
    try:
        if not data_dir.exists():
            data_dir.mkdir(parents=True)
            data_dir.chmod(0o711 if os.geteuid() == 0 else 0o700)
        for name in ("run", "logs"):
            (data_dir / name).mkdir(exist_ok=True)
    except OSError as error:
        raise SetupError(
            f"cannot use {data_dir} ({error.strerror}): set KEEPSAKE_DATA_DIR to a directory of yours"
        ) from error


def make_secrets(settings: Settings, progress: Callable[[str], None]) -> None:
    """Make the master keys and the bearer token unless they are there, or are given in the environment."""
    if settings.master_keys is None:
        keys = settings.keys_path
        if ensure_master_keys(keys):
            progress(f"made master keys: {keys} (keep a copy: without them no memory can be read)")
    token = token_path(settings)
    if settings.token is None and not token.exists():
        _write_private(token, secrets.token_urlsafe(TOKEN_BYTES))
        progress(f"made a bearer token: {token}")


def _write_private(path: Path, text: str) -> None:
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    scratch.replace(path)
