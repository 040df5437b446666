"""`keepsake prompts`: what the models are told, and how a team tunes it."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streams.cli.common import fail, load_settings, tell, tell_aside
from streams.cli.lifecycle import JsonOption

if TYPE_CHECKING:
    from models.prompt import Prompt
    from streams.prompt_trial import Trial
    from streams.settings import Settings

app = typer.Typer(help="The prompts: show them, compare registry and file, try them.", no_args_is_help=True)
EXTRACTION = "pipeline/memory-summarize"
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the prompt.")]


@app.command()
def show(name: NameArgument = EXTRACTION, as_json: JsonOption = False) -> None:
    """Print a prompt as it is used now: its version, then its text."""
    prompt = asyncio.run(_current(load_settings(), name))
    if as_json:
        import orjson

        tell(orjson.dumps(prompt).decode())
        return
    tell_aside(f"{prompt.name}, version {prompt.version}")
    tell(prompt.text)


@app.command()
def diff(name: NameArgument = EXTRACTION) -> None:
    """Compare the registry's prompt with the repository's; exit code 1 if they differ."""
    settings = load_settings()
    import difflib

    from infra.prompts.files import file_prompt

    current = asyncio.run(_current(settings, name))
    own = file_prompt(name)
    if not settings.langfuse_public_key:
        fail("no registry is configured: set LANGFUSE_PUBLIC_KEY, LANGFUSE_SECRET_KEY and LANGFUSE_HOST")
    if not current.version.startswith("langfuse:"):
        fail(
            "the registry gave no prompt that can be used; the reason stands above, or it did not answer in time"
        )
    lines = list(
        difflib.unified_diff(
            own.text.splitlines(),
            current.text.splitlines(),
            f"file {own.version}",
            current.version,
            lineterm="",
        )
    )
    for line in lines:
        tell(line)
    if lines:
        raise typer.Exit(1)
    tell_aside(f"{current.version} is the file's text")


@app.command("try")
def try_(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.jsonl", help="One window's messages, as for publish.")
    ],
    model: Annotated[
        str | None,
        typer.Option(
            metavar="PROVIDER:MODEL", help="Ask it: offline, gemini:…, openai:…, anthropic:…, bedrock:…"
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the prompt.")] = EXTRACTION,
    as_json: JsonOption = False,
) -> None:
    """Print the prompt of a conversation; with a model also its answer, and what is kept of it.

    Nothing is stored. The exit code is 1 if the answer would be refused.
    """
    settings = load_settings()
    from models.messages import InvalidEvent
    from streams.prompt_trial import one_window, run_trial
    from streams.publish_file import read_message

    messages = []
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        fail(f"cannot read {file}: {error.strerror}")
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                messages.append(read_message(line, settings))
            except InvalidEvent as invalid:
                fail(f"{file}, line {number}: {invalid.reason}: {invalid.detail}")

    async def run() -> "Trial":
        from streams.prompts import open_prompts

        return await run_trial(one_window(messages), open_prompts(settings), name, model, settings)

    try:
        trial = asyncio.run(run())
    except LookupError:
        fail(f"there is no prompt {name!r}")
    _print(trial, as_json)
    if trial.problem:
        fail(f"this answer would be refused: {trial.problem}")


async def _current(settings: "Settings", name: str) -> "Prompt":
    from streams.prompts import open_prompts

    try:
        return await open_prompts(settings).get(name)
    except LookupError:
        fail(f"there is no prompt {name!r}")


def _print(trial: "Trial", as_json: bool) -> None:
    import orjson

    memory = trial.judged.memory if trial.judged else None
    states = trial.judged.relationships if trial.judged else {}
    dropped = dict(trial.judged.dropped) if trial.judged else {}
    if as_json:
        found = {
            "prompt": trial.prompt,
            "raw": trial.raw,
            "tokens": {"input": trial.tokens[0], "output": trial.tokens[1]},
            "problem": trial.problem,
            "memory": memory.model_dump(mode="json") if memory else None,
            "relationships": {name: s.model_dump(mode="json") if s else None for name, s in states.items()},
            "dropped": dropped,
        }
        tell(orjson.dumps(found, option=orjson.OPT_INDENT_2).decode())
        return
    if trial.prompt:
        tell(f"--- system ({trial.prompt.name}, {trial.prompt.version})\n{trial.prompt.system}\n")
        tell(f"--- user\n{trial.prompt.user}")
    if trial.raw is None:
        return
    tell(f"\n--- answer ({trial.tokens[0]} tokens read, {trial.tokens[1]} written)\n{trial.raw}")
    if trial.judged is None:
        return
    tell("\n--- kept")
    if memory is None:
        tell("nothing")
        return
    tell(orjson.dumps(memory.model_dump(mode="json"), option=orjson.OPT_INDENT_2).decode())
    for name, state in states.items():
        if state:
            tell(f"relationship state of {name}: {orjson.dumps(state.model_dump(mode='json')).decode()}")
    if dropped:
        tell(f"dropped: {dropped}")
