"""Parses the test cases in a solution's tests/ folder and reports every problem at once; pure, no database."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from appliance.core import yaml12
from appliance.processes.definitions import line_of, pointer_token
from appliance.solutions.definition import Problem
from appliance.solutions.testing.agent_cases import AGENT_CASE_MEMBERS, AgentCase, read_agent_expectation, read_answers

TESTS_FOLDER = "tests"
# `refused`: the case does not start, for example because its input is invalid.
STATUSES = ("succeeded", "failed", "timed_out", "refused")
STEP_MEMBERS = ("status", "output", "outputs", "times", "result_source", "error")
CALL_MEMBERS = ("step", "method", "args", "effect", "answered_by", "ok")
ERROR_MEMBERS = ("code", "failure_class", "message", "step")
_CASE_MEMBERS = ("name", "process", "step", "input", "input_file", "context", "mocks", "records", "expect")
_EXPECT_MEMBERS = ("status", "output", "error", "steps", "effects", "calls")


@dataclass(frozen=True)
class Expectation:
    """The expected result; None means anything."""

    status: str
    output: Mapping[str, Any] = field(default_factory=dict)  # {"output": …}, empty if anything is accepted
    error: Mapping[str, Any] | None = None
    steps: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    effects: list[Any] | None = None
    calls: list[Any] | None = None


@dataclass(frozen=True)
class Case:
    """One test of a process, or of one `step` of it; `records` exist in DataPool while it runs."""

    file: str
    line: int | None
    name: str
    process: str
    step: str | None
    input: Any
    context: Mapping[str, Any]
    mocks: Mapping[str, Any]
    records: Mapping[str, list[Any]]
    expect: Expectation


def read_cases(files: Mapping[str, bytes]) -> tuple[list[Case | AgentCase], list[Problem]]:
    """The cases of every `tests/<name>.yaml`, and their problems; `files` are those of the tests folder and its inputs."""
    cases: list[Case | AgentCase] = []
    problems: list[Problem] = []
    for path in sorted(files):
        if path.startswith(f"{TESTS_FOLDER}/") and path.endswith(".yaml"):
            reader = _CaseReader(path, files)
            cases += reader.read()
            problems += reader.problems
    return cases, problems


class _CaseReader:
    """Parses one file and collects problems."""

    def __init__(self, path: str, files: Mapping[str, bytes]) -> None:
        self.path, self.files = path, files
        self.lines: dict[str, int] = {}
        self.problems: list[Problem] = []

    def problem(self, pointer: str, message: str, *, line: int | None = None, column: int | None = None) -> None:
        place = line or line_of(pointer, self.lines) or self.lines.get("")
        self.problems.append(Problem(self.path, "case_invalid", f"{pointer} {message}".strip(), place, column=column))

    def mapping(self, value: Any, pointer: str, allowed: tuple[str, ...] = ()) -> dict[str, Any]:
        """An object that may only have the members `allowed`; any members if that is empty."""
        if not isinstance(value, dict):
            self.problem(pointer, "this must be an object")
            return {}
        for name in value if allowed else ():
            if name not in allowed:
                self.problem(f"{pointer}/{pointer_token(name)}", f"{name[:60]!r} is not known here; known are {', '.join(allowed)}")
        return value

    def read(self) -> list[Case | AgentCase]:
        try:
            data, self.lines = yaml12.load_with_lines(self.files[self.path].decode("utf8"))
        except UnicodeDecodeError:
            self.problem("", "the file is not UTF-8 text")
            return []
        except yaml12.YamlInvalid as error:
            self.problem("", error.message, line=error.line, column=error.column)
            return []
        members = self.mapping(data, "", ("process", "agent", "records", "mocks", "cases"))
        listed = members.get("cases")
        if not isinstance(listed, list) or not listed:
            self.problem("/cases", "a test file needs `cases`, a list of at least one")
            return []
        if "agent" in members and "process" in members:
            self.problem("/agent", "a test file is either for a process or for an agent")
        cases = [self.any_case(members, value, index) for index, value in enumerate(listed)]
        return [case for case in cases if case is not None]

    def any_case(self, defaults: Mapping[str, Any], value: Any, index: int) -> Case | AgentCase | None:
        of_agent = "agent" in defaults or (isinstance(value, dict) and "agent" in value)
        return self.agent_case(defaults, value, index) if of_agent else self.case(defaults, value, index)

    def agent_case(self, defaults: Mapping[str, Any], value: Any, index: int) -> AgentCase | None:
        problem_count, pointer = len(self.problems), f"/cases/{index}"
        members = self.mapping(value, pointer, AGENT_CASE_MEMBERS)
        name, agent = members.get("name", f"case {index + 1}"), members.get("agent", defaults.get("agent"))
        if not isinstance(name, str) or not isinstance(agent, str):
            self.problem(pointer, "name and agent must be texts")
        # The case's own answers come first, because the first match is used.
        own = read_answers(self, members.get("mocks", {}), f"{pointer}/mocks")
        shared = read_answers(self, defaults.get("mocks", {}), "/mocks")
        records = {**self.records(defaults, ""), **self.records(members, pointer)}
        expect = read_agent_expectation(self, members.get("expect", {}), f"{pointer}/expect")
        text = members.get("input")
        case_input = text if isinstance(text, str) and "input_file" not in members else self.input(members, pointer)
        if len(self.problems) > problem_count:
            return None
        return AgentCase(
            file=self.path, line=self.lines.get(pointer), name=str(name), agent=str(agent), input=case_input, own_answers=own,
            shared_answers=shared, records=records, expect=expect,
        )

    def case(self, defaults: Mapping[str, Any], value: Any, index: int) -> Case | None:
        problem_count, pointer = len(self.problems), f"/cases/{index}"
        members = self.mapping(value, pointer, _CASE_MEMBERS)
        process = members.get("process", defaults.get("process"))
        if not isinstance(process, str):
            self.problem(f"{pointer}/process", "give the process, here or for the whole file")
        name, step = members.get("name", f"case {index + 1}"), members.get("step")
        if not isinstance(name, str) or not isinstance(step, str | None):
            self.problem(pointer, "name and step must be texts")
        records = {**self.records(defaults, ""), **self.records(members, pointer)}
        mocks = {**self.mapping(defaults.get("mocks", {}), "/mocks"), **self.mapping(members.get("mocks", {}), f"{pointer}/mocks")}
        context = self.mapping(members.get("context", {}), f"{pointer}/context", ("steps", "items"))
        expect = self.expect(members.get("expect", {}), f"{pointer}/expect")
        case_input = self.input(members, pointer)
        if len(self.problems) > problem_count:
            return None
        return Case(
            file=self.path, line=self.lines.get(pointer), name=str(name), process=str(process), step=step, input=case_input,
            context=context, mocks=mocks, records=records, expect=expect,
        )

    def input(self, members: Mapping[str, Any], pointer: str) -> Any:
        if "input_file" not in members:
            return self.mapping(members.get("input", {}), f"{pointer}/input")
        at = f"{pointer}/input_file"
        if "input" in members:
            self.problem(at, "a case has either `input` or `input_file`")
        name = members["input_file"]
        if not isinstance(name, str) or name not in self.files:
            self.problem(at, "this must be a JSON or YAML file of the solution folder, such as sample/input.json")
            return {}
        try:
            return self.mapping(yaml12.load(self.files[name].decode("utf8")), at)
        except (UnicodeDecodeError, yaml12.YamlInvalid) as error:
            self.problem(at, f"{name} cannot be read: {error}")
            return {}

    def records(self, members: Mapping[str, Any], pointer: str) -> dict[str, list[Any]]:
        by_collection = self.mapping(members.get("records", {}), f"{pointer}/records")
        for name, records in by_collection.items():
            if not isinstance(records, list) or not all(isinstance(each, dict) for each in records):
                self.problem(f"{pointer}/records/{pointer_token(name)}", "this must be a list of objects")
        return by_collection

    def expect(self, value: Any, pointer: str) -> Expectation:
        members = self.mapping(value, pointer, _EXPECT_MEMBERS)
        error = self.mapping(members["error"], f"{pointer}/error", ERROR_MEMBERS) if "error" in members else None
        status = members.get("status", "succeeded" if error is None else "failed")
        if status not in STATUSES:
            self.problem(f"{pointer}/status", f"this must be one of {', '.join(STATUSES)}")
        if "output" in members and status != "succeeded":
            self.problem(f"{pointer}/output", "only a successful execution has an output")
        steps = self.mapping(members.get("steps", {}), f"{pointer}/steps")
        for name, step in steps.items():
            self.mapping(step, f"{pointer}/steps/{pointer_token(name)}", STEP_MEMBERS)
        output = {"output": members["output"]} if "output" in members else {}
        effects, calls = (self.calls(members.get(name), f"{pointer}/{name}") for name in ("effects", "calls"))
        return Expectation(str(status), output, error, steps, effects, calls)

    def calls(self, value: Any, pointer: str) -> list[Any] | None:
        if value is None:
            return None
        if not isinstance(value, list):
            self.problem(pointer, "this must be a list of calls")
            return None
        for index, call in enumerate(value):
            self.mapping(call, f"{pointer}/{index}", CALL_MEMBERS)
        return value
