"""The registry of tools, and the only way to call one: checks scopes, arguments, policies and approval, then runs it."""

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import wait
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Protocol

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import KeyLimited, NotFound, ScopeMissing, ValidationFailed
from appliance.core.json_schema import Schema, compile_schema
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.governance import Subject, UsedApproval
from appliance.governance.policies import ToolAction

from .tool import APPROVAL_ID, APPROVAL_ID_SCHEMA, Caller, PendingResult, Tool
from .truncation import MOST_BYTES, truncate

POLL_SECONDS = 0.2
_never = threading.Event()


class Permission(Protocol):
    """Permission to execute one action once; implemented by the governor's `Permit`."""

    @property
    def needs_write(self) -> bool:
        """Whether something must be written before the action starts."""

    @property
    def resumable_approval(self) -> UsedApproval | None:
        """The approval that it consumes, if any."""

    def consume(self, by: str) -> ToolAction:
        """Consume the approval and count the action, inside the transaction that starts it; returns the action to execute."""

    def redact(self, result: Any) -> Any:
        """Redact the parts of the result that policy rules hide."""


class Gate(Protocol):
    """Checks every call before it is made; implemented by the governor."""

    def permit(
        self,
        scope: TenantScope,
        subject: Subject,
        action: ToolAction,
        approval_id: str | None = None,
        used_approval: UsedApproval | None = None,
    ) -> Permission:
        """Permission to execute this action once.

        Raises PolicyDenied; ApprovalRequired if an approval is needed and none is named or held.
        """

    def recall(self, scope: TenantScope, subject: Subject, action: ToolAction) -> Permission:
        """Permission to read the result of an action that had started.  Raises PolicyDenied if it is denied now."""

    def approved_input(self, scope: TenantScope, approval_id: str) -> Mapping[str, Any]:
        """The input of the approved action; empty if the approval is not about an action."""


@dataclass(frozen=True)
class _RegisteredTool:
    """A registered tool with its compiled schemas."""

    tool: Tool
    input: Schema
    output: Schema


