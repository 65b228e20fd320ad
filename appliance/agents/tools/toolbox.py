"""The table of tools, and the one way to call them: scopes, arguments, policies, approval, then the verb and its answer."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from appliance.connectors.schemas import Schema, compile_schema
from appliance.core import clock, db
from appliance.core.errors import ApprovalRequired, NotFound, PolicyDenied, ScopeMissing, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.governance.policies.decision import Decision, ToolAction
from appliance.governance.subjects import Subject

from .fitting import fit
from .tool import APPROVAL_ID, Caller, Tool, Waiting

POLL_SECONDS = 0.2
_never = threading.Event()

Judge = Callable[[TenantScope, Subject, ToolAction], Decision]
"""What policies say of an action."""
Consume = Callable[[Caller, ToolAction, Decision, str], None]
"""Inside a write: use up the approval of exactly this action, named by its id; a coded error when it is none."""


@dataclass(frozen=True)
class _Shelved:
    """A tool with its schemas ready to judge."""

    tool: Tool
    input: Schema
    output: Schema


class Toolbox:
    """Every tool by its name.  `judge` is asked before each call, `consume` when a call brings an approval."""

    def __init__(self, judge: Judge, consume: Consume) -> None:
        self._judge = judge
        self._consume = consume
        self._tools: dict[str, _Shelved] = {}

    def add(self, tool: Tool) -> None:
        """Put a tool in; ValueError when one of that name is there, SchemaInvalid when a schema is none."""
        if tool.name in self._tools:
            raise ValueError(f"there are two tools called {tool.name}")
        self._tools[tool.name] = _Shelved(tool, compile_schema(tool.input_schema), compile_schema(tool.output_schema))

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

    def begin(self, caller: Caller, name: str, arguments: Mapping[str, Any]) -> dict[str, Any] | Waiting:
        """As `call`, but what takes time is answered as `Waiting`, whose looks answer the checked result."""
        shelved = self._find(name)
        tool = shelved.tool
        for scope in sorted(tool.scopes - caller.scope.scopes):
            raise ScopeMissing(
                f"the tool {name} needs the scope {scope}; use a key that has it, or ask an owner to issue one",
                extra={"scope": scope},
            )
        problems = shelved.input.problems(dict(arguments))
        if problems:
            raise ValidationFailed(f"the arguments of {name} do not fit its input schema", details=problems)
        result = tool.call(caller, arguments) if tool.judges_itself else self._call_judged(caller, tool, arguments)
        if isinstance(result, Waiting):
            return Waiting(partial(_look, shelved, result), result.seconds, result.over)
        return _checked(shelved, result)

    def _call_judged(self, caller: Caller, tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any] | Waiting:
        given = {name: value for name, value in arguments.items() if name != APPROVAL_ID}
        action = ToolAction(tool.name, tool.effect, given)
        decision = self._judge(caller.scope, caller.subject, action)
        if decision.verdict == "deny":
            raise PolicyDenied(_because(f"a policy denies {tool.name}", decision), extra=_told(decision))
        if decision.verdict == "allow":
            return tool.call(caller, given)
        approval_id = arguments.get(APPROVAL_ID)
        if approval_id is None:
            _refuse_unapproved(tool, decision)

        def consume_and_call() -> dict[str, Any] | Waiting:
            self._consume(caller, action, decision, approval_id)
            return tool.call(caller, given)

        return db.write(consume_and_call)

    def _find(self, name: str) -> _Shelved:
        if name not in self._tools:
            raise NotFound(f"there is no tool {name[:80]!r}; the tools are {', '.join(self._tools)}")
        return self._tools[name]


def _refuse_unapproved(tool: Tool, decision: Decision) -> NoReturn:
    told = _because(f"{tool.name} needs an approval", decision)
    raise ApprovalRequired(
        f"{told}; ask with request_human_input, its action being this tool and these arguments, then call again with approval_id",
        extra=_told(decision),
    )


def _because(what: str, decision: Decision) -> str:
    return f"{what}: {'; '.join(decision.reasons)}" if decision.reasons else what


def _told(decision: Decision) -> dict[str, Any]:
    return {"policy": {"version": decision.version, "rules": list(decision.rules), "reasons": list(decision.reasons)}}


def _look(shelved: _Shelved, waiting: Waiting, last: bool) -> dict[str, Any] | None:
    result = waiting.look(last)
    return None if result is None else _checked(shelved, result)


def _checked(shelved: _Shelved, result: dict[str, Any]) -> dict[str, Any]:
    """The result, cut to size; RuntimeError when it breaks the tool's own schema, which is a bug."""
    fitted = fit(result, shelved.tool.long)
    problem = shelved.output.first_problem(fitted)
    if problem is not None:
        raise RuntimeError(f"the tool {shelved.tool.name} answered what its output schema does not allow: {problem}")
    return fitted


def _pause(waiting: Waiting, deadline: float) -> None:
    left = max(0.0, deadline - clock.monotonic())
    if waiting.over is None:
        _never.wait(min(POLL_SECONDS, left))
    else:
        wait([waiting.over], left)
