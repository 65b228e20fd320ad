"""The tools that execute a process and show an execution."""

import hashlib
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from appliance.core.errors import NotFound, NotPublished
from appliance.core.scope import TenantScope
from appliance.processes import Execution, ProcessFlow, Waiter
from appliance.processes.engine import FINISHED, completion
from appliance.processes.executions import StartRequest, pausing
from appliance.processes.executions import service as executions

from .shapes import TEXT, Shape, inputs, with_truncated
from .tool import Caller, Hints, PendingResult, Tool

_LONG = ("output", "input", "waiting_for", "aftermath")


@dataclass(frozen=True)
class ProcessTools:
    """Tools for processes; `shape` renders an execution."""

    flow: ProcessFlow
    shape: Shape

    def tools(self) -> list[Tool]:
        """`execute_process` and `get_execution`."""
        execution = with_truncated(self.shape)
        execution["required"] = [name for name in execution["required"] if name not in _LONG]
        execute = inputs(
            ("process_id",),
            process_id=TEXT,
            input={"type": "object", "description": "The input object of the process.", "default": {}},
            wait={"type": "number", "minimum": 0, "maximum": 60, "description": "Seconds to wait for its end.", "default": 0},
            version={
                "type": "integer", "minimum": 1, "maximum": 10**9,
                "description": "Defaults to the published version; policies and approvals then apply to exactly that version.",
            },
            label={"type": "string", "minLength": 1, "maxLength": 200},
            idempotency_key={"type": "string", "minLength": 1, "maxLength": 255, "description": "Repeat a call safely."},
        )  # fmt: skip
        return [
            Tool(
                name="execute_process", title="Execute a process",
                description=(
                    "Starts an execution of a published process. Returns at once, or with the result if the execution ends within "
                    "`wait` seconds; a failed execution is a normal result with `status: failed` and `error`. Follow it with "
                    "get_execution."
                ),
                input_schema=execute, output_schema=execution, effect="write", scopes=frozenset({"processflow.execute"}),
                call=self.execute, hints=Hints(open_world=True), long=_LONG, consumes=True,
                defaults={"version": self.published_version},
                reaches=lambda _, arguments: [("process", arguments["process_id"])],
            ),
            Tool(
                name="get_execution", title="Show an execution",
                description="Shows an execution: status, output or error, what it waits for, and its position while it is queued.",
                input_schema=inputs(("execution_id",), execution_id=TEXT), output_schema=execution, effect="read",
                scopes=frozenset({"processflow.read"}), call=self.get, long=_LONG, reaches=lambda *_: (),
            ),
        ]  # fmt: skip

    def published_version(self, caller: Caller, arguments: Mapping[str, Any]) -> int | None:
        """The version to execute if the call names none; None if there is none, which the call reports once it is allowed."""
        try:
            return executions.resolve_version(caller.scope, arguments["process_id"], None)
        except (NotFound, NotPublished):
            return None

    def execute(self, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any] | PendingResult:
        """Like POST /processes/{id}/execute."""
        scope, seconds = caller.scope, float(arguments.get("wait", 0))
        if caller.has_started:
            return self._resume(scope, _token(scope, arguments), seconds)
        request = StartRequest(
            arguments.get("input", {}), arguments.get("version"), label=arguments.get("label"), token=_token(scope, arguments),
            depth=_depth_for(caller), tainted_by=caller.subject.tainted_by,
        )  # fmt: skip
        finished: Future[None] = Future()
        callback = partial(finished.set_result, None)
        waiter = Waiter(callback) if seconds else None
        row = self.flow.start_execution(
            scope, arguments["process_id"], request, waiter=waiter, write_related=caller.consume
        )
        if waiter is None or row.status in FINISHED or row.wait_reason == pausing.PAUSED:
            return self.shape.show(row)

        def look(last: bool) -> dict[str, Any] | None:
            now: Execution = executions.get_execution(scope, row.id)
            if last and not finished.done():
                completion.completion_signal.unsubscribe(row.id, callback)
            return self.shape.show(now) if last or now.status in FINISHED else None

        return PendingResult(look, seconds, finished)

    def _resume(self, scope: TenantScope, token: str, seconds: float) -> dict[str, Any] | PendingResult:
        """Return the execution that this call started before a crash; never starts another one."""
        row = executions.find_started(scope, token)

        def look(last: bool) -> dict[str, Any] | None:
            now = executions.get_execution(scope, row.id)
            return self.shape.show(now) if last or now.status in FINISHED else None

        return look(not seconds) or PendingResult(look, seconds)

    def get(self, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Like GET /processes/{id}/executions/{eid}."""
        return self.shape.show(executions.get_execution(caller.scope, arguments["execution_id"]))


def _depth_for(caller: Caller) -> int:
    """The nesting depth of an execution that this caller starts: one below that of the calling run, 0 for other callers."""
    if not caller.subject.run_id:
        return 0
    return 1 if caller.execution_id is None else int(executions.get_execution(caller.scope, caller.execution_id).depth) + 1


def _token(scope: TenantScope, arguments: Mapping[str, Any]) -> str:
    """A token derived from the idempotency key, equal for repeated calls; empty without a key."""
    key = arguments.get("idempotency_key")
    if key is None:
        return ""
    return hashlib.sha256(f"{scope.actor}\0{key}\0execute_process\0{arguments['process_id']}".encode()).hexdigest()
