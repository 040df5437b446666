"""`keepsake demo`."""

from typing import Annotated

import typer

from streams.cli.common import load_settings, tell


def demo(
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the demo's system running, with what it stored.")
    ] = False,
) -> None:
    """Play three conversations through a whole system of its own, then recall what was kept."""
    settings = load_settings()
    from streams.demo.play import run_demo

    run_demo(settings, tell, keep=keep)


def add_to(app: typer.Typer) -> None:
    app.command()(demo)
