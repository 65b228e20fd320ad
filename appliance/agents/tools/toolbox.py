"""The table of tools, and the one way to call them: scopes, arguments, policies, approval, then the verb and its answer."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Protocol

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import NotFound, ScopeMissing, ValidationFailed
from appliance.core.json_schema import Schema, compile_schema
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.governance import Held, Subject
from appliance.governance.policies import ToolAction

from .fitting import MOST_BYTES, fit
from .tool import APPROVAL_ID, APPROVAL_ID_SCHEMA, Caller, Tool, Waiting

POLL_SECONDS = 0.2
_never = threading.Event()


class Leave(Protocol):
    """Leave to do one action once; the governor's `Permit`."""

    @property
    def is_owing(self) -> bool:
        """Whether something has to be written before the action begins."""

    @property
    def holds(self) -> Held | None:
        """The approval that it uses up."""

    def take(self, by: str) -> ToolAction:
        """Inside the write that begins the action: use its approval up and count it; answers the action to be done."""

    def conceal(self, result: Any) -> Any:
        """The result without what the rules hide."""


class Gate(Protocol):
    """Who is asked before every call; the governor."""

    def permit(
        self, scope: TenantScope, subject: Subject, action: ToolAction, approval_id: str | None = None, held: Held | None = None
    ) -> Leave:
        """Leave to do this action once.  PolicyDenied; ApprovalRequired when one is needed and none is named or held."""

    def recall(self, scope: TenantScope, subject: Subject, action: ToolAction) -> Leave:
        """Leave to see what came of an action that had begun.  PolicyDenied where it is denied now."""

    def approved_input(self, scope: TenantScope, approval_id: str) -> Mapping[str, Any]:
        """The input of the action that an approval is about, empty when it is about none."""


@dataclass(frozen=True)
class _Shelved:
    """A tool with its schemas ready to judge."""

    tool: Tool
    input: Schema
    output: Schema


