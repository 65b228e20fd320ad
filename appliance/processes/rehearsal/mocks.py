"""Mocks of a dry run: the answers that a test defines for steps and calls."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from appliance.core.errors import Detail, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.processes.definitions.definition import Step
from appliance.processes.definitions.reader import pointer_token
from appliance.processes.engine.failures import NEXT_ACTIONS
from appliance.processes.host.model_calls import GENERATE

MEMBERS = ("output", "outputs", "error")
ERROR_MEMBERS = ("code", "message", "failure_class", "retryable")
MAX_MOCKS = 500


@dataclass(frozen=True)
class Mock:
    """The outputs of the first use, the second and so on, the last one repeating; or the `error` of every use."""

    outputs: tuple[Any, ...] = ()
    error: Mapping[str, Any] | None = None

    def answer(self, before: int) -> tuple[bool, Any]:
        """(ok, the output or error object) for the use after `before` others."""
        if self.error is None:
            return True, self.outputs[min(before, len(self.outputs) - 1)]
        error = {"code": "mocked", "message": "the mock says so", "failure_class": "connector", "retryable": False, "details": []}
        return False, {**error, **self.error}


@dataclass
class Mocks:
    """Mocks of steps by id or path, and of calls by method and path, for all steps or for one; `used` counts by name."""

    steps: dict[str, Mock] = field(default_factory=dict)
    calls: dict[str, Mock] = field(default_factory=dict)
    step_calls: dict[str, dict[str, Mock]] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)

    def answer_step(self, step: Step) -> tuple[bool, Any] | None:
        """(ok, value) of the step's mock; None without one."""
        for name in (step.path, step.id):
            if name in self.steps:
                return self._take(name, self.steps[name])
        return None

    def answer_call(self, step: Step, method: str, args: list[Any]) -> tuple[bool, Any] | None:
        """(ok, value) of the call's mock; mocks of the step and longer paths take precedence; None without one."""
        match = self._find_call(step, method, args)
        return None if match is None else self._take(*match)

    def has_call(self, step: Step, method: str, args: list[Any]) -> bool:
        """Whether the call has a mock."""
        return self._find_call(step, method, args) is not None

    def _find_call(self, step: Step, method: str, args: list[Any]) -> tuple[str, Mock] | None:
        names = list(_names(method, args))
        for owner in (step.path, step.id):
            own = self.step_calls.get(owner, {})
            for name in names:
                if name in own:
                    return f"{owner}/calls/{name}", own[name]
        return next(((name, self.calls[name]) for name in names if name in self.calls), None)

    def _take(self, name: str, mock: Mock) -> tuple[bool, Any]:
        before = self.used.get(name, 0)
        self.used[name] = before + 1
        return mock.answer(before)

    def unused(self) -> list[str]:
        """The names of mocks that were never used, usually because of a typo."""
        names = [*self.steps, *self.calls, *(f"{step}/calls/{name}" for step, own in self.step_calls.items() for name in own)]
        return sorted(name for name in names if name not in self.used)


def _names(method: str, args: list[Any]) -> Iterator[str]:
    """The mock names of a call, most specific first: `integrations.execute/erp/create_order` down to the method alone."""
    parts = [method]
    if method == GENERATE and args and isinstance(args[0], Mapping):
        args = [args[0].get("profile")]
    for arg in args[:2] if method.startswith("integrations.") else args[:1]:
        if not isinstance(arg, str):
            break
        parts.append(arg)
    return ("/".join(parts[:count]) for count in range(len(parts), 0, -1))


def parse_mocks(raw: Mapping[str, Any], steps: Mapping[str, Step], under: str = "/mocks") -> Mocks:
    """Parses `{<step>: {output | outputs | error | calls}, <method>/<path>: {output | outputs | error}}`.

    A name with a dot is a call, such as `datapool.create/orders`; any other is the id or path of a step.  Raises one
    ValidationFailed with all problems.
    """
    parser = _MockParser()
    step_names = {step.id for step in steps.values()} | set(steps)
    mocks = Mocks()
    if len(raw) > MAX_MOCKS:
        parser.problem(under, Sentence("a test has at most %(most)s mocks", most=MAX_MOCKS))
    for name, value in raw.items():
        at = f"{under}/{pointer_token(name)}"
        if "." in name:
            mocks.calls |= parser.parse_named(name, value, at)
        elif name not in step_names:
            listed = ", ".join(steps)[:500]
            parser.problem(
                at,
                Sentence(
                    "there is no step %(name)s; the steps are %(listed)s; calls have names like datapool.create",
                    name=repr(name[:80]), listed=listed,
                ),
            )
        elif isinstance(value, dict) and set(value) == {"calls"}:
            mocks.step_calls[name] = parser.parse_calls(value["calls"], f"{at}/calls")
        else:
            mocks.steps |= parser.parse_named(name, value, at)
    if parser.problems:
        first = parser.problems[0]
        raise ValidationFailed(
            Sentence("%(pointer)s: %(message)s", pointer=first.pointer, message=first.message), details=parser.problems[:100]
        )
    return mocks


class _MockParser:
    """Parses mocks and collects their problems."""

    def __init__(self) -> None:
        self.problems: list[Detail] = []

    def problem(self, pointer: str, message: str) -> None:
        self.problems.append(Detail(pointer, "mock_invalid", message))

    def parse_named(self, name: str, value: Any, pointer: str) -> dict[str, Mock]:
        mock = self.parse_mock(value, pointer)
        return {} if mock is None else {name: mock}

    def parse_mock(self, value: Any, pointer: str) -> Mock | None:
        if not isinstance(value, dict) or len(value) != 1 or not set(value) <= set(MEMBERS):
            shapes = "{output: …}, {outputs: […]} and {error: {message, …}}; that of a step also {calls: {…}}"
            self.problem(pointer, Sentence("a mock is one of %(shapes)s", shapes=shapes))
            return None
        if "output" in value:
            return Mock((value["output"],))
        if "error" in value:
            return self._parse_error(value["error"], f"{pointer}/error")
        if not isinstance(value["outputs"], list) or not value["outputs"]:
            self.problem(f"{pointer}/outputs", "this must be a list with the first answer, the second and so on")
            return None
        return Mock(tuple(value["outputs"]))

    def _parse_error(self, value: Any, pointer: str) -> Mock | None:
        if not isinstance(value, dict) or not set(value) <= set(ERROR_MEMBERS):
            self.problem(pointer, Sentence("an error is an object with %(error_members)s", error_members=', '.join(ERROR_MEMBERS)))
            return None
        for name, text in value.items():
            if name == "retryable" and not isinstance(text, bool):
                self.problem(f"{pointer}/{name}", "this must be true or false")
            elif name != "retryable" and not isinstance(text, str):
                self.problem(f"{pointer}/{name}", "this must be a text")
        if value.get("failure_class", "connector") not in NEXT_ACTIONS:
            self.problem(f"{pointer}/failure_class", Sentence("this must be one of %(next)s", next=', '.join(NEXT_ACTIONS)))
        return Mock(error=value)

    def parse_calls(self, value: Any, pointer: str) -> dict[str, Mock]:
        if not isinstance(value, dict):
            self.problem(pointer, "this must be an object of mocks by call, such as datapool.create/orders")
            return {}
        mocks: dict[str, Mock] = {}
        for name, mock in value.items():
            mocks |= self.parse_named(name, mock, f"{pointer}/{pointer_token(name)}")
        return mocks
