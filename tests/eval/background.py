"""Background windows: what else a user has talked about, so that the places of a recall are contested."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from random import Random

from tests.eval.matching import normal
from tests.eval.scenario import Line, Scenario

WINDOWS = 40
THRESHOLD = 5
Window = tuple[Line, ...]


def windows(lines: Iterable[Line]) -> list[Window]:
    """The full windows of a conversation: five messages of the user and what follows until the answer."""
    found: list[Window] = []
    current: list[Line] = []
    for line in lines:
        if line.role == "system":
            continue
        spoken = sum(entry.role == "user" for entry in current)
        if line.role == "user" and spoken == THRESHOLD:
            found.append(tuple(current))
            current = []
        current.append(line)
        if line.role == "assistant" and spoken == THRESHOLD:
            found.append(tuple(current))
            current = []
    if sum(entry.role == "user" for entry in current) == THRESHOLD:
        found.append(tuple(current))
    return found


def backgrounds(scenarios: Sequence[Scenario], number: int = WINDOWS) -> dict[str, list[Window]]:
    """For each scenario, by id, windows of others in its language that hold none of its pieces.

    The choice is a function of the scenario's id. Scenarios with nothing to keep get none.
    """
    pool: dict[str, list[tuple[str, Window, str]]] = defaultdict(list)
    for scenario in scenarios:
        for window in windows(scenario.messages):
            text = normal("\n".join(line.text for line in window))
            pool[scenario.lang].append((scenario.id, window, text))
    chosen: dict[str, list[Window]] = {}
    for scenario in scenarios:
        if scenario.nothing_to_keep:
            chosen[scenario.id] = []
            continue
        pieces = _pieces(scenario)
        others = [
            window
            for owner, window, text in pool[scenario.lang]
            if owner != scenario.id and not any(piece in text for piece in pieces)
        ]
        # Not for secrets: a choice that is the same in every run.
        Random(scenario.id).shuffle(others)  # noqa: S311
        chosen[scenario.id] = others[:number]
    return chosen


def _pieces(scenario: Scenario) -> set[str]:
    return {
        normal(piece)
        for probe in scenario.probes
        for group in (*probe.gold, probe.forbid, probe.first)
        for piece in group
    }
