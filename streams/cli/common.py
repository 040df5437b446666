"""What all commands share: settings, and errors as messages."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import typer

if TYPE_CHECKING:
    from streams.settings import Settings


def tell(line: str) -> None:
    """A line of progress, at once."""
    print(line, flush=True)


def tell_aside(line: str) -> None:
    """The same on standard error, where standard output is for data."""
    print(line, file=sys.stderr, flush=True)


def fail(message: str) -> NoReturn:
    """End with the message on standard error and exit code 1."""
    print(f"keepsake: {message}", file=sys.stderr, flush=True)
    raise typer.Exit(1)


def load_settings() -> "Settings":
    """The settings of the environment, the data directory as an absolute path. Fails with what is wrong."""
    from pydantic import ValidationError
    from pydantic_settings import SettingsError

    from streams.settings import Settings

    try:
        settings = Settings()
    except ValidationError as error:
        # Not the value: a secret may be among them.
        aliases = {field.validation_alias for field in Settings.model_fields.values()}
        told = "\n".join(_told(item["loc"], item["msg"], aliases) for item in error.errors())
        fail(f"settings are wrong:\n{told}")
    except SettingsError as error:
        # It names the field only, and the value is not in it.
        field = re.search(r'field "(\w+)"', str(error))
        fail(f"settings are wrong:\n- KEEPSAKE_{field[1].upper() if field else '?'}: must be JSON")
    settings.data_dir = settings.data_dir.expanduser().resolve()
    return settings


def _told(place: tuple[int | str, ...], problem: str, aliases: set[Any]) -> str:
    """What is wrong with a setting, or (no place) with several together."""
    problem = problem.removeprefix("Value error, ")
    if not place:
        return f"- {problem}"
    name = "_".join(str(part) for part in place).upper()
    return f"- {name if name in aliases else f'KEEPSAKE_{name}'}: {problem}"


def _is_explained(error: Exception) -> bool:
    """Whether its message is for the user. The imports cost what they cost: something failed already."""
    from infra.engines import EngineError
    from infra.providers import ProviderNotConfigured
    from infra.sealing import KeysError
    from streams.errors import Explained

    return isinstance(error, (Explained, EngineError, KeysError, ProviderNotConfigured))


@contextmanager
def reported() -> Iterator[None]:
    """Print an error that we know as a message; others are faults of ours and keep their trace."""
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:
        # The reader of our output has gone (`keepsake tail | head`).
        sys.stderr.close()
        raise SystemExit(0) from None
    except Exception as error:
        if _is_explained(error):
            print(f"keepsake: {error}", file=sys.stderr, flush=True)
            raise SystemExit(1) from None
        raise
