"""Compares the run of an agent with the expectations of its case: calls, forbidden calls and output; pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from appliance.agents import Answering, ToolUse
from appliance.conditions import matches
from appliance.processes.rehearsal import find_differences
from appliance.solutions.testing.agent_cases import AgentCase, AgentExpectation
from appliance.solutions.testing.testing import differences, error_problems

if TYPE_CHECKING:
    from appliance.agents import Rehearsed


def judge(case: AgentCase, outcome: "Rehearsed", told: Answering) -> Iterator[str]:
    """Every difference between the run and the expectations, one sentence each."""
    expect = case.expect
    if told.problems:
        yield from told.problems
        return
    if outcome.status != expect.status:
        why = f": {outcome.error.get('code')}: {outcome.error.get('message')}" if outcome.error else ""
        yield f"status: expected {expect.status}, found {outcome.status}{why}"
    if expect.error is not None and outcome.error is not None:
        yield from error_problems("error", expect.error, outcome.error)
    if outcome.status == "succeeded":
        yield from _output(expect, outcome.output)
    yield from _calls(expect, told.calls)
    if expect.most_turns is not None and outcome.turns > expect.most_turns:
        yield f"most_turns: expected at most {expect.most_turns}, found {outcome.turns}"
    yield from (f"mocks: nothing asked for {answer.shown}" for answer in told.unused() if answer in case.own_answers)


def _output(expect: AgentExpectation, output: Any) -> Iterator[str]:
    if expect.output:
        yield from differences("output", expect.output["output"], output)
    if expect.schema is not None:
        yield from (f"output{problem.pointer}: {problem.message}" for problem in expect.schema.problems(output))
    record = output if isinstance(output, Mapping) else {"text": output}
    if expect.where is not None and not matches(expect.where, record):
        yield f"output_where: it does not hold for {record}"


def _calls(expect: AgentExpectation, made: Sequence[ToolUse]) -> Iterator[str]:
    for refused in expect.never:
        yield from (f"never: {use.tool} was called with {dict(use.input)}" for use in made if _fits(refused, use))
    if expect.calls is None:
        return
    wanted = expect.calls
    if expect.order == "as_written":
        yield from differences("calls", [_shown(use) for use in wanted], [_shown(use) for use in made])
        return
    taken = pair(wanted, made)
    for place, use in enumerate(wanted):
        if place not in taken.values():
            yield f"calls/{place}: {use.tool} was not called with {dict(use.input)}{_expected(use)}"
    if expect.order == "any":
        for place, use in enumerate(made):
            if place not in taken:
                yield f"calls: {use.tool} was called with {dict(use.input)}, which is not expected"


def pair(wanted: Sequence[ToolUse], made: Sequence[ToolUse]) -> dict[int, int]:
    """A maximum matching of expected and actual calls, as {actual index: expected index} (augmenting paths)."""
    taken: dict[int, int] = {}

    def find(place: int, tried: set[int]) -> bool:
        for index, use in enumerate(made):
            if index in tried or not _fits(wanted[place], use):
                continue
            tried.add(index)
            if index not in taken or find(taken[index], tried):
                taken[index] = place
                return True
        return False

    for place in range(len(wanted)):
        find(place, set())
    return taken


def _shown(use: ToolUse) -> dict[str, Any]:
    return {"tool": use.tool, "input": dict(use.input), **({"decision": use.decision} if use.decision else {})}


def _expected(use: ToolUse) -> str:
    return f" and the decision {use.decision}" if use.decision else ""


def _fits(wanted: ToolUse, use: ToolUse) -> bool:
    is_judged_so = wanted.decision in ("", use.decision)
    return is_judged_so and wanted.tool == use.tool and not any(find_differences(wanted.input, use.input))
