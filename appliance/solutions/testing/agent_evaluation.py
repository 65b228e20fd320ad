"""Compares the run of an agent with the expectations of its case: calls, forbidden calls and output; pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from appliance.agents import MockedTools, ToolUse
from appliance.conditions import matches
from appliance.processes.rehearsal import find_differences
from appliance.solutions.testing.agent_cases import AgentCase, AgentExpectation
from appliance.solutions.testing.runner import describe_differences, describe_error_differences

if TYPE_CHECKING:
    from appliance.agents import RehearsalResult


def evaluate_run(case: AgentCase, run: "RehearsalResult", answering: MockedTools) -> Iterator[str]:
    """Every difference between the run and the expectations, one sentence each."""
    expect = case.expect
    if answering.problems:
        yield from answering.problems
        return
    if run.status != expect.status:
        why = f": {run.error.get('code')}: {run.error.get('message')}" if run.error else ""
        yield f"status: expected {expect.status}, found {run.status}{why}"
    if expect.error is not None and run.error is not None:
        yield from describe_error_differences("error", expect.error, run.error)
    if run.status == "succeeded":
        yield from _output(expect, run.output)
    yield from _calls(expect, answering.calls)
    if expect.most_turns is not None and run.turns > expect.most_turns:
        yield f"most_turns: expected at most {expect.most_turns}, found {run.turns}"
    yield from (f"mocks: nothing asked for {answer.label}" for answer in answering.unused() if answer in case.own_answers)


def _output(expect: AgentExpectation, output: Any) -> Iterator[str]:
    if expect.output:
        yield from describe_differences("output", expect.output["output"], output)
    if expect.schema is not None:
        yield from (f"output{problem.pointer}: {problem.message}" for problem in expect.schema.problems(output))
    record = output if isinstance(output, Mapping) else {"text": output}
    if expect.where is not None and not matches(expect.where, record):
        yield f"output_where: it does not hold for {record}"


def _calls(expect: AgentExpectation, actual: Sequence[ToolUse]) -> Iterator[str]:
    for forbidden in expect.never:
        yield from (f"never: {use.tool} was called with {dict(use.input)}" for use in actual if _is_match(forbidden, use))
    if expect.calls is None:
        return
    expected = expect.calls
    if expect.order == "as_written":
        yield from describe_differences("calls", [_to_comparable(use) for use in expected], [_to_comparable(use) for use in actual])
        return
    matching = match_calls(expected, actual)
    for place, use in enumerate(expected):
        if place not in matching.values():
            yield f"calls/{place}: {use.tool} was not called with {dict(use.input)}{_describe_decision(use)}"
    if expect.order == "any":
        for place, use in enumerate(actual):
            if place not in matching:
                yield f"calls: {use.tool} was called with {dict(use.input)}, which is not expected"


def match_calls(expected: Sequence[ToolUse], actual: Sequence[ToolUse]) -> dict[int, int]:
    """A maximum matching of expected and actual calls, as {actual index: expected index} (augmenting paths)."""
    matching: dict[int, int] = {}

    def find(place: int, tried: set[int]) -> bool:
        for index, use in enumerate(actual):
            if index in tried or not _is_match(expected[place], use):
                continue
            tried.add(index)
            if index not in matching or find(matching[index], tried):
                matching[index] = place
                return True
        return False

    for place in range(len(expected)):
        find(place, set())
    return matching


def _to_comparable(use: ToolUse) -> dict[str, Any]:
    return {"tool": use.tool, "input": dict(use.input), **({"decision": use.decision} if use.decision else {})}


def _describe_decision(use: ToolUse) -> str:
    return f" and the decision {use.decision}" if use.decision else ""


def _is_match(expected: ToolUse, use: ToolUse) -> bool:
    has_decision = expected.decision in ("", use.decision)
    return has_decision and expected.tool == use.tool and not any(find_differences(expected.input, use.input))
