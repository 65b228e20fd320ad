"""Test cases of agents from a solution's tests/ folder as typed data: input, tool answers and expectations; pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from appliance.agents import ERROR_CODES, ToolMock, ToolUse
from appliance.conditions import Condition, parse
from appliance.core.errors import ApplianceError
from appliance.core.json_schema import Schema, SchemaInvalid, compile_schema

Order = Literal["as_written", "any", "among_others"]
ORDERS: tuple[Order, ...] = ("as_written", "any", "among_others")
AGENT_STATUSES = ("succeeded", "failed")
AGENT_CASE_MEMBERS = ("name", "agent", "input", "input_file", "mocks", "records", "expect")
AGENT_EXPECT_MEMBERS = ("status", "error", "output", "output_schema", "output_where", "calls", "order", "never", "most_turns")
USE_MEMBERS = ("tool", "input", "decision")
DECISIONS = ("allow", "require_approval", "deny")
ANSWER_MEMBERS = ("when", "output", "outputs", "error")


@dataclass(frozen=True)
class AgentExpectation:
    """The expected result; None means anything.  Members of objects that are not listed may have any value."""

    status: str = "succeeded"
    error: Mapping[str, Any] | None = None
    output: Mapping[str, Any] = field(default_factory=dict)  # {"output": …}, empty if anything is accepted
    schema: Schema | None = None
    where: Condition | None = None
    calls: tuple[ToolUse, ...] | None = None
    order: Order = "as_written"
    never: tuple[ToolUse, ...] = ()
    most_turns: int | None = None


@dataclass(frozen=True)
class AgentCase:
    """One test of an agent; `records` exist in DataPool while it runs.

    All of its `own_answers` must be used, unlike the `shared_answers` of its file.
    """

    file: str
    line: int | None
    name: str
    agent: str
    input: Any
    own_answers: tuple[ToolMock, ...]
    shared_answers: tuple[ToolMock, ...]
    records: Mapping[str, list[Any]]
    expect: AgentExpectation


class ProblemReader(Protocol):
    """The interface of a file reader: it collects problems, and checks that objects only have known members."""

    def problem(self, pointer: str, message: str) -> None: ...

    def mapping(self, value: Any, pointer: str, known: tuple[str, ...] = ()) -> dict[str, Any]: ...


def read_answers(reader: ProblemReader, value: Any, pointer: str) -> tuple[ToolMock, ...]:
    """`mocks`: per tool one answer, or a list of them with `when`."""
    answers: list[ToolMock] = []
    for tool, answer in reader.mapping(value, pointer).items():
        at = f"{pointer}/{tool.replace('~', '~0').replace('/', '~1')}"
        listed = answer if isinstance(answer, list) else [answer]
        pointers = [f"{at}/{index}" for index in range(len(listed))] if isinstance(answer, list) else [at]
        answers += [_answer(reader, tool, each, place) for each, place in zip(listed, pointers, strict=True)]
    return tuple(answers)


def _answer(reader: ProblemReader, tool: str, value: Any, pointer: str) -> ToolMock:
    members = reader.mapping(value, pointer, ANSWER_MEMBERS)
    if sum(name in members for name in ("output", "outputs", "error")) != 1:
        reader.problem(pointer, "an answer has exactly one of output, outputs and error")
    error = reader.mapping(members["error"], f"{pointer}/error", ("code", "message")) if "error" in members else None
    if error is not None and error.get("code") not in ERROR_CODES:
        reader.problem(f"{pointer}/error/code", f"this must be one of {', '.join(ERROR_CODES)}")
    outputs = members.get("outputs", [members["output"]] if "output" in members else [])
    if not isinstance(outputs, list) or ("outputs" in members and not outputs):
        reader.problem(f"{pointer}/outputs", "this must be a list of at least one")
        outputs = []
    if ":" not in tool:
        outputs = [reader.mapping(output, f"{pointer}/output") for output in outputs]
    return ToolMock(tool, reader.mapping(members.get("when", {}), f"{pointer}/when"), tuple(outputs), error)


def read_agent_expectation(reader: ProblemReader, value: Any, pointer: str) -> AgentExpectation:
    """`expect` of an agent's case."""
    members = reader.mapping(value, pointer, AGENT_EXPECT_MEMBERS)
    error = reader.mapping(members["error"], f"{pointer}/error", ("code", "message")) if "error" in members else None
    status, order = members.get("status", "failed" if error else "succeeded"), members.get("order", ORDERS[0])
    turns = members.get("most_turns")
    if status not in AGENT_STATUSES:
        reader.problem(f"{pointer}/status", f"this must be one of {', '.join(AGENT_STATUSES)}")
    if order not in ORDERS:
        reader.problem(f"{pointer}/order", f"this must be one of {', '.join(ORDERS)}")
    if turns is not None and (type(turns) is not int or turns < 1):
        reader.problem(f"{pointer}/most_turns", "this must be a whole number from 1")
    if status != "succeeded" and any(name in members for name in ("output", "output_schema", "output_where")):
        reader.problem(pointer, "only a successful run has an output")
    calls, never = (_tool_uses(reader, members.get(name), f"{pointer}/{name}") for name in ("calls", "never"))
    output = {"output": members["output"]} if "output" in members else {}
    schema, where = _schema(reader, members, pointer), _where(reader, members, pointer)
    return AgentExpectation(
        status=str(status), error=error, output=output, schema=schema, where=where, calls=calls, order=order, never=never or (),
        most_turns=turns,
    )


def _tool_uses(reader: ProblemReader, value: Any, pointer: str) -> tuple[ToolUse, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        reader.problem(pointer, "this must be a list of calls, {tool, input, decision}")
        return None
    uses = []
    for index, each in enumerate(value):
        members = reader.mapping(each, f"{pointer}/{index}", USE_MEMBERS)
        if not isinstance(members.get("tool"), str):
            reader.problem(f"{pointer}/{index}/tool", "this must be the name of a tool, or integration:operation")
        decision = members.get("decision", "")
        if "decision" in members and decision not in DECISIONS:
            reader.problem(f"{pointer}/{index}/decision", f"this must be one of {', '.join(DECISIONS)}")
        tool_input = reader.mapping(members.get("input", {}), f"{pointer}/{index}/input")
        uses.append(ToolUse(str(members.get("tool")), tool_input, decision))
    return tuple(uses)


def _schema(reader: ProblemReader, members: Mapping[str, Any], pointer: str) -> Schema | None:
    if "output_schema" not in members:
        return None
    try:
        return compile_schema(members["output_schema"])
    except (SchemaInvalid, TypeError) as error:
        reader.problem(f"{pointer}/output_schema", f"this is not a valid JSON Schema: {str(error)[:300]}")
        return None


def _where(reader: ProblemReader, members: Mapping[str, Any], pointer: str) -> Condition | None:
    if "output_where" not in members:
        return None
    try:
        return parse(members["output_where"], pointer=f"{pointer}/output_where")
    except ApplianceError as error:
        reader.problem(f"{pointer}/output_where", error.message)
        return None
