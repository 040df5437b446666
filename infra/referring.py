"""The published word lists of R27, read from their file."""

import tomllib
from functools import cache
from importlib.resources import files

from models.tokens import fold_text
from models.utterance import ReferringWords


@cache
def referring_words() -> dict[str, ReferringWords]:
    """The lists by language: ko, en, ja."""
    data = tomllib.loads((files("infra") / "words" / "referring.toml").read_text(encoding="utf-8"))
    return {
        language: ReferringWords(**{name: tuple(map(fold_text, listed)) for name, listed in lists.items()})
        for language, lists in data.items()
    }
