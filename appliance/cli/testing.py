"""`gos test`: run a solution folder's own cases and test tables, without an appliance and without any effect."""

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from appliance.core.config import Config, load_config
from appliance.core.errors import NotFound
from appliance.solutions.cases import read_cases
from appliance.solutions.definition import read_solution, refuse
from appliance.solutions.folder import read_folder, read_test_files
from appliance.solutions.service import Tools
from appliance.solutions.testing import CaseOutcome, run_case, run_rule_cases, set_up
from appliance.tenants import service as tenants

from .output import add_json

if TYPE_CHECKING:
    from appliance.app import Appliance

TENANT = "tests"


def add_commands(commands: Any) -> None:
    test = commands.add_parser("test", help="run the cases and test tables of a solution folder")
    test.add_argument("dir", type=Path)
    test.add_argument("--only", default="", metavar="TEXT", help="only cases whose file or name has this text in it")
    test.add_argument("--junit", type=Path, metavar="FILE", help="also write a JUnit XML report")
    add_json(test)
    test.set_defaults(run=run_tests)


def run_tests(args: argparse.Namespace) -> int:
    solution = read_solution(read_folder(args.dir))
    cases, problems = read_cases(read_test_files(args.dir))
    refuse(problems)
    with _place(args) as appliance:
        services = appliance.services
        tenants.create_tenant(TENANT, "Tests")
        scope = tenants.system_scope(TENANT)
        set_up(scope, services.sealer, Tools(services.pool, services.integrations, skills=services.skills), solution)
        found = chain(
            run_rule_cases(services.pool, solution, args.only),
            (run_case(services.processes, scope, case) for case in cases if args.only in f"{case.file} {case.name}"),
        )
        outcomes = [_tell(args, outcome) for outcome in found]
    if not outcomes:
        raise NotFound(f"there is nothing to test: write tests/<name>.yaml in {args.dir}, or rules/<name>.tests.yaml in a process")
    if args.junit is not None:
        args.junit.write_bytes(junit(solution.name, outcomes))
    return _conclude(args, solution.name, outcomes)


@contextmanager
def _place(args: argparse.Namespace) -> Iterator["Appliance"]:
    """An appliance with a data folder of its own that nobody else sees and that is gone afterwards."""
    from appliance.app import build

    own: Config = args.load()
    with tempfile.TemporaryDirectory(prefix="gos-test-") as folder:
        flags = {
            "storage.data": folder, "logs.level": "error", "sandbox.runtimes": own.sandbox.runtimes, "sandbox.processes": 1,
            "sandbox.slots": 2,
        }  # fmt: skip
        appliance = build(load_config(environment={}, flags=flags))
        try:
            appliance.start()
            yield appliance
        finally:
            appliance.stop()


def _tell(args: argparse.Namespace, outcome: CaseOutcome) -> CaseOutcome:
    """One line for a case that holds; for one that does not, everything that helps to find out why."""
    if args.json:
        return outcome
    place = ":".join(str(part) for part in (outcome.file, outcome.line) if part is not None)
    print(f"{'ok  ' if outcome.ok else 'FAIL'} {place}  {outcome.name}", flush=True)
    for problem in outcome.problems:
        print(f"       {problem}")
    if not outcome.ok:
        for line in outcome.logs:
            print(f"       log {line}")
        if outcome.output is not None:
            print(f"       output {json.dumps(outcome.output, ensure_ascii=False)[:2000]}")
    return outcome


def _conclude(args: argparse.Namespace, name: str, outcomes: Sequence[CaseOutcome]) -> int:
    failed = sum(not outcome.ok for outcome in outcomes)
    if args.json:
        shown = [{"ok": outcome.ok, **asdict(outcome)} for outcome in outcomes]
        print(json.dumps({"solution": name, "passed": len(outcomes) - failed, "failed": failed, "cases": shown}, indent=2))
    else:
        print(f"{name}: {len(outcomes) - failed} passed, {failed} failed")
    return 1 if failed else 0


def junit(name: str, outcomes: Sequence[CaseOutcome]) -> bytes:
    """The outcomes as JUnit XML, which every CI system shows."""
    failed = sum(not outcome.ok for outcome in outcomes)
    suite = ElementTree.Element("testsuite", name=name, tests=str(len(outcomes)), failures=str(failed))
    for outcome in outcomes:
        seconds = f"{outcome.duration_ms / 1000:.3f}"
        case = ElementTree.SubElement(suite, "testcase", classname=outcome.file, name=_clean(outcome.name), time=seconds)
        if not outcome.ok:
            message = _clean(outcome.problems[0])
            ElementTree.SubElement(case, "failure", message=message).text = _clean("\n".join(outcome.problems))
    report: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return report


def _clean(text: str) -> str:
    """Without the characters that XML cannot hold."""
    return "".join(each if each.isprintable() or each in "\n\t" else "?" for each in text)