class Toolbox:
    """The tools by name; every call passes the gate first."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._tools: dict[str, _RegisteredTool] = {}
        self._load: Callable[[], Iterable[Tool]] | None = None
        self._loading = threading.Lock()

    def add_later(self, load: Callable[[], Iterable[Tool]]) -> None:
        """Register the tools that `load` returns when the tools are first needed."""
        self._load = load

    def _registered(self) -> Mapping[str, _RegisteredTool]:
        if self._load is not None:
            self._add_loaded()
        return self._tools

    def _add_loaded(self) -> None:
        with self._loading:
            tools = list(self._load()) if self._load is not None else []  # another thread may have been here
            for tool in tools:
                self.add(tool)
            self._load = None

    def add(self, tool: Tool) -> None:
        """Register a tool, adding the argument `approval_id`; raises ValueError for a duplicate name, SchemaInvalid."""
        if tool.name in self._tools:
            raise ValueError(f"the tool {tool.name} is already registered")
        offered = replace(tool, input_schema=_with_approval(tool.input_schema))
        self._tools[tool.name] = _RegisteredTool(offered, compile_schema(offered.input_schema), compile_schema(tool.output_schema))

    def get(self, name: str) -> Tool:
        """The tool with this name; raises NotFound."""
        return self._find(name).tool

    def names(self) -> list[str]:
        """The names of all tools, in the order of their registration."""
        return list(self._registered())

    def list_offered(self, scope: TenantScope) -> list[Tool]:
        """The tools that the scopes and limits of this caller allow."""
        offered = (each.tool for each in self._registered().values() if each.tool.scopes <= scope.scopes)
        return [tool for tool in offered if scope.limits is None or tool.reaches is not None]

    def call(self, caller: Caller, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool and wait for its result.

        Raises NotFound (tool), ScopeMissing, ValidationFailed (pointers into the arguments), PolicyDenied, ApprovalRequired, and
        whatever the tool raises.
        """
        result_or_pending = self.start(caller, name, arguments)
        if isinstance(result_or_pending, dict):
            return result_or_pending
        deadline = clock.monotonic() + result_or_pending.seconds
        while (result := result_or_pending.look(clock.monotonic() >= deadline)) is None:
            _pause(result_or_pending, deadline)
        return result

    def start(
        self, caller: Caller, name: str, arguments: Mapping[str, Any], *, most: int = MOST_BYTES
    ) -> dict[str, Any] | PendingResult:
        """Like `call`, but returns a `PendingResult` for a result that takes time; its `look` returns the validated result.

        `most` is the maximum size in bytes of a result that is returned at once.
        """
        registered = self._validate_call(caller, name, arguments)
        tool = registered.tool
        if tool.describe is None:
            return self._call_gated(caller, registered, arguments, most)
        result = tool.call(caller, arguments)
        if isinstance(result, PendingResult):
            return PendingResult(partial(_look, registered, result, _unredacted), result.seconds, result.ready)
        return _validate_result(registered, result, most)

    def action_of(self, caller: Caller, name: str, arguments: Mapping[str, Any]) -> ToolAction:
        """The action that policies and approvals would see for this call, without making it.  Raises as `call` for bad calls."""
        tool = self._validate_call(caller, name, arguments).tool
        resolved = self._with_defaults(caller, tool, arguments)
        return ToolAction(tool.name, tool.effect, resolved) if tool.describe is None else tool.describe(caller, resolved)

    def resolved_action(self, caller: Caller, name: str, arguments: Mapping[str, Any]) -> ToolAction:
        """The action of a call that arrived another way (such as REST), whose arguments are already validated."""
        tool = self._find(name).tool
        return ToolAction(tool.name, tool.effect, self._with_defaults(caller, tool, arguments))

    def _validate_call(self, caller: Caller, name: str, arguments: Mapping[str, Any]) -> _RegisteredTool:
        registered = self._find(name)
        for scope in sorted(registered.tool.scopes - caller.scope.scopes):
            raise ScopeMissing(
                Sentence(
                    "the tool %(name)s needs the scope %(scope)s; use a key that has it, or ask an owner to issue one",
                    name=name, scope=scope,
                ),
                extra={"scope": scope},
            )
        problems = registered.input.problems(dict(arguments), namespace=caller.scope.tenant_id)
        if problems:
            raise ValidationFailed(Sentence("the arguments of %(name)s do not match its input schema", name=name), details=problems)
        if caller.scope.limits is not None:
            _check_limits(caller, registered.tool, arguments)
        return registered

    def _call_gated(
        self, caller: Caller, registered: _RegisteredTool, arguments: Mapping[str, Any], most: int
    ) -> dict[str, Any] | PendingResult:
        tool = registered.tool
        before = caller.place.dispatched if caller.place is not None else None
        if before is not None and tool.consumes:
            action = ToolAction(tool.name, tool.effect, before["input"])
            permission = self._gate.recall(caller.scope, caller.subject, action)
            result = tool.call(caller, action.input)
        else:
            action = ToolAction(tool.name, tool.effect, self._with_defaults(caller, tool, arguments))
            permission = self._permit(caller, action, arguments.get(APPROVAL_ID))
            result = self._start(caller, tool, permission, action)
        if isinstance(result, PendingResult):
            return PendingResult(partial(_look, registered, result, permission.redact), result.seconds, result.ready)
        return _redacted(_validate_result(registered, result, most), permission.redact)

    def _with_defaults(self, caller: Caller, tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Fill in the arguments that `Tool.defaults` computes: with the approved values, otherwise with the current ones."""
        resolved, approval_id = _without_approval(arguments), arguments.get(APPROVAL_ID)
        if all(name in resolved for name in tool.defaults):
            return resolved
        approved = self._gate.approved_input(caller.scope, approval_id) if approval_id is not None else {}
        for name, find in tool.defaults.items():
            value = approved[name] if name in approved else find(caller, resolved)
            if value is not None:
                resolved.setdefault(name, value)
        return resolved

    def _permit(self, caller: Caller, action: ToolAction, approval_id: str | None) -> Permission:
        """Get permission; a read that consumed its approval before a crash keeps it for the same call."""
        before = caller.place.dispatched if caller.place is not None else None
        if before is None:
            return self._gate.permit(caller.scope, caller.subject, action, approval_id)
        consumed = UsedApproval(**before["approval"]) if before["approval"] is not None else None
        return self._gate.permit(caller.scope, caller.subject, action, None, consumed)

    def _start(self, caller: Caller, tool: Tool, permission: Permission, action: ToolAction) -> dict[str, Any] | PendingResult:
        def take() -> ToolAction:
            permitted = permission.consume(f"tool:{tool.name}")
            if caller.place is not None and (tool.consumes or tool.effect == "read"):
                approval = permission.resumable_approval
                caller.place.dispatch({"input": dict(permitted.input), "approval": None if approval is None else asdict(approval)})
            return permitted

        if tool.effect == "read":
            if permission.needs_write and not caller.has_started:
                db.write(take)
            return tool.call(caller, action.input)
        if tool.consumes:

            def consume() -> None:
                take()

            return tool.call(replace(caller, consume=consume), action.input)
        return db.write(lambda: tool.call(caller, take().input))

    def _find(self, name: str) -> _RegisteredTool:
        if name not in self._registered():
            raise NotFound(
                Sentence("there is no tool %(name)s; the tools are %(tools)s", name=repr(name[:80]), tools=", ".join(self.names()))
            )
        return self._registered()[name]


def _check_limits(caller: Caller, tool: Tool, arguments: Mapping[str, Any]) -> None:
    """KeyLimited for a tool that limited keys cannot use, NotFound for a resource outside the limits of the caller's key."""
    if tool.reaches is None:
        raise KeyLimited(
            Sentence(
                "this key is limited to some processes, collections and integrations, and the tool %(name)s could reach others; "
                "use a key without this limit",
                name=tool.name,
            )
        )
    for kind, name in tool.reaches(caller, arguments):
        caller.scope.check_reach(kind, name)


def _with_approval(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The argument schema with `approval_id`: a rule may require an approval for any tool, even one that only reads."""
    return {**schema, "properties": {**schema.get("properties", {}), APPROVAL_ID: APPROVAL_ID_SCHEMA}}


def _without_approval(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name != APPROVAL_ID}


def _unredacted(result: Any) -> Any:
    """Redact nothing: a tool that passes the gate itself also redacts its own result."""
    return result


def _look(registered: _RegisteredTool, waiting: PendingResult, redact: Callable[[Any], Any], last: bool) -> dict[str, Any] | None:
    result = waiting.look(last)
    return None if result is None else _redacted(_validate_result(registered, result), redact)


def _redacted(result: dict[str, Any], redact: Callable[[Any], Any]) -> dict[str, Any]:
    redacted: dict[str, Any] = redact(result)
    return redacted


def _validate_result(registered: _RegisteredTool, result: dict[str, Any], most: int = MOST_BYTES) -> dict[str, Any]:
    """Truncate the result to the maximum size; raises RuntimeError if it violates the tool's own schema, which is a bug."""
    fitted = truncate(result, registered.tool.long, most)
    problem = registered.output.first_problem(fitted)
    if problem is not None:
        raise RuntimeError(f"the result of the tool {registered.tool.name} does not match its output schema: {problem}")
    return fitted


def _pause(waiting: PendingResult, deadline: float) -> None:
    left = max(0.0, deadline - clock.monotonic())
    if waiting.ready is None or waiting.ready.done():  # poll: it may be done without a result, if another worker continues it
        _never.wait(min(POLL_SECONDS, left))
    else:
        wait([waiting.ready], left)
