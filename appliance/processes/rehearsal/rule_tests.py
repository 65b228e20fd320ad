"""Test tables beside decisions: `rules/price.tests.yaml` holds cases for `rules/price.json`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from appliance.core import yaml12
from appliance.processes.definitions.nodes import Problem
from appliance.sandbox import Pool

from .expectations import find_differences

ENDINGS = (".tests.yaml", ".tests.json")
MOST_CASES = 500
MEMBERS = ("name", "input", "output", "error")
_SHOWN_DIFFERENCES = 5


@dataclass(frozen=True)
class RuleCase:
    """One input and what the decision is to make of it: an output, or an error whose sentence holds `error`."""

    file: str
    line: int | None
    name: str
    input: Any
    output: Any
    error: str | None


@dataclass(frozen=True)
class RuleTable:
    """The cases of one decision."""

    decision: str
    cases: tuple[RuleCase, ...]


@dataclass(frozen=True)
class CaseResult:
    """How a case went; `problem` says what was not as expected."""

    case: RuleCase
    problem: str | None


def decision_of(path: str) -> str | None:
    """The decision a test table belongs to; None for any other file."""
    ending = next((each for each in ENDINGS if path.endswith(each)), None)
    return None if ending is None else path.removesuffix(ending) + ".json"


def read_tables(files: Mapping[str, str]) -> tuple[list[RuleTable], list[Problem]]:
    """Every test table of a draft, and what is wrong with them."""
    tables: list[RuleTable] = []
    problems: list[Problem] = []
    for path in sorted(files):
        decision = decision_of(path)
        if decision is None:
            continue
        reader = _TableReader(path)
        cases = reader.read(files[path])
        if decision not in files:
            reader.problem("", f"there is no {decision} that these cases would test; name the table after its decision")
        problems += reader.problems
        if not reader.problems:
            tables.append(RuleTable(decision, tuple(cases)))
    return tables, problems


class _TableReader:
    def __init__(self, file: str) -> None:
        self.file = file
        self.lines: dict[str, int] = {}
        self.problems: list[Problem] = []

    def problem(self, pointer: str, message: str, line: int | None = None, column: int | None = None) -> None:
        told = f"{pointer} {message}".strip()
        self.problems.append(Problem("/files", "table_invalid", told, self.file, line or self.lines.get(pointer), column))

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
    """Decide every case of every table that can be read; a decision that is not JSON fails its cases."""
    for table in read_tables(files)[0]:
        try:
            model = yaml12.load(files[table.decision])
        except yaml12.YamlInvalid as error:
            yield from (CaseResult(case, f"{table.decision}: {error}") for case in table.cases)
            continue
        for case in table.cases:
            yield CaseResult(case, _judge(pool, tenant_id, model, case))


def _judge(pool: Pool, tenant_id: str, model: Any, case: RuleCase) -> str | None:
    if not isinstance(model, dict):
        return "the decision is no JSON Decision Model"
    decided = pool.decide(model, case.input, namespace=tenant_id)
    if decided.failure is not None:
        told = decided.failure.message
        if case.error is None:
            return f"the decision failed: {told}"
        return None if case.error in told else f"expected an error with {case.error!r}, found: {told}"
    if case.error is not None:
        return f"expected an error with {case.error!r}, but the decision answered"
    found = list(find_differences(case.output, decided.value))
    more = f" (and {len(found) - _SHOWN_DIFFERENCES} more)" if len(found) > _SHOWN_DIFFERENCES else ""
    return "; ".join(each.describe() for each in found[:_SHOWN_DIFFERENCES]) + more if found else None


def table_problems(pool: Pool, tenant_id: str, files: Mapping[str, str], *, run: bool) -> list[Problem]:
    """What is wrong with the tables of a draft; with `run` every case that fails is a problem too."""
    problems = read_tables(files)[1]
    if run:
        for result in run_tables(pool, tenant_id, files):
            if result.problem is not None:
                told = f"{result.case.name}: {result.problem}"
                problems.append(Problem("/files", "case_failed", told, result.case.file, result.case.line))
    return problems
