"""`python -m tests.eval`: the labelled set against a running system, with a table and a report."""

import argparse
import asyncio
import json
import os
import sys
import time
from pathlib import Path

from tests.eval.run import EvalFailed, Run, System, started
from tests.eval.scenario import CATEGORIES, LANGUAGES, load
from tests.eval.score import ScenarioScore, figures, report, table

# Issue "Judgement", done when: with the offline models.
AIMS = {"hit@12": 0.85, "hit@5": 0.75, "wrong": 0.05, "noise": 0.05}
LANGUAGE_AIM = 0.80


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make eval", description=__doc__)
    parser.add_argument("--files", nargs="*", type=Path, help="other files of the same format")
    parser.add_argument("--language", choices=LANGUAGES, action="append")
    parser.add_argument("--category", choices=CATEGORIES, action="append")
    parser.add_argument("--id", action="append", help="one scenario; may be repeated")
    parser.add_argument(
        "--provider",
        default="offline:keepsake-rules",
        metavar="PROVIDER:MODEL",
        help="the extraction model, for example gemini:gemini-2.5-flash (default: %(default)s)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="an earlier report to compare with")
    parser.add_argument(
        "--url",
        help="a running service (with --token) instead of one of its own; `keepsake status` must know it",
    )
    parser.add_argument("--token")
    parser.add_argument("--show", action="store_true", help="list every probe that failed")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    before = json.loads(options.compare.read_text()) if options.compare else None
    everything = load(options.files)
    chosen = [
        scenario
        for scenario in everything
        if (not options.language or scenario.lang in options.language)
        and (not options.category or scenario.category in options.category)
        and (not options.id or scenario.id in options.id)
    ]
    if not chosen:
        tell("no scenario matches")
        return 2
    began = time.monotonic()
    model = f"the model assigned at {options.url}" if options.url else options.provider
    try:
        if options.url:
            running = System(options.url, options.token or "", dict(os.environ))
            scores = asyncio.run(Run(running, tell).play(chosen, everything))
        else:
            with started(tell, {"KEEPSAKE_EXTRACTION_MODEL": options.provider}) as system:
                scores = asyncio.run(Run(system, tell).play(chosen, everything))
    except EvalFailed as error:
        tell(f"eval: {error}")
        return 1
    print(table(scores, before))
    print(f"\n{len(scores)} scenarios in {time.monotonic() - began:.0f} s, {model}")
    if options.show:
        show(scores)
    if options.json:
        options.json.write_text(json.dumps(report(scores), ensure_ascii=False, indent=1) + "\n")
    missed = below_aims(scores)
    for line in missed:
        print(line)
    return 3 if missed else 0


def below_aims(scores: list[ScenarioScore]) -> list[str]:
    """What of the aims is not reached, as lines."""
    lines = []
    for name, rate in figures(scores).rates.items():
        aim = AIMS.get(name)
        if aim is None or rate is None:
            continue
        if rate < aim if name.startswith("hit") else rate > aim:
            lines.append(f"aim missed: {name} is {rate:.3f}, wanted {aim}")
    for language in LANGUAGES:
        rate = figures(score for score in scores if score.lang == language).rates["hit@12"]
        if rate is not None and rate < LANGUAGE_AIM:
            lines.append(f"aim missed: hit@12 of {language} is {rate:.3f}, wanted {LANGUAGE_AIM}")
    return lines


def show(scores: list[ScenarioScore]) -> None:
    for score in scores:
        if score.nothing_to_keep and score.left:
            print(f"noise   {score.id}: {score.left} memories")
        for probe in score.probes:
            for group in probe.missed:
                print(f"missed  {score.id}: {' / '.join(group)}   <- {probe.query}")
            for piece in probe.wrong:
                print(f"wrong   {score.id}: {piece}   <- {probe.query}")
            if probe.first is False:
                print(f"first   {score.id}: {probe.query}")
            if probe.degraded:
                print(f"degraded {score.id}: {probe.degraded}")


if __name__ == "__main__":
    sys.exit(main())
