"""Every setting with its value and where that came from: `keepsake settings`."""

import os
from dataclasses import dataclass
from typing import Literal

from pydantic import SecretStr, TypeAdapter

from models.profiles import Profile
from streams.settings import Settings

MASK = "********"
_JSON: TypeAdapter[dict[str, Profile] | dict[str, str]] = TypeAdapter(dict[str, Profile] | dict[str, str])


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting; `value` is masked where it is secret, None where it is unset."""

    name: str
    value: str | int | float | bool | None
    source: Literal["env", "default"]
    meaning: str


def settings_report(settings: Settings) -> list[Setting]:
    """All settings, in the order in which they are declared."""
    prefix = str(settings.model_config.get("env_prefix", ""))
    # pydantic-settings takes names without regard to case.
    given = {name.upper() for name in os.environ}
    report = []
    for field_name, field in type(settings).model_fields.items():
        alias = field.validation_alias
        name = alias if isinstance(alias, str) else f"{prefix}{field_name}".upper()
        report.append(
            Setting(
                name,
                _shown(getattr(settings, field_name)),
                "env" if name in given else "default",
                field.description or "",
            )
        )
    return report


def _shown(value: object) -> str | int | float | bool | None:
    if isinstance(value, SecretStr):
        return MASK
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, dict):
        # As the environment takes it.
        return _JSON.dump_json(value, exclude_none=True).decode()
    return str(value)
