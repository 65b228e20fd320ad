"""`python -m tests.bench`: runs the benches of the report, or compares this checkout with another commit."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping

from . import console, entities, executions, growth, idle, overload, pocketbase, queue, request_cost, sandbox, static
from .comparison import compare
from .figures import Section, show
from .report import FOLDER, PAGE, conditions, write_report

# In the order of the page.
BENCHES: Mapping[str, Callable[[], Section]] = {
    "request-cost": request_cost.measure_section,
    "executions": executions.measure_section,
    "entities": entities.measure_section,
    "idle": idle.measure_section,
    "pocketbase": pocketbase.measure_section,
    "sandbox": sandbox.measure_section,
    "overload": overload.measure_section,
    "queue": queue.measure_section,
    "static": static.measure_section,
    "console": console.measure_section,
    "growth": growth.measure_section,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=f"Measure, and write {PAGE.name} and its figures.")
    parser.add_argument("--only", action="append", choices=list(BENCHES), help="run this bench and print it, without a report")
    parser.add_argument("--against", metavar="COMMIT", help="measure start and executions of this checkout and a commit in turns")
    parser.add_argument("--rounds", type=int, default=6, help="of a comparison (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each load in a comparison (default: %(default)s)")
    options = parser.parse_args()
    if options.against:
        show(compare(options.against, options.rounds, options.seconds))
        return 0
    began, load = time.time(), os.getloadavg()[0]
    sections = {}
    for name in options.only or BENCHES:
        sections[name] = BENCHES[name]()
        show(sections[name])
    if not options.only:
        write_report(conditions(began, load), sections)
        print(f"\nwritten: {PAGE} and {FOLDER}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
