"""`keepsake engines`: the local Kafka and PostgreSQL alone."""

from typing import Any

import typer

from streams.cli.common import fail, load_settings, tell
from streams.cli.lifecycle import JsonOption

app = typer.Typer(
    help="The local engines, Apache Kafka and PostgreSQL: each unless its URL is set.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def up() -> None:
    """Start the engines, unless they run."""
    settings = load_settings()
    from infra.engines import start_engines
    from streams.local_setup import make_data_dir

    kafka, postgres = settings.kafka_bootstrap is None, settings.database_url is None
    if not kafka and not postgres:
        fail("nothing to start: KEEPSAKE_KAFKA_BOOTSTRAP and KEEPSAKE_DATABASE_URL name engines of yours")
    make_data_dir(settings.data_dir)
    start_engines(settings.data_dir, kafka=kafka, postgres=postgres, progress=tell)
    for line in _lines(_engines()):
        tell(line)


@app.command()
def down() -> None:
    """Stop the engines. While `keepsake up` runs, stop that instead: it would start them again."""
    settings = load_settings()
    from infra.engines import stop_engines
    from streams.supervisor_state import read_state

    state = read_state(settings.data_dir)
    if state is not None and state.alive:
        fail("`keepsake up` runs on these engines and would start them again: use `keepsake down`")
    stop_engines(settings.data_dir, tell)


@app.command()
def status(as_json: JsonOption = False) -> None:
    """Show where the engines are. The URL of the local database holds its password."""
    found = _engines()
    if as_json:
        import orjson

        tell(orjson.dumps(found, option=orjson.OPT_INDENT_2).decode())
        return
    for line in _lines(found):
        tell(line)


def _engines() -> dict[str, Any]:
    from streams.status import status as read_status

    found = read_status(load_settings())
    return {name: found[name] for name in ("kafka", "database", "engines")}


def _lines(found: dict[str, Any]) -> list[str]:
    lines = [
        f"kafka      {found['kafka'] or 'not running'}",
        f"database   {found['database'] or 'not running'}",
    ]
    return lines + [f"{name:<10} pid {engine['pid'] or '-'}" for name, engine in found["engines"].items()]
