"""Tools that answer as a test says, so that an agent can be tried without any effect."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from appliance.core.errors import ApplianceError, Conflict, ConnectorFailed, NotFound, PolicyDenied, ValidationFailed
from appliance.core.json_schema import compile_schema
from appliance.core.sentences import Sentence
from appliance.processes.rehearsal import find_differences

from .tools.tool import APPROVAL_ID, Tool

INTEGRATION_TOOL = "execute_tenant_integration"
# What a tool may be said to fail with.
_ERRORS: Mapping[str, Callable[[str], ApplianceError]] = {
    "not_found": NotFound, "conflict": Conflict, "validation_failed": ValidationFailed, "policy_denied": PolicyDenied,
    "connector_failed": ConnectorFailed,
}  # fmt: skip
ERROR_CODES = tuple(_ERRORS)
_OURS = (APPROVAL_ID, "idempotency_key")  # what the run gives, not the model


@dataclass(frozen=True)
class ToolAnswer:
    """What a tool answers where the arguments have what `when` names: one output after the other, then the last again.

    `tool` is a name, or `integration:operation`; an `error` has a code and a message.
    """

    tool: str
    when: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[Any, ...] = ()
    error: Mapping[str, Any] | None = None

    @property
    def shown(self) -> str:
        return f"{self.tool} where {dict(self.when)}" if self.when else self.tool


@dataclass(frozen=True)
class ToolUse:
    """A call as it was made: of an integration's action, `tool` is `integration:operation` and `input` what it was given.

    `decision` (`allow`, `require_approval`, `deny`) is what policies say of it, empty where that is free or cannot be told;
    `why` are their reasons.
    """

    tool: str
    input: Mapping[str, Any]
    decision: str = ""
    why: tuple[str, ...] = ()

    @property
    def judged(self) -> str:
        """The decision in words."""
        words = {"allow": "allowed", "require_approval": "would need an approval", "deny": "denied"}
        why = "; ".join(self.why)
        return f"{words.get(self.decision, 'not judged')}{f': {why}' if why and self.decision != 'allow' else ''}"


Judge = Callable[[], tuple[str, tuple[str, ...]]]


def _unjudged() -> tuple[str, tuple[str, ...]]:
    return "", ()


class Unanswered(Exception):
    """The test has no answer for a call, or none that the tool can give: the run ends here."""


@dataclass
class Answering:
    """The answers of one test; what was called, and what is wrong with the test itself."""

    answers: Sequence[ToolAnswer]
    calls: list[ToolUse] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    _given: dict[int, int] = field(default_factory=dict)

    def note(self, tool: Tool, arguments: Mapping[str, Any], judge: Judge = _unjudged) -> ToolUse:
        """A call is made, and judged; ValidationFailed as the tool itself would say."""
        problems = compile_schema(tool.input_schema).problems(dict(arguments))
        if problems:
            raise ValidationFailed(
                Sentence("the arguments of %(name)s do not fit its input schema", name=tool.name), details=problems
            )
        decision, why = judge()
        self.calls.append(replace(use_of(tool.name, arguments), decision=decision, why=why))
        return self.calls[-1]

    def answer(self, tool: Tool, arguments: Mapping[str, Any], judge: Judge = _unjudged) -> dict[str, Any]:
        """What the test says that the call comes to; the coded error that it says; Unanswered."""
        use = self.note(tool, arguments, judge)
        for place, answer in enumerate(self.answers):
            if answer.tool == use.tool and not any(find_differences(answer.when, use.input)):
                number = self._given[place] = self._given.get(place, 0) + 1
                return self._fitting(tool, _given(tool.name, arguments, answer, number))
        self.problems.append(f"mocks: there is no answer for {use.tool} with {dict(use.input)}")
        raise Unanswered(use.tool)

    def unused(self) -> Iterator[ToolAnswer]:
        """Answers that nothing asked for."""
        return (answer for place, answer in enumerate(self.answers) if place not in self._given)

    def _fitting(self, tool: Tool, result: dict[str, Any]) -> dict[str, Any]:
        problem = compile_schema(tool.output_schema).first_problem(result)
        if problem is None:
            return result
        self.problems.append(f"mocks: this is no answer of {tool.name}: {problem.pointer or '/'}: {problem.message}")
        raise Unanswered(tool.name)


def use_of(name: str, arguments: Mapping[str, Any]) -> ToolUse:
    """The call as a test names it."""
    if name == INTEGRATION_TOOL:
        return ToolUse(f"{arguments.get('integration')}:{arguments.get('operation')}", dict(arguments.get("params") or {}))
    return ToolUse(name, {member: value for member, value in arguments.items() if member not in _OURS})


def _given(name: str, arguments: Mapping[str, Any], answer: ToolAnswer, number: int) -> dict[str, Any]:
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
    return str(error.get("message", "the test says so"))


def _output(answer: ToolAnswer, number: int) -> Any:
    return answer.outputs[min(number, len(answer.outputs)) - 1]
