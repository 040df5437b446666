"""`up`, `down`, `status`, `run`, `provision`: starting and stopping."""

import asyncio
import logging
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streams.cli.common import load_settings, tell, tell_aside

if TYPE_CHECKING:
    from streams.settings import Settings

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class RoleName(StrEnum):
    """What `keepsake run` runs."""

    ledger = "ledger"
    extractor = "extractor"
    indexer = "indexer"
    recall = "recall"


def up(
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return when everything runs, and leave it running.")
    ] = False,
) -> None:
    """Start the local engines (each unless its URL is set), topics, migrations and all roles.

    Restarts a role that dies. Ctrl-C stops all of it.
    """
    settings = load_settings()
    if not detach:
        from streams.supervisor import run_up

        tell(f"Keepsake in {settings.data_dir}")
        run_up(settings, tell)
        return
    from streams.detach import start_detached
    from streams.status import status as read_status

    if not start_detached(settings, tell):
        tell("Keepsake was running already.")
    found = read_status(settings)
    tell(f"recall   {found['url']}")
    tell(f"token    {found['token_file'] or 'KEEPSAKE_TOKEN'}")
    tell(f"kafka    {found['kafka']}")
    tell("See `keepsake status`; stop with `keepsake down`.")


def down() -> None:
    """Stop everything of the data directory: a running `up`, roles, local engines."""
    settings = load_settings()
    from streams.supervisor import run_down

    run_down(settings, tell)
    tell("nothing is running")


def status(as_json: JsonOption = False) -> None:
    """Show what runs, and where."""
    settings = load_settings()
    from streams.status import status as read_status

    found = read_status(settings)
    if as_json:
        import orjson

        tell(orjson.dumps(found, option=orjson.OPT_INDENT_2).decode())
        return
    for line in _status_lines(found):
        tell(line)


def _status_lines(found: dict[str, Any]) -> list[str]:
    from streams.status import mask_password

    lines = [
        f"recall     {found['url'] or 'not known'}",
        f"token      {found['token_file'] or 'KEEPSAKE_TOKEN'}",
        f"kafka      {found['kafka'] or 'not running'}",
        f"database   {mask_password(found['database']) if found['database'] else 'not running'}",
        f"data       {found['data_dir']}",
        "",
    ]
    for name, engine in found["engines"].items():
        lines.append(f"{name:<10} {'running' if engine['pid'] else 'stopped':<12} pid {engine['pid'] or '-'}")
    for name, role in found["roles"].items():
        lag = "-" if role["lag"] is None else role["lag"]
        lines.append(
            f"{name:<10} {role['state']:<12} pid {role['pid'] or '-':<8} restarts {role['restarts']:<4} lag {lag}"
        )
    return lines


def run(
    role: Annotated[RoleName, typer.Argument(help="Which role.")],
    instance: Annotated[
        str, typer.Option(help="A name for this process among those of its role on this data directory.")
    ] = "0",
) -> None:
    """Run one role in the foreground: what a container runs."""
    settings = load_settings()
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    from streams.places import with_places

    settings = with_places(settings)
    _check_topics(settings, role)
    _role_main(role)(settings, instance)


def _check_topics(settings: "Settings", role: RoleName) -> None:
    """Refuse to start on topics that are missing or wrong.

    Recall starts without Kafka too: it answers from what it has (R48), and follows when Kafka is back.
    """
    from streams.provision import KafkaUnavailable, check_topics

    try:
        asyncio.run(check_topics(settings))
    except KafkaUnavailable as error:
        if role is not RoleName.recall:
            raise
        logging.getLogger(__name__).warning("%s", error)


def _role_main(role: RoleName) -> Any:
    # Each imports only what it needs: faust is none of recall's.
    if role is RoleName.ledger:
        from streams.roles.ledger import run as main
    elif role is RoleName.extractor:
        from streams.roles.extractor import run as main
    elif role is RoleName.indexer:
        from streams.roles.indexer import run as main
    else:
        from streams.roles.recall import run as main
    return main


def provision() -> None:
    """Make the topics and apply the migrations; refuses those that exist and are not as they must be."""
    settings = load_settings()
    from streams.provision import provision as provision_all

    asyncio.run(provision_all(settings, tell_aside))


def add_to(app: typer.Typer) -> None:
    for command in (up, down, status, run, provision):
        app.command()(command)
