"""`make bench`: a table of figures, as ratios against a baseline of the same run where there is one."""

import argparse
import json
import sys
from collections.abc import Callable

from tests.bench import measures

MEASURES: dict[str, Callable[[], list[measures.Row]]] = {
    "throughput": measures.throughput,
    "latency": measures.latency,
    "footprint": measures.footprint,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("only", nargs="*", help=f"which of {', '.join(MEASURES)}; all by default")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    if unknown := set(options.only) - set(MEASURES):
        parser.error(f"no measure {', '.join(sorted(unknown))}: there are {', '.join(MEASURES)}")
    rows = [row for name in options.only or MEASURES for row in MEASURES[name]()]
    if options.json:
        json.dump(dict(rows), sys.stdout, ensure_ascii=False, indent=1)
        return
    print(f"\n{measures.machine()}")
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")


if __name__ == "__main__":
    main()