class Toolbox:
    """Every tool by its name; the gate is asked before each call."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._tools: dict[str, _Shelved] = {}

    def add(self, tool: Tool) -> None:
        """Put a tool in, which then takes an approval; ValueError when one of that name is there, SchemaInvalid."""
        if tool.name in self._tools:
            raise ValueError(f"there are two tools called {tool.name}")
        offered = replace(tool, input_schema=_with_approval(tool.input_schema))
        self._tools[tool.name] = _Shelved(offered, compile_schema(offered.input_schema), compile_schema(tool.output_schema))

    def get(self, name: str) -> Tool:
        """The tool of that name; NotFound."""
        return self._find(name).tool

    def names(self) -> list[str]:
        """The names of all tools, in the order in which they were put in."""
        return list(self._tools)

    def offered(self, scope: TenantScope) -> list[Tool]:
        """The tools that the scopes of this caller allow."""
        return [each.tool for each in self._tools.values() if each.tool.scopes <= scope.scopes]

    def call(self, caller: Caller, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool and wait for its result.

        NotFound (tool), ScopeMissing, ValidationFailed (pointers into the arguments), PolicyDenied, ApprovalRequired, and
        whatever the verb raises.
        """
        begun = self.begin(caller, name, arguments)
        if isinstance(begun, dict):
            return begun
        deadline = clock.monotonic() + begun.seconds
        while (result := begun.look(clock.monotonic() >= deadline)) is None:
            _pause(begun, deadline)
        return result

    def begin(self, caller: Caller, name: str, arguments: Mapping[str, Any], *, most: int = MOST_BYTES) -> dict[str, Any] | Waiting:
        """As `call`, but what takes time is answered as `Waiting`, whose looks answer the checked result.

        An answer that is there at once may have `most` bytes.
        """
        shelved = self._checked_call(caller, name, arguments)
        tool = shelved.tool
        if tool.describe is None:
            return self._call_judged(caller, shelved, arguments, most)
        result = tool.call(caller, arguments)
        if isinstance(result, Waiting):
            return Waiting(partial(_look, shelved, result, _nothing_hidden), result.seconds, result.over)
        return _checked(shelved, result, most)

    def action_of(self, caller: Caller, name: str, arguments: Mapping[str, Any]) -> ToolAction:
        """What policies and approvals see of such a call, which is not made.  Errors as `call`, before anything is judged."""
        tool = self._checked_call(caller, name, arguments).tool
        given = self._settled(caller, tool, arguments)
        return ToolAction(tool.name, tool.effect, given) if tool.describe is None else tool.describe(caller, given)

    def settled_action(self, caller: Caller, name: str, arguments: Mapping[str, Any]) -> ToolAction:
        """The action of a call that comes by another road, whose arguments its edge has checked."""
        tool = self._find(name).tool
        return ToolAction(tool.name, tool.effect, self._settled(caller, tool, arguments))

    def _checked_call(self, caller: Caller, name: str, arguments: Mapping[str, Any]) -> _Shelved:
        shelved = self._find(name)
        for scope in sorted(shelved.tool.scopes - caller.scope.scopes):
            raise ScopeMissing(
                Sentence(
                    "the tool %(name)s needs the scope %(scope)s; use a key that has it, or ask an owner to issue one",
                    name=name, scope=scope,
                ),
                extra={"scope": scope},
            )
        problems = shelved.input.problems(dict(arguments), namespace=caller.scope.tenant_id)
        if problems:
            raise ValidationFailed(Sentence("the arguments of %(name)s do not fit its input schema", name=name), details=problems)
        return shelved

    def _call_judged(self, caller: Caller, shelved: _Shelved, arguments: Mapping[str, Any], most: int) -> dict[str, Any] | Waiting:
        tool = shelved.tool
        before = caller.place.begun if caller.place is not None else None
        if before is not None and tool.consumes:
            action = ToolAction(tool.name, tool.effect, before["input"])
            leave = self._gate.recall(caller.scope, caller.subject, action)
            begun = tool.call(caller, action.input)
        else:
            action = ToolAction(tool.name, tool.effect, self._settled(caller, tool, arguments))
            leave = self._permit(caller, action, arguments.get(APPROVAL_ID))
            begun = self._begin(caller, tool, leave, action)
        if isinstance(begun, Waiting):
            return Waiting(partial(_look, shelved, begun, leave.conceal), begun.seconds, begun.over)
        return _concealed(_checked(shelved, begun, most), leave.conceal)

    def _settled(self, caller: Caller, tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with what they leave open: as it was approved, else as it is now."""
        given, approval_id = _without_approval(arguments), arguments.get(APPROVAL_ID)
        if all(name in given for name in tool.settles):
            return given
        approved = self._gate.approved_input(caller.scope, approval_id) if approval_id is not None else {}
        for name, find in tool.settles.items():
            value = approved[name] if name in approved else find(caller, given)
            if value is not None:
                given.setdefault(name, value)
        return given

    def _permit(self, caller: Caller, action: ToolAction, approval_id: str | None) -> Leave:
        """Also for a reading call that had used its approval up before a crash: it holds for that very call."""
        before = caller.place.begun if caller.place is not None else None
        if before is None:
            return self._gate.permit(caller.scope, caller.subject, action, approval_id)
        held = Held(**before["approval"]) if before["approval"] is not None else None
        return self._gate.permit(caller.scope, caller.subject, action, None, held)

    def _begin(self, caller: Caller, tool: Tool, leave: Leave, action: ToolAction) -> dict[str, Any] | Waiting:
        def take() -> ToolAction:
            taken = leave.take(f"tool:{tool.name}")
            if caller.place is not None and (tool.consumes or tool.effect == "read"):
                held = leave.holds
                caller.place.dispatch({"input": dict(taken.input), "approval": None if held is None else asdict(held)})
            return taken

        if tool.effect == "read":
            if leave.is_owing and not caller.has_begun:
                db.write(take)
            return tool.call(caller, action.input)
        if tool.consumes:

            def consume() -> None:
                take()

            return tool.call(replace(caller, consume=consume), action.input)
        return db.write(lambda: tool.call(caller, take().input))

    def _find(self, name: str) -> _Shelved:
        if name not in self._tools:
            raise NotFound(
                Sentence("there is no tool %(name)s; the tools are %(tools)s", name=repr(name[:80]), tools=", ".join(self._tools))
            )
        return self._tools[name]


def _with_approval(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of arguments with the one that names an approval: a rule may hold any tool for one, also one that reads."""
    return {**schema, "properties": {**schema.get("properties", {}), APPROVAL_ID: APPROVAL_ID_SCHEMA}}


def _without_approval(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name != APPROVAL_ID}


def _nothing_hidden(result: Any) -> Any:
    """Who judges itself conceals by itself."""
    return result


def _look(shelved: _Shelved, waiting: Waiting, conceal: Callable[[Any], Any], last: bool) -> dict[str, Any] | None:
    result = waiting.look(last)
    return None if result is None else _concealed(_checked(shelved, result), conceal)


def _concealed(result: dict[str, Any], conceal: Callable[[Any], Any]) -> dict[str, Any]:
    shown: dict[str, Any] = conceal(result)
    return shown


def _checked(shelved: _Shelved, result: dict[str, Any], most: int = MOST_BYTES) -> dict[str, Any]:
    """The result, cut to size; RuntimeError when it breaks the tool's own schema, which is a bug."""
    fitted = fit(result, shelved.tool.long, most)
    problem = shelved.output.first_problem(fitted)
    if problem is not None:
        raise RuntimeError(f"the tool {shelved.tool.name} answered what its output schema does not allow: {problem}")
    return fitted


def _pause(waiting: Waiting, deadline: float) -> None:
    left = max(0.0, deadline - clock.monotonic())
    if waiting.over is None or waiting.over.done():  # done, and yet nothing to see: somebody else goes on with it
        _never.wait(min(POLL_SECONDS, left))
    else:
        wait([waiting.over], left)
