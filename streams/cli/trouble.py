"""`keepsake parked` and `keepsake dead`: windows and records that wait for an operator."""

import asyncio
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streams.cli.common import fail, load_settings, tell, tell_aside
from streams.cli.lifecycle import JsonOption

if TYPE_CHECKING:
    from models.candidates import ParkedWindow
    from models.dead import DeadLetter

ALL_PARKED = 10_000

parked = typer.Typer(
    help="Windows whose extraction failed: kept whole, and taken up again on request.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
dead = typer.Typer(help="Records that could not be understood.", no_args_is_help=True, rich_markup_mode=None)

RequestId = Annotated[str, typer.Argument(metavar="REQUEST_ID", help="As `keepsake parked list` shows it.")]
PlaceText = Annotated[
    str, typer.Argument(metavar="PLACE", help="topic:partition:offset, as `list` shows it.")
]


@parked.command("list")
def parked_list(
    limit: Annotated[int, typer.Option(min=1, help="How many, the oldest first.")] = 100,
    as_json: JsonOption = False,
) -> None:
    """List parked windows."""
    windows = _windows(limit)
    if as_json:
        _print_json([asdict(window) for window in windows])
        return
    for window in windows:
        tell(
            f"{window.request_id}  {window.closed_at:%Y-%m-%d %H:%M}  {window.user_id} with "
            f"{', '.join(window.character_ids)}  messages {window.first_position}-{window.last_position}  "
            f"{window.reason or 'no reason'} after {window.attempts} attempts"
        )
    if not windows:
        tell("no window is parked")


@parked.command("show")
def parked_show(request_id: RequestId, as_json: JsonOption = False) -> None:
    """Show one parked window."""
    window = _window(request_id)
    if as_json:
        _print_json(asdict(window))
        return
    for name, value in asdict(window).items():
        tell(f"{name:<15} {', '.join(value) if isinstance(value, tuple) else value}")


@parked.command("retry")
def parked_retry(
    request_id: Annotated[str | None, typer.Argument(metavar="REQUEST_ID")] = None,
    every: Annotated[bool, typer.Option("--all", help="All parked windows.")] = False,
) -> None:
    """Take a parked window up again, or all of them."""
    if every == (request_id is not None):
        fail("name one window, or say --all")
    from streams.operations import retry_windows

    windows = _windows(ALL_PARKED) if every else [_window(request_id or "")]
    asyncio.run(retry_windows(load_settings(), windows))
    tell(f"asked for {len(windows)} to be taken up again; see `keepsake parked list`")


@dead.command("list")
def dead_list(
    reason: Annotated[str | None, typer.Option(help="Only those with this reason.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List dead letters: where the record stood, when, and why it was refused."""
    letters = _letters(reason)
    if as_json:
        _print_json([_letter_fields(letter) for letter in letters])
        return
    for letter in letters:
        fields = _letter_fields(letter)
        tell(f"{fields['place']:<30}  {fields['time']}  {letter.reason}: {letter.detail}")
    if not letters:
        tell("no dead letters")


@dead.command("show")
def dead_show(
    place: PlaceText,
    text: Annotated[
        bool, typer.Option("--text", help="Print the record itself, which may hold chat.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show one dead letter."""
    letter = _letter(place)
    fields = _letter_fields(letter)
    if text:
        from streams.operations import original

        record = asyncio.run(original(load_settings(), letter))
        fields["key"] = None if record.key is None else record.key.decode(errors="replace")
        fields["value"] = None if record.value is None else record.value.decode(errors="replace")
    if as_json:
        _print_json(fields)
        return
    for name, value in fields.items():
        tell(f"{name:<8} {value}")


@dead.command("retry")
def dead_retry(
    place: Annotated[str | None, typer.Argument(metavar="PLACE")] = None,
    every: Annotated[bool, typer.Option("--all", help="All dead letters (of --reason).")] = False,
    reason: Annotated[str | None, typer.Option(help="With --all: only those with this reason.")] = None,
) -> None:
    """Publish the record again, in the partition where it belongs, with its first time.

    One that would be refused again is left where it is. Published twice does no harm: a message_id counts once.
    """
    if every == (place is not None):
        fail("name one dead letter, or say --all")
    from streams.operations import retry_letters

    letters = _letters(reason) if every else [_letter(place or "")]
    outcomes = asyncio.run(retry_letters(load_settings(), letters))
    refused = [(where, why) for where, why in outcomes if why is not None]
    for where, why in refused:
        tell_aside(f"{where}: {why}")
    tell(f"published {len(outcomes) - len(refused)} again")
    if refused:
        fail(f"{len(refused)} of {len(outcomes)} were not published")


def _windows(limit: int) -> list["ParkedWindow"]:
    from streams.operations import parked_windows

    return asyncio.run(parked_windows(load_settings(), limit))


def _window(request_id: str) -> "ParkedWindow":
    window = next((one for one in _windows(ALL_PARKED) if one.request_id == request_id), None)
    if window is None:
        fail(f"no window is parked with the request id {request_id}: see `keepsake parked list`")
    return window


def _letters(reason: str | None) -> list["DeadLetter"]:
    from streams.operations import dead_letters

    return [one for one in asyncio.run(dead_letters(load_settings())) if reason in (None, one.reason)]


def _letter(place: str) -> "DeadLetter":
    from streams.operations import Place, place_of

    wanted = Place.parse(place)
    letter = next((one for one in _letters(None) if place_of(one) == wanted), None)
    if letter is None:
        fail(f"no dead letter of {place}: see `keepsake dead list`")
    return letter


def _letter_fields(letter: "DeadLetter") -> dict[str, Any]:
    from streams.operations import place_of

    return {
        "place": str(place_of(letter)),
        "time": datetime.fromtimestamp(letter.timestamp / 1000, UTC).isoformat(timespec="seconds"),
        "reason": letter.reason,
        "detail": letter.detail,
        "sha256": letter.sha256,
        "kept": letter.sealed is not None,
    }


def _print_json(value: object) -> None:
    import orjson

    tell(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())
