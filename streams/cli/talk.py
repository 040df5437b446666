"""`publish`, `recall`, `tail`: putting messages in, and seeing what came of them."""

import asyncio
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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


def recall(
    user: Annotated[str, typer.Option("--user", "-u", help="User id.")],
    character: Annotated[
        list[str],
        typer.Option("--character", "--characters", "-c", help="Character id; several are any of them."),
    ],
    text: Annotated[
        str | None, typer.Argument(metavar="QUERY", help="What to recall; none: the newest.")
    ] = None,
    query: Annotated[str | None, typer.Option(help="The same as the argument.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many memories.")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="Only of this kind; may be given again.")] = None,
    date_from: Annotated[str | None, typer.Option(metavar="YYYY-MM-DD", help="From this day on.")] = None,
    date_to: Annotated[
        str | None, typer.Option(metavar="YYYY-MM-DD", help="Up to and with this day.")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say why each was found.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Recall the memories of a user with a character, as POST /v1/recall does."""
    settings = load_settings()
    from streams.client import request

    filters = {"kinds": kind or [], "date_from": date_from, "date_to": date_to}
    body = {
        "user_id": user,
        "character_ids": [one for given in character for one in given.split(",") if one],
        "query": query or text or "",
        "limit": limit,
        "filters": filters,
        "explain": explain,
    }
    answer = request(settings, "POST", "/v1/recall", body)
    if as_json:
        import orjson

        tell(orjson.dumps(answer, option=orjson.OPT_INDENT_2).decode())
        return
    for line in recall_lines(answer):
        tell(line)


def recall_lines(answer: dict[str, Any]) -> list[str]:
    """An answer of /v1/recall as lines to read."""
    lines: list[str] = []
    for memory in answer["memories"]:
        score = "       " if memory["score"] is None else f"{memory['score']:.5f}"
        lines.append(f"{score}  {memory['date']}  importance {memory['importance']:>2}  {memory['summary']}")
        lines += [f"         {_detail(detail)}" for detail in memory["key_details"]]
        lines += [f"         plan {plan['date']}: {plan['text']}" for plan in memory["plans"]]
        if memory["explain"]:
            lines.append(f"         {_why(memory['explain'])}")
    if not lines:
        lines.append("no memories")
    if answer["degraded"]:
        lines.append(f"degraded: {answer['degraded']}")
    if answer["offline"]:
        lines.append("(by offline models)")
    return lines


def _detail(detail: dict[str, Any]) -> str:
    if detail["type"] == "quote":
        return f"{detail['speaker']}: “{detail['text']}”"
    return f"{detail['actor']} {detail['text']}"


def _why(explain: dict[str, Any]) -> str:
    parts = []
    for name in ("vector", "keyword"):
        path = explain[name]
        if path:
            decayed = f"{path['raw']:.3f} x decay {explain['decay']:.2f}"
            parts.append(f"{name} rank {path['rank']}, {decayed}, share {path['share']:.5f}")
    if explain["recent_rank"] is not None:
        parts.append(f"newest rank {explain['recent_rank']}")
    if explain["slot"]:
        parts.append("importance slot")
    return "; ".join(parts)


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
    for command in (publish, recall, tail):
        app.command()(command)
