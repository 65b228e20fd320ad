"""Test tables of decisions: `rules/price.tests.yaml` has the test cases of `rules/price.json`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from appliance.core import yaml12
from appliance.processes.definitions.nodes import Problem
from appliance.sandbox import Pool

from .expectations import find_differences

SUFFIXES = (".tests.yaml", ".tests.json")
MOST_CASES = 500
MEMBERS = ("name", "input", "output", "error")
_MAX_DIFFERENCES = 5


@dataclass(frozen=True)
class RuleCase:
    """One input with its expected output, or with `error`, a part of the expected error message."""

    file: str
    line: int | None
    name: str
    input: Any
    output: Any
    error: str | None


@dataclass(frozen=True)
class RuleTable:
    """The test cases of one decision."""

    decision: str
    cases: tuple[RuleCase, ...]


@dataclass(frozen=True)
class CaseResult:
    """The result of a case; `problem` describes the difference from what was expected, None when it passed."""

    case: RuleCase
    problem: str | None


def decision_of(path: str) -> str | None:
    """The path of the decision a test table belongs to; None for any other file."""
    suffix = next((each for each in SUFFIXES if path.endswith(each)), None)
    return None if suffix is None else path.removesuffix(suffix) + ".json"


def parse_tables(files: Mapping[str, str]) -> tuple[list[RuleTable], list[Problem]]:
    """Parses every test table of a draft; returns the valid ones and all problems."""
    tables: list[RuleTable] = []
    problems: list[Problem] = []
    for path in sorted(files):
        decision = decision_of(path)
        if decision is None:
            continue
        parser = _TableParser(path)
        cases = parser.read(files[path])
        if decision not in files:
            parser.problem("", f"there is no {decision} for these cases to test; name the table after its decision")
        problems += parser.problems
        if not parser.problems:
            tables.append(RuleTable(decision, tuple(cases)))
    return tables, problems


class _TableParser:
    def __init__(self, file: str) -> None:
        self.file = file
        self.lines: dict[str, int] = {}
        self.problems: list[Problem] = []

    def problem(self, pointer: str, message: str, line: int | None = None, column: int | None = None) -> None:
        text = f"{pointer} {message}".strip()
        self.problems.append(Problem("/files", "table_invalid", text, self.file, line or self.lines.get(pointer), column))

    def read(self, text: str) -> list[RuleCase]:
        try:
            data, self.lines = yaml12.load_with_lines(text)
        except yaml12.YamlInvalid as error:
            self.problem("", error.message, error.line, error.column)
            return []
        listed = data.get("cases") if isinstance(data, dict) and set(data) == {"cases"} else None
        if not isinstance(listed, list) or not 1 <= len(listed) <= MOST_CASES:
            self.problem("", f"a test table is an object with `cases`, a list of 1 to {MOST_CASES} of them")
            return []
        return [case for index, value in enumerate(listed) if (case := self.case(value, f"/cases/{index}", index)) is not None]

    def case(self, value: Any, pointer: str, index: int) -> RuleCase | None:
        if not isinstance(value, dict):
            self.problem(pointer, "a case is an object")
            return None
        for name in value:
            if name not in MEMBERS:
                self.problem(f"{pointer}/{name}", f"{name[:60]!r} is not known here; known are {', '.join(MEMBERS)}")
        if ("output" in value) == ("error" in value):
            self.problem(pointer, "a case has either `output` or `error`")
        for name in ("name", "error"):
            if name in value and not isinstance(value[name], str):
                self.problem(f"{pointer}/{name}", "this must be a text")
        if not isinstance(value.get("input"), dict):
            self.problem(f"{pointer}/input", "the input of a decision is an object")
        name = str(value.get("name", f"case {index + 1}"))
        return RuleCase(self.file, self.lines.get(pointer), name, value.get("input"), value.get("output"), value.get("error"))


def run_tables(pool: Pool, tenant_id: str, files: Mapping[str, str]) -> Iterator[CaseResult]:
    """Evaluates every case of every valid table; a decision that is not valid JSON fails its cases."""
    for table in parse_tables(files)[0]:
        try:
            model = yaml12.load(files[table.decision])
        except yaml12.YamlInvalid as error:
            yield from (CaseResult(case, f"{table.decision}: {error}") for case in table.cases)
            continue
        for case in table.cases:
            yield CaseResult(case, _check_case(pool, tenant_id, model, case))


def _check_case(pool: Pool, tenant_id: str, model: Any, case: RuleCase) -> str | None:
    if not isinstance(model, dict):
        return "the decision is not a JSON Decision Model"
    result = pool.decide(model, case.input, namespace=tenant_id)
    if result.failure is not None:
        message = result.failure.message
        if case.error is None:
            return f"the decision failed: {message}"
        return None if case.error in message else f"expected an error with {case.error!r}, found: {message}"
    if case.error is not None:
        return f"expected an error with {case.error!r}, but the decision answered"
    differences = list(find_differences(case.output, result.value))
    more = f" (and {len(differences) - _MAX_DIFFERENCES} more)" if len(differences) > _MAX_DIFFERENCES else ""
    return "; ".join(each.describe() for each in differences[:_MAX_DIFFERENCES]) + more if differences else None


def table_problems(pool: Pool, tenant_id: str, files: Mapping[str, str], *, run: bool) -> list[Problem]:
    """The problems of a draft's test tables; with `run`, failed cases are included."""
    problems = parse_tables(files)[1]
    if run:
        for result in run_tables(pool, tenant_id, files):
            if result.problem is not None:
                text = f"{result.case.name}: {result.problem}"
                problems.append(Problem("/files", "case_failed", text, result.case.file, result.case.line))
    return problems
