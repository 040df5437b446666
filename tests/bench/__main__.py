"""`make bench`: a table of figures, as ratios against a baseline of the same run where there is one."""

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial

from tests.bench import measures
from tests.bench.recall import recall

MEASURES: dict[str, Callable[[], list[measures.Row]]] = {
    "throughput": measures.throughput,
    "latency": measures.latency,
    "footprint": measures.footprint,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("only", nargs="*", help=f"which of {', '.join(MEASURES)}, recall; all by default")
    parser.add_argument("--memories", type=int, default=1_000_000, help="of the measure recall")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    everything: dict[str, Callable[[], list[measures.Row]]] = {
        **MEASURES,
        "recall": partial(recall, measures.say, options.memories),
    }
    if unknown := set(options.only) - set(everything):
        parser.error(f"no measure {', '.join(sorted(unknown))}: there are {', '.join(everything)}")
    rows = [row for name in options.only or everything for row in everything[name]()]
    if options.json:
        json.dump(dict(rows), sys.stdout, ensure_ascii=False, indent=1)
        return
    print(f"\n{measures.machine()}")
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")


if __name__ == "__main__":
    main()
