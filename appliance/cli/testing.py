"""`gos test`: run a solution folder's test cases and test tables, without an appliance and without side effects."""

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from appliance.core.config import Config, load_config
from appliance.core.errors import NotFound
from appliance.core.scope import TenantScope
from appliance.llm import BorrowedProfile, LanguageModels, UsageSum, book_usage, copy_profiles, store_copies, usage_of_copies
from appliance.solutions import Solution, raise_problems, read_folder, read_solution, read_test_files
from appliance.solutions.testing import (
    AgentCase,
    Case,
    CaseResult,
    read_cases,
    run_agent_case,
    run_case,
    run_rule_cases,
    set_up_tenant,
)
from appliance.tenants import service as tenants

from .output import add_json, opened_store

if TYPE_CHECKING:
    from appliance.app.composition import Appliance

TENANT = "tests"


def add_commands(commands: Any) -> None:
    test = commands.add_parser("test", help="run the test cases and test tables of a solution folder")
    test.add_argument("dir", type=Path)
    test.add_argument("--only", default="", metavar="TEXT", help="only cases whose file or name contains this text")
    test.add_argument("--tenant", metavar="NAME", help="also run the agents' cases, with this tenant's LLM profiles")
    test.add_argument("--junit", type=Path, metavar="FILE", help="also write a JUnit XML report")
    add_json(test)
    test.set_defaults(run=run_tests)


def run_tests(args: argparse.Namespace) -> int:
    solution = read_solution(read_folder(args.dir))
    all_cases, problems = read_cases(read_test_files(args.dir))
    raise_problems(problems)
    cases = [case for case in all_cases if args.only in f"{case.file} {case.name}"]
    of_agents = [case for case in cases if isinstance(case, AgentCase)]
    with _borrow(args, solution, of_agents) as profiles, _temporary_appliance(args) as appliance:
        services = appliance.services
        tenants.create_tenant(TENANT, "Tests")
        scope = tenants.system_scope(TENANT)
        set_up_tenant(scope, services.sealer, services.solutions, solution)
        with profiles.borrowed(services.llm, scope):
            results = chain(
                run_rule_cases(services.sandbox, solution, args.only),
                (run_case(services.processes, scope, case) for case in cases if isinstance(case, Case)),
                (run_agent_case(scope, case, services.agents.runs.runner.dependencies) for case in of_agents if args.tenant),
            )
            outcomes = [_print_result(args, outcome) for outcome in results]
    left_out = 0 if args.tenant else len(of_agents)
    if not outcomes and not left_out:
        raise NotFound(f"there are no tests: write tests/<name>.yaml in {args.dir}, or rules/<name>.tests.yaml in a process")
    if args.junit is not None:
        args.junit.write_bytes(junit(solution.name, outcomes))
    return _print_summary(args, solution.name, outcomes, left_out)


@dataclass
class _BorrowedProfiles:
    """LLM profiles copied from the tenant's own appliance for the tests, and the usage to record there afterwards."""

    lent: Sequence[BorrowedProfile] = ()
    used: Mapping[str, UsageSum] = field(default_factory=dict)

    @contextmanager
    def borrowed(self, models: LanguageModels, scope: TenantScope) -> Iterator[None]:
        store_copies(models, scope, self.lent)
        try:
            yield
        finally:
            self.used = usage_of_copies(scope, self.lent)


@contextmanager
def _borrow(args: argparse.Namespace, solution: Solution, cases: Sequence[AgentCase]) -> Iterator[_BorrowedProfiles]:
    """Copy the LLM profiles of these cases' agents from this machine's appliance, and record their usage there at the end."""
    if not args.tenant or not cases:
        yield _BorrowedProfiles()
        return
    from appliance.app.parts import make_language_models

    config: Config = args.load()
    slugs = [solution.agents[case.agent].model for case in cases if case.agent in solution.agents]
    with opened_store(config) as sealer:
        home = tenants.system_scope(tenants.get_tenant(args.tenant).id)
        profiles = _BorrowedProfiles(copy_profiles(make_language_models(config, sealer), home, slugs))
    try:
        yield profiles
    finally:
        with opened_store(config):
            book_usage(home, dict(profiles.used))


@contextmanager
def _temporary_appliance(args: argparse.Namespace) -> Iterator["Appliance"]:
    """A running appliance with a temporary data folder, which is deleted afterwards."""
    from appliance.app.composition import build

    own: Config = args.load()
    with tempfile.TemporaryDirectory(prefix="gos-test-") as folder:
        flags = {
            "storage.data": folder, "logs.level": "error", "sandbox.runtimes": own.sandbox.runtimes, "sandbox.processes": 1,
            "sandbox.slots": 2,
        }  # fmt: skip
        if args.tenant:  # The tenant's models may be at any address its appliance may reach.
            flags |= {"egress.allow": list(own.egress.allow), "egress.ca_file": own.egress.ca_file}
        appliance = build(load_config(environment={}, flags=flags))
        try:
            appliance.start()
            yield appliance
        finally:
            appliance.stop()


def _print_result(args: argparse.Namespace, outcome: CaseResult) -> CaseResult:
    """Print one line for a case that passes; for one that fails, also its problems, logs and output."""
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


def _print_summary(args: argparse.Namespace, name: str, outcomes: Sequence[CaseResult], left_out: int) -> int:
    failed = sum(not outcome.ok for outcome in outcomes)
    if args.json:
        case_views = [{"ok": outcome.ok, **asdict(outcome)} for outcome in outcomes]
        about = {"solution": name, "passed": len(outcomes) - failed, "failed": failed, "left_out": left_out}
        print(json.dumps(about | {"cases": case_views}, indent=2))
    else:
        print(f"{name}: {len(outcomes) - failed} passed, {failed} failed")
        if left_out:
            print(f"skipped: {left_out} cases of agents, which need a model; choose a tenant with LLM profiles with --tenant")
    return 1 if failed else 0


def junit(name: str, outcomes: Sequence[CaseResult]) -> bytes:
    """The results as JUnit XML, which CI systems can show."""
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
    """The text with characters that XML does not allow replaced."""
    return "".join(each if each.isprintable() or each in "\n\t" else "?" for each in text)
