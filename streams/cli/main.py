"""Entry point of `keepsake`."""

import typer

from streams.cli import (
    configuration,
    demo,
    engines,
    kafka_tools,
    lifecycle,
    mcp,
    prompts,
    recall,
    talk,
    tasks,
    trouble,
)
from streams.cli.common import reported

app = typer.Typer(
    name="keepsake",
    help="Long-term memory for AI characters, companions and coaches.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for module in (lifecycle, configuration, talk, recall, mcp, demo):
    module.add_to(app)
kafka_tools.add_to(engines.app)
app.add_typer(engines.app, name="engines")
app.add_typer(prompts.app, name="prompts")
app.add_typer(tasks.app, name="tasks")
app.add_typer(trouble.parked, name="parked")
app.add_typer(trouble.dead, name="dead")


def main() -> None:
    """Run the command of the arguments; an error that we know becomes a message and exit code 1."""
    with reported():
        app(prog_name="keepsake")
