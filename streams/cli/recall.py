"""`recall` and `context`: what would be in the next prompt, and why."""

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from streams.cli.common import fail, load_settings, tell
from streams.cli.lifecycle import JsonOption

UserOption = Annotated[str, typer.Option("--user", "-u", help="User id.")]
CharacterOption = Annotated[
    list[str],
    typer.Option("--character", "--characters", "-c", help="Character id; several are any of them."),
]
QueryArgument = Annotated[
    str | None, typer.Argument(metavar="QUERY", help="What to recall; none: the newest.")
]
LimitOption = Annotated[int | None, typer.Option(min=1, help="At most so many memories.")]
ProfileOption = Annotated[str | None, typer.Option(help="A ranking profile of KEEPSAKE_PROFILES.")]
KindOption = Annotated[list[str] | None, typer.Option(help="Only of this kind; may be given again.")]
FromOption = Annotated[str | None, typer.Option(metavar="YYYY-MM-DD", help="From this day on.")]
ToOption = Annotated[str | None, typer.Option(metavar="YYYY-MM-DD", help="Up to and with this day.")]


def recall(
    user: UserOption,
    character: CharacterOption,
    text: QueryArgument = None,
    query: Annotated[str | None, typer.Option(help="The same as the argument.")] = None,
    limit: LimitOption = None,
    mode: Annotated[str, typer.Option(help="relevant, latest or exhaustive.")] = "relevant",
    profile: ProfileOption = None,
    kind: KindOption = None,
    category: Annotated[
        list[str] | None, typer.Option(help="Only of this category; may be given again.")
    ] = None,
    date_from: FromOption = None,
    date_to: ToOption = None,
    cursor: Annotated[str | None, typer.Option(help="Go on where the page before ended.")] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say of every memory why it was found, or why not.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Recall the memories of a user with a character, as POST /v1/recall does."""
    filters = {
        "kinds": kind or [],
        "categories": category or [],
        "date_from": date_from,
        "date_to": date_to,
    }
    body = {
        **_asked(user, character, query or text, limit, profile),
        "filters": filters,
        "mode": mode,
        "cursor": cursor,
        "explain": explain,
    }
    answer = _answer("/v1/recall", body)
    if as_json:
        _tell_json(answer)
        return
    for line in explained_lines(answer) if explain else recall_lines(answer):
        tell(line)


def context(
    user: UserOption,
    character: CharacterOption,
    text: QueryArgument = None,
    persona: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The character's persona: a text file.")
    ] = None,
    turns: Annotated[int | None, typer.Option(min=0, help="Turns of recent talk at least.")] = None,
    token_budget: Annotated[int | None, typer.Option(min=1, help="At most so many tokens in all.")] = None,
    now: Annotated[
        datetime | None, typer.Option(formats=["%Y-%m-%dT%H:%M:%S%z"], help="The time of the turn.")
    ] = None,
    locale: Annotated[str | None, typer.Option(help="ko, en or ja.")] = None,
    limit: LimitOption = None,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compose the prompt of the next turn, as POST /v1/context does."""
    try:
        told = persona.read_text(encoding="utf-8") if persona else ""
    except (OSError, UnicodeError) as error:
        fail(f"cannot read the persona in {persona}: {getattr(error, 'strerror', None) or 'it is not UTF-8'}")
    body = {
        **_asked(user, character, text, limit, profile),
        "persona": told,
        "turns": turns,
        "token_budget": token_budget,
        "now": now.isoformat() if now else None,
        "locale": locale,
    }
    answer = _answer("/v1/context", body)
    if as_json:
        _tell_json(answer)
        return
    tell(answer["system"])
    for message in answer["messages"]:
        tell(f"\n[{message['role']}]\n{message['content']}")
    if answer["degraded"]:
        tell(f"\ndegraded: {answer['degraded']}")


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
    return [*(lines or ["no memories"]), *_end(answer)]


def explained_lines(answer: dict[str, Any]) -> list[str]:
    """The same as a table: a line for each memory in scope, with its reason."""
    header = ("reason", "score", "vector", "keyword", "decay", "imp", "date", "memory")
    rows = [_returned_row(memory) for memory in answer["memories"]]
    explained = answer["explained"]
    rows += [_other_row(memory) for memory in explained["others"]]
    lines = [f"searched for: {answer['query']}"] if answer["query"] else []
    lines += _table([header, *rows])
    for state in explained["talk"] or ():
        lines.append(_talk(state))
    lines += _end(answer)
    if answer["cursor"]:
        lines.append(f"more: --cursor {answer['cursor']}")
    return lines


def _asked(
    user: str, characters: list[str], query: str | None, limit: int | None, profile: str | None
) -> dict[str, Any]:
    return {
        "user_id": user,
        "character_ids": [one for given in characters for one in given.split(",") if one],
        "query": query or "",
        "limit": limit,
        "profile": profile,
    }


def _answer(path: str, body: dict[str, Any]) -> dict[str, Any]:
    settings = load_settings()
    from streams.cli.service import request

    return request(settings, "POST", path, body)


def _tell_json(answer: dict[str, Any]) -> None:
    import orjson

    tell(orjson.dumps(answer, option=orjson.OPT_INDENT_2).decode())


def _end(answer: dict[str, Any]) -> list[str]:
    lines = [f"degraded: {answer['degraded']}"] if answer["degraded"] else []
    return [*lines, "(by offline models)"] if answer["offline"] else lines


def _detail(detail: dict[str, Any]) -> str:
    if detail["type"] == "quote":
        return f"{detail['speaker']}: “{detail['text']}”"
    return f"{detail['actor']} {detail['text']}"


def _why(explain: dict[str, Any]) -> str:
    paths = [f"{name} rank {explain[name]['rank']}" for name in ("vector", "keyword") if explain[name]]
    if explain["recent_rank"] is not None:
        paths.append(f"newest rank {explain['recent_rank']}")
    if explain["slot"]:
        paths.append("importance slot")
    return f"{', '.join(paths)}, decay {explain['decay']:.2f}"


def _returned_row(memory: dict[str, Any]) -> tuple[str, ...]:
    why = memory["explain"]
    reason = "returned" if why["recent_rank"] is None else f"newest {why['recent_rank'] + 1}"
    reason = "slot" if why["slot"] else reason
    return _row(reason, memory, why)


def _other_row(memory: dict[str, Any]) -> tuple[str, ...]:
    reason = f"{memory['reason']} ({memory['detail']})" if memory["detail"] else memory["reason"]
    return _row(reason, memory, memory)


def _row(reason: str, memory: dict[str, Any], why: dict[str, Any]) -> tuple[str, ...]:
    score = f"{memory['score']:.5f}" if memory["score"] else "-"
    vector = _path(why["vector"], "cos ")
    if vector == "-" and why.get("similarity") is not None:
        vector = f"cos {why['similarity']:.3f}"
    return (
        reason,
        score,
        vector,
        _path(why["keyword"]),
        f"{why['decay']:.2f}",
        str(memory["importance"]),
        memory["date"],
        memory["summary"] or "",
    )


def _path(path: dict[str, Any] | None, unit: str = "") -> str:
    return f"#{path['rank'] + 1} {unit}{path['raw']:.3f} +{path['share']:.5f}" if path else "-"


def _talk(state: dict[str, Any]) -> str:
    where = f"{'+'.join(state['character_ids'])} {state['first_position']}-{state['last_position']}"
    if state["state"] == "buffered":
        return f"not a memory yet: {where}, buffered {state['user_messages']} of {state['threshold']}"
    return f"not a memory yet: {where}, {state['state']}"


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    """Columns of one width each; the last one, which may be wide, is left as it is."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]) - 1)]
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    ]


def add_to(app: typer.Typer) -> None:
    for command in (recall, context):
        app.command()(command)
