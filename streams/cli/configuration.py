"""`keepsake settings`."""

from dataclasses import asdict

import typer

from streams.cli.common import load_settings, tell
from streams.cli.lifecycle import JsonOption


def settings(as_json: JsonOption = False) -> None:
    """Show every setting, its value and its source; secrets are masked."""
    from streams.settings_report import settings_report

    report = settings_report(load_settings())
    if as_json:
        import orjson

        tell(orjson.dumps([asdict(setting) for setting in report], option=orjson.OPT_INDENT_2).decode())
        return
    name_width = max(len(setting.name) for setting in report)
    value_width = min(40, max(len(_text(setting.value)) for setting in report))
    for setting in report:
        tell(
            f"{setting.name:<{name_width}}  {_text(setting.value):<{value_width}}  {setting.source:<7}  "
            f"{setting.meaning}"
        )


def _text(value: object) -> str:
    return "-" if value is None else str(value)


def add_to(app: typer.Typer) -> None:
    app.command()(settings)
