"""`publish`, `tail`: putting messages in, and seeing what came of them."""

import asyncio
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streams.cli.common import fail, load_settings, tell, tell_aside
from streams.cli.lifecycle import JsonOption

if TYPE_CHECKING:
    from streams.publish_file import Rejected


def publish(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.jsonl", help="A chat.message a line; - reads standard input.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Publish messages to Kafka; returns when the log has them.

    A line that is no message is reported by its number and left out; the exit code is 1 then.
    """
    settings = load_settings()
    from streams.publish_file import publish_file

    def report(rejected: "Rejected") -> None:
        tell_aside(f"line {rejected.line}: {rejected.reason}: {rejected.detail}")

    with ExitStack() as stack:
        try:
            source = sys.stdin.buffer if str(file) == "-" else stack.enter_context(file.open("rb"))
        except OSError as error:
            fail(f"cannot read {file}: {error.strerror}")
        outcome = asyncio.run(publish_file(source, settings, tell_aside, report))
    if as_json:
        import orjson

        tell(orjson.dumps({"published": outcome.published, "rejected": outcome.rejected}).decode())
    else:
        tell(f"published {outcome.published} messages")
    if outcome.rejected:
        fail(f"{len(outcome.rejected)} lines were not published")


def tail(
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="First all that the log holds.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print every new memory, opened with the master keys; Ctrl-C ends it."""
    settings = load_settings()
    from streams.tail import tail as follow

    asyncio.run(follow(settings, from_beginning=from_beginning, as_json=as_json, write=tell))


def add_to(app: typer.Typer) -> None:
    for command in (publish, tail):
        app.command()(command)
