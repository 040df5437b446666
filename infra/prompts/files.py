"""The prompts in the repository: `<name>.md` beside this module, versioned by a hash of their content."""

from functools import cache
from importlib.resources import files

from models.prompt import Prompt, check_prompt, content_version


class FilePrompts:
    """Prompts by name. LookupError for a name without a file; a file that is no prompt is a fault of ours."""

    async def get(self, name: str) -> Prompt:
        return file_prompt(name)


@cache
def file_prompt(name: str) -> Prompt:
    """The prompt of a file. LookupError: there is none of that name."""
    file = files("infra.prompts")
    for part in f"{name}.md".split("/"):
        if part in ("", "..", "."):
            raise LookupError(f"no prompt {name!r}")
        file = file / part
    try:
        text = file.read_text(encoding="utf-8")
    except OSError:
        raise LookupError(f"no prompt {name!r}") from None
    check_prompt(text)
    return Prompt(name, content_version(text), text)
