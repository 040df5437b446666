"""Straw systems: what a memory must not be. They must score visibly worse, or the set tests nothing.

Each turns a conversation's windows into memories; what it finds again is decided by shared character pairs,
which is enough to tell a good memory from a bad one.
"""

from collections.abc import Callable, Sequence
from typing import Any

from tests.eval.background import Window, backgrounds, windows
from tests.eval.matching import normal
from tests.eval.scenario import Line, Scenario
from tests.eval.score import ScenarioScore, scenario_score, score_probe

Memory = dict[str, Any]
Straw = Callable[[Sequence[Window]], list[Memory]]


def store_everything(talk: Sequence[Window]) -> list[Memory]:
    """Every line of every window, whoever said it."""
    return [_memory(window) for window in talk]


def store_nothing(_talk: Sequence[Window]) -> list[Memory]:
    return []


def last_window_only(talk: Sequence[Window]) -> list[Memory]:
    """What a context window without any memory holds."""
    return [_memory(window) for window in talk[-1:]]


def assistant_lines_as_facts(talk: Sequence[Window]) -> list[Memory]:
    """What the character said, taken for what the user told."""
    found = [tuple(line for line in window if line.role == "assistant") for window in talk]
    return [_memory(lines) for lines in found if lines]


STRAWS: tuple[Straw, ...] = (store_everything, store_nothing, last_window_only, assistant_lines_as_facts)


def play(straw: Straw, scenarios: Sequence[Scenario]) -> list[ScenarioScore]:
    """The scores of a straw system, with the same background as the real one has."""
    behind = backgrounds(scenarios)
    scores = []
    for scenario in scenarios:
        own = _all_windows(scenario.messages)
        memories = straw([*behind[scenario.id], *own])
        left = len(memories) if scenario.nothing_to_keep else 0
        probes = [score_probe(probe, _found(memories, probe.query), None) for probe in scenario.probes]
        scores.append(scenario_score(scenario, left, probes))
    return scores


def _all_windows(lines: Sequence[Line]) -> list[Window]:
    spoken = tuple(line for line in lines if line.role != "system")
    full = windows(spoken)
    rest = spoken[sum(map(len, full)) :]
    return [*full, rest] if rest else full


def _memory(lines: Sequence[Line]) -> Memory:
    texts = [line.text for line in lines]
    return {
        "summary": "\n".join(texts),
        "key_details": [{"text": text} for text in texts],
        "plans": [],
        "category": None,
        "date": lines[-1].sent_at.date().isoformat(),
    }


def _found(memories: Sequence[Memory], query: str) -> list[Memory]:
    """The memories by how many character pairs they share with the query, newest first among equals."""
    wanted = _pairs(query)
    ranked = sorted(
        enumerate(memories), key=lambda entry: (-len(wanted & _pairs(entry[1]["summary"])), -entry[0])
    )
    return [memory for _, memory in ranked]


def _pairs(text: str) -> set[str]:
    folded = normal(text)
    return {folded[at : at + 2] for at in range(len(folded) - 1)}
