"""`keepsake tasks`: which model does which task."""

import asyncio
import getpass
from typing import Annotated

import typer

from streams.cli.common import fail, load_settings, tell
from streams.cli.lifecycle import JsonOption

app = typer.Typer(
    help="Which model does which task; a change is in effect within a minute.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

TaskName = Annotated[str, typer.Argument(metavar="TASK", help="extraction, consolidation or insight.")]


@app.command("list")
def list_tasks(as_json: JsonOption = False) -> None:
    """List the tasks with their models."""
    settings = load_settings()
    from streams.task_operations import task_standings

    found = asyncio.run(task_standings(settings))
    if as_json:
        _print_json([one.model_dump(mode="json") for one in found])
        return
    for one in found:
        fallback = f", then {one.fallback}" if one.fallback else ""
        made = f"{one.assigned_by}, {one.assigned_at:%Y-%m-%d %H:%M}" if one.assigned_by else "default"
        tell(f"{one.task:<13}  {one.model}{fallback}  ({made})")


@app.command("set")
def set_task(
    task: TaskName,
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="provider:model, like gemini:gemini-2.5-flash.")
    ],
    fallback: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Takes over when the attempts of the first are used up."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Call the model first, and change nothing if it fails.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Assign a model to a task. Keys and addresses are those of the settings here and of the extractor."""
    from models.assignments import Assignment, InvalidAssignment

    try:
        assignment = Assignment.parse(task, model, fallback)
    except InvalidAssignment as error:
        fail(f"nothing was changed: {error}")
    settings = load_settings()
    from streams.task_operations import assign_task

    changed = asyncio.run(assign_task(settings, assignment, f"cli:{_os_user()}", check=check))
    told = {
        "task": assignment.task,
        "model": str(assignment.model),
        "fallback": str(assignment.fallback) if assignment.fallback else None,
        "changed": changed,
    }
    if as_json:
        _print_json(told)
        return
    then = f", then by {assignment.fallback}" if assignment.fallback else ""
    tell(f"{task} is {'now' if changed else 'already'} done by {assignment.model}{then}")


@app.command()
def history(
    task: Annotated[
        str | None, typer.Argument(metavar="TASK", help="Only of this task; none: of all.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the newest first.")] = 100,
    as_json: JsonOption = False,
) -> None:
    """Show who changed what, and when."""
    settings = load_settings()
    from dataclasses import asdict

    from models.assignments import TASKS
    from streams.task_operations import task_history

    known = next((one for one in TASKS if one == task), None)
    if task is not None and known is None:
        fail(f"a task is one of {', '.join(TASKS)}")
    changes = asyncio.run(task_history(settings, known, limit))
    if as_json:
        _print_json([asdict(change) for change in changes])
        return
    for change in changes:
        before = _models(change.from_model, change.from_fallback)
        tell(
            f"{change.at:%Y-%m-%d %H:%M:%S}  {change.task:<13}  {before} -> "
            f"{_models(change.to_model, change.to_fallback)}  by {change.by}"
        )
    if not changes:
        tell("nothing was ever assigned")


def _models(model: str | None, fallback: str | None) -> str:
    if model is None:
        return "default"
    return f"{model}, then {fallback}" if fallback else model


def _os_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return "unknown"


def _print_json(value: object) -> None:
    import orjson

    tell(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())
