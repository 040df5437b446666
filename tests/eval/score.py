"""From the answers to the figures: hit at 12 and at 5, wrong, noise; by category and by language."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.eval.matching import forbidden, groups_found, holds
from tests.eval.scenario import CATEGORIES, LANGUAGES, Probe, Scenario

MEMORIES = 12
FEW = 5


@dataclass(frozen=True, slots=True)
class ProbeScore:
    """What one answer held. `first` is None where the probe does not ask for it."""

    query: str
    groups: int
    found_at_12: int
    found_at_5: int
    missed: tuple[tuple[str, ...], ...]
    forbids: bool
    wrong: tuple[str, ...]
    first: bool | None
    degraded: str | None


@dataclass(frozen=True, slots=True)
class ScenarioScore:
    """What came of one scenario. `left` is how many memories it left."""

    id: str
    lang: str
    category: str
    nothing_to_keep: bool
    left: int
    probes: tuple[ProbeScore, ...]


@dataclass(slots=True)
class Figures:
    """Sums over some scenarios; a rate is None where nothing was asked."""

    groups: int = 0
    found_at_12: int = 0
    found_at_5: int = 0
    forbidding: int = 0
    wrong: int = 0
    quiet: int = 0
    noisy: int = 0
    firsts: int = 0
    first: int = 0
    scenarios: int = field(default=0)

    def add(self, score: ScenarioScore) -> None:
        self.scenarios += 1
        self.quiet += score.nothing_to_keep
        self.noisy += score.nothing_to_keep and score.left > 0
        for probe in score.probes:
            self.groups += probe.groups
            self.found_at_12 += probe.found_at_12
            self.found_at_5 += probe.found_at_5
            self.forbidding += probe.forbids
            self.wrong += bool(probe.wrong)
            self.firsts += probe.first is not None
            self.first += probe.first is True

    @property
    def rates(self) -> dict[str, float | None]:
        return {
            "hit@12": _rate(self.found_at_12, self.groups),
            "hit@5": _rate(self.found_at_5, self.groups),
            "wrong": _rate(self.wrong, self.forbidding),
            "noise": _rate(self.noisy, self.quiet),
            "first": _rate(self.first, self.firsts),
        }


def score_probe(probe: Probe, memories: Sequence[Mapping[str, Any]], degraded: str | None) -> ProbeScore:
    """Judge one answer, as given: best first, at most twelve memories are looked at."""
    memories = memories[:MEMORIES]
    return ProbeScore(
        query=probe.query,
        groups=len(probe.gold),
        found_at_12=groups_found(probe, memories, MEMORIES),
        found_at_5=groups_found(probe, memories, FEW),
        missed=tuple(g for g in probe.gold if not any(holds(m, p) for m in memories for p in g)),
        forbids=bool(probe.forbid),
        wrong=tuple(forbidden(probe, memories)),
        first=any(holds(m, p) for m in memories[:1] for p in probe.first) if probe.first else None,
        degraded=degraded,
    )


def scenario_score(scenario: Scenario, left: int, probes: Iterable[ProbeScore]) -> ScenarioScore:
    return ScenarioScore(
        scenario.id, scenario.lang, scenario.category, scenario.nothing_to_keep, left, tuple(probes)
    )


def figures(scores: Iterable[ScenarioScore]) -> Figures:
    total = Figures()
    for score in scores:
        total.add(score)
    return total


def report(scores: Sequence[ScenarioScore]) -> dict[str, Any]:
    """Everything as JSON: rates in all, by language, by category, and every scenario."""
    return {
        "all": figures(scores).rates,
        "languages": {name: figures(s for s in scores if s.lang == name).rates for name in LANGUAGES},
        "categories": {name: figures(s for s in scores if s.category == name).rates for name in CATEGORIES},
        "scenarios": [asdict(score) for score in scores],
    }


def table(scores: Sequence[ScenarioScore], before: Mapping[str, Any] | None = None) -> str:
    """The rates as lines of text; beside them the change since an earlier report, where there is one."""
    now = report(scores)
    lines = [f"{'':14}" + "".join(f"{name:>16}" for name in now["all"])]

    def line(title: str, rates: Mapping[str, float | None], old: Mapping[str, float | None]) -> None:
        lines.append(f"{title:14}" + "".join(f"{_cell(rates[name], old.get(name)):>16}" for name in rates))

    for part in ("categories", "languages"):
        for title, rates in now[part].items():
            if any(rate is not None for rate in rates.values()):
                line(title, rates, before[part].get(title, {}) if before else {})
    line("all", now["all"], before["all"] if before else {})
    return "\n".join(lines)


def _rate(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


def _cell(rate: float | None, old: float | None) -> str:
    if rate is None:
        return "–"
    return f"{rate:.3f}" + (f" ({rate - old:+.3f})" if old is not None and rate != old else "")
