"""Mocks of a dry run: what stands for the answer of a step or of a call, as a test writes it down."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from appliance.core.errors import Detail, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.processes.definitions.definition import Step
from appliance.processes.definitions.reading import pointer_token
from appliance.processes.engine.failing import NEXT
from appliance.processes.host.model_calls import GENERATE

MEMBERS = ("output", "outputs", "error")
ERROR_MEMBERS = ("code", "message", "failure_class", "retryable")
MOST = 500


@dataclass(frozen=True)
class Mock:
    """The answers of the first time, the second and so on, the last of them from then on; or the `error` of every time."""

    outputs: tuple[Any, ...] = ()
    error: Mapping[str, Any] | None = None

    def answer(self, before: int) -> tuple[bool, Any]:
        """(ok, the output or the fault) after it was asked for `before` times."""
        if self.error is None:
            return True, self.outputs[min(before, len(self.outputs) - 1)]
        fault = {"code": "mocked", "message": "the mock says so", "failure_class": "connector", "retryable": False, "details": []}
        return False, {**fault, **self.error}


@dataclass
class Mocks:
    """Those of steps by id or path, and of calls by method and path, everywhere or in one step; `used` are their names."""

    steps: dict[str, Mock] = field(default_factory=dict)
    calls: dict[str, Mock] = field(default_factory=dict)
    step_calls: dict[str, dict[str, Mock]] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)

    def answer_step(self, step: Step) -> tuple[bool, Any] | None:
        """(ok, value) that stands for the step; None when it has no mock."""
        for name in (step.path, step.id):
            if name in self.steps:
                return self._take(name, self.steps[name])
        return None

    def answer_call(self, step: Step, method: str, args: list[Any]) -> tuple[bool, Any] | None:
        """(ok, value) that stands for the answer of a call; the step's own and the longest path come first."""
        found = self._find_call(step, method, args)
        return None if found is None else self._take(*found)

    def has_call(self, step: Step, method: str, args: list[Any]) -> bool:
        """Whether `answer_call` would answer."""
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
        """The mocks that nothing asked for: most often a name that is not quite right."""
        named = [*self.steps, *self.calls, *(f"{step}/calls/{name}" for step, own in self.step_calls.items() for name in own)]
        return sorted(name for name in named if name not in self.used)


def _names(method: str, args: list[Any]) -> Iterator[str]:
    """`integrations.execute/erp/create_order`, then with fewer parts, and the method alone; `llm.generate/<profile>`."""
    parts = [method]
    if method == GENERATE and args and isinstance(args[0], Mapping):
        args = [args[0].get("profile")]
    for arg in args[:2] if method.startswith("integrations.") else args[:1]:
        if not isinstance(arg, str):
            break
        parts.append(arg)
    return ("/".join(parts[:count]) for count in range(len(parts), 0, -1))


def parse_mocks(given: Mapping[str, Any], steps: Mapping[str, Step], under: str = "/mocks") -> Mocks:
    """`{<step>: {output | outputs | error | calls}, <method>/<path>: {output | outputs | error}}`, read with every problem at once.

    A name with a dot in it is a call, such as `datapool.create/orders`; any other is the id or path of a step.
    """
    reader = _Reader()
    known = {step.id for step in steps.values()} | set(steps)
    mocks = Mocks()
    if len(given) > MOST:
        reader.problem(under, Sentence("a test has at most %(most)s mocks", most=MOST))
    for name, value in given.items():
        at = f"{under}/{pointer_token(name)}"
        if "." in name:
            mocks.calls |= reader.named(name, value, at)
        elif name not in known:
            listed = ", ".join(steps)[:500]
            reader.problem(
                at,
                Sentence(
                    "there is no step %(name)s; steps are %(listed)s, and a call is named like datapool.create",
                    name=repr(name[:80]), listed=listed,
                ),
            )
        elif isinstance(value, dict) and set(value) == {"calls"}:
            mocks.step_calls[name] = reader.calls(value["calls"], f"{at}/calls")
        else:
            mocks.steps |= reader.named(name, value, at)
    if reader.problems:
        first = reader.problems[0]
        raise ValidationFailed(
            Sentence("%(pointer)s: %(message)s", pointer=first.pointer, message=first.message), details=reader.problems[:100]
        )
    return mocks


class _Reader:
    """Reads mocks and notes what is wrong with them."""

    def __init__(self) -> None:
        self.problems: list[Detail] = []

    def problem(self, pointer: str, message: str) -> None:
        self.problems.append(Detail(pointer, "mock_invalid", message))

    def named(self, name: str, value: Any, pointer: str) -> dict[str, Mock]:
        mock = self.mock(value, pointer)
        return {} if mock is None else {name: mock}

    def mock(self, value: Any, pointer: str) -> Mock | None:
        if not isinstance(value, dict) or len(value) != 1 or not set(value) <= set(MEMBERS):
            shapes = "{output: …}, {outputs: […]} and {error: {message, …}}; that of a step also {calls: {…}}"
            self.problem(pointer, Sentence("a mock is one of %(shapes)s", shapes=shapes))
            return None
        if "output" in value:
            return Mock((value["output"],))
        if "error" in value:
            return self._error(value["error"], f"{pointer}/error")
        if not isinstance(value["outputs"], list) or not value["outputs"]:
            self.problem(f"{pointer}/outputs", "this must be a list with the first answer, the second and so on")
            return None
        return Mock(tuple(value["outputs"]))

    def _error(self, value: Any, pointer: str) -> Mock | None:
        if not isinstance(value, dict) or not set(value) <= set(ERROR_MEMBERS):
            self.problem(pointer, Sentence("an error is an object of %(error_members)s", error_members=', '.join(ERROR_MEMBERS)))
            return None
        for name, text in value.items():
            if name == "retryable" and not isinstance(text, bool):
                self.problem(f"{pointer}/{name}", "this must be true or false")
            elif name != "retryable" and not isinstance(text, str):
                self.problem(f"{pointer}/{name}", "this must be a text")
        if value.get("failure_class", "connector") not in NEXT:
            self.problem(f"{pointer}/failure_class", Sentence("this must be one of %(next)s", next=', '.join(NEXT)))
        return Mock(error=value)

    def calls(self, value: Any, pointer: str) -> dict[str, Mock]:
        if not isinstance(value, dict):
            self.problem(pointer, "this must be an object of mocks by call, such as datapool.create/orders")
            return {}
        found: dict[str, Mock] = {}
        for name, given in value.items():
            found |= self.named(name, given, f"{pointer}/{pointer_token(name)}")
        return found
