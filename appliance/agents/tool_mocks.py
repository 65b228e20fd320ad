"""Mocked tools: a test supplies their answers, so an agent can be exercised without side effects."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from appliance.core.errors import ApplianceError, Conflict, ConnectorFailed, NotFound, PolicyDenied, ValidationFailed
from appliance.core.json_schema import compile_schema
from appliance.core.sentences import Sentence
from appliance.processes.rehearsal import find_differences

from .tools.tool import APPROVAL_ID, Tool

INTEGRATION_TOOL = "execute_tenant_integration"
# The errors that a mock may declare.
_ERRORS: Mapping[str, Callable[[str], ApplianceError]] = {
    "not_found": NotFound, "conflict": Conflict, "validation_failed": ValidationFailed, "policy_denied": PolicyDenied,
    "connector_failed": ConnectorFailed,
}  # fmt: skip
ERROR_CODES = tuple(_ERRORS)
_OURS = (APPROVAL_ID, "idempotency_key")  # arguments set by the run, not by the model


@dataclass(frozen=True)
class ToolMock:
    """A mocked answer, used when the arguments match `when`: the outputs in order, then the last one for every further call.

    `tool` is a tool name or `integration:operation`; an `error` has a code and a message.
    """

    tool: str
    when: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[Any, ...] = ()
    error: Mapping[str, Any] | None = None

    @property
    def label(self) -> str:
        return f"{self.tool} where {dict(self.when)}" if self.when else self.tool


@dataclass(frozen=True)
class ToolUse:
    """A tool call that was made; for an integration's action, `tool` is `integration:operation` and `input` its parameters.

    `decision` is the policies' decision (`allow`, `require_approval`, `deny`), empty where none applies or it cannot be
    determined; `why` lists their reasons.
    """

    tool: str
    input: Mapping[str, Any]
    decision: str = ""
    why: tuple[str, ...] = ()

    @property
    def decision_text(self) -> str:
        """The decision as text, with its reasons."""
        words = {"allow": "allowed", "require_approval": "would need an approval", "deny": "denied"}
        why = "; ".join(self.why)
        return f"{words.get(self.decision, 'not judged')}{f': {why}' if why and self.decision != 'allow' else ''}"


Evaluate = Callable[[], tuple[str, tuple[str, ...]]]


def _no_decision() -> tuple[str, tuple[str, ...]]:
    return "", ()


class NoMatchingMock(Exception):
    """The test has no answer for a call, or an answer that does not fit the tool's output schema; the run ends."""


@dataclass
class MockedTools:
    """The mocked tools of one test: its answers, the calls that were made, and the problems of the test itself."""

    answers: Sequence[ToolMock]
    calls: list[ToolUse] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    _used: dict[int, int] = field(default_factory=dict)

    def note(self, tool: Tool, arguments: Mapping[str, Any], evaluate: Evaluate = _no_decision) -> ToolUse:
        """Record a call with the decision of the policies; raises ValidationFailed as the real tool would."""
        problems = compile_schema(tool.input_schema).problems(dict(arguments))
        if problems:
            raise ValidationFailed(
                Sentence("the arguments of %(name)s do not match its input schema", name=tool.name), details=problems
            )
        decision, why = evaluate()
        self.calls.append(replace(to_tool_use(tool.name, arguments), decision=decision, why=why))
        return self.calls[-1]

    def answer(self, tool: Tool, arguments: Mapping[str, Any], evaluate: Evaluate = _no_decision) -> dict[str, Any]:
        """Return the mocked result of a call, or raise its mocked error; raises Unanswered if no answer matches."""
        use = self.note(tool, arguments, evaluate)
        for place, answer in enumerate(self.answers):
            if answer.tool == use.tool and not any(find_differences(answer.when, use.input)):
                number = self._used[place] = self._used.get(place, 0) + 1
                return self._fitting(tool, _mocked_result(tool.name, arguments, answer, number))
        self.problems.append(f"mocks: no answer matches {use.tool} with {dict(use.input)}")
        raise NoMatchingMock(use.tool)

    def unused(self) -> Iterator[ToolMock]:
        """The answers that no call has used."""
        return (answer for place, answer in enumerate(self.answers) if place not in self._used)

    def _fitting(self, tool: Tool, result: dict[str, Any]) -> dict[str, Any]:
        problem = compile_schema(tool.output_schema).first_problem(result)
        if problem is None:
            return result
        self.problems.append(
            f"mocks: the answer does not match the output of {tool.name}: {problem.pointer or '/'}: {problem.message}"
        )
        raise NoMatchingMock(tool.name)


def to_tool_use(name: str, arguments: Mapping[str, Any]) -> ToolUse:
    """The call in the form in which tests describe calls."""
    if name == INTEGRATION_TOOL:
        return ToolUse(f"{arguments.get('integration')}:{arguments.get('operation')}", dict(arguments.get("params") or {}))
    return ToolUse(name, {member: value for member, value in arguments.items() if member not in _OURS})


def _mocked_result(name: str, arguments: Mapping[str, Any], answer: ToolMock, number: int) -> dict[str, Any]:
    error = answer.error
    if name == INTEGRATION_TOOL:
        about = {"integration": arguments["integration"], "operation": arguments["operation"]}
        if error is not None:
            status = "denied" if error["code"] == "policy_denied" else "failed"
            return about | {"status": status, "error": {"code": error["code"], "message": _message(error)}}
        return about | {"status": "succeeded", "result": _output(answer, number)}
    if error is not None:
        raise _ERRORS[error["code"]](_message(error))
    return dict(_output(answer, number))


def _message(error: Mapping[str, Any]) -> str:
    return str(error.get("message", "the test's mock fails this call"))


def _output(answer: ToolMock, number: int) -> Any:
    return answer.outputs[min(number, len(answer.outputs)) - 1]
