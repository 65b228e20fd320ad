"""Reports a run's end and waits to the process step that started it, in the same transaction that changes the run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.processes.engine import suspension
from appliance.processes.host import tainting

_CLASSES: Mapping[str, tuple[str, ...]] = {
    "policy": ("policy_denied", "budget_exceeded", "scope_missing", "approval_required", "address_not_allowed", "answer_refused"),
    "connector": ("connector_failed", "outcome_unknown", "rejected"),
    "timeout": ("timed_out",),
    "system": ("internal", "poisoned", "overloaded", "draining", "storage_full", "config_invalid"),
}
_CLASS_OF = {code: name for name, codes in _CLASSES.items() for code in codes}


@dataclass(frozen=True)
class RunCompletion:
    """A finished run: its `output`, its `error` (code and message), or who cancelled it in `by`; and the sources it had read."""

    run_id: str
    agent_id: str
    execution_id: str
    status: str
    output: Any = None
    error: Mapping[str, Any] | None = None
    by: str = ""
    tainted_by: Sequence[str] = ()


def complete_step(scope: TenantScope, completion: RunCompletion) -> None:
    """Resume the step with the run's result if it still waits, and taint its execution with the sources the run has read."""
    tainting.add_sources(scope, completion.execution_id, completion.tainted_by)
    if completion.status == "succeeded":
        suspension.answer_call(scope, completion.run_id, True, completion.output)
        return
    error = completion.error or {}
    about = Sentence("the run %(run_id)s of the agent %(agent_id)s", run_id=completion.run_id, agent_id=completion.agent_id)
    if completion.status == "cancelled":
        message, failure_class = (
            Sentence("%(about)s was cancelled%(value)s", about=about, value=f" by {completion.by}" if completion.by else ""),
            "policy",
        )
    else:
        message, failure_class = (
            Sentence("%(about)s failed: %(message)s", about=about, message=error.get("message", "")),
            _CLASS_OF.get(str(error.get("code")), "validation"),
        )
    failure = {
        "code": "agent_failed", "message": message, "retryable": bool(error.get("retryable", False)),
        "failure_class": failure_class, "details": [], "run_id": completion.run_id,
        **({"run_error": error["code"]} if "code" in error else {}),
    }  # fmt: skip
    suspension.answer_call(scope, completion.run_id, False, failure)


def show_wait(scope: TenantScope, run_id: str, why: Mapping[str, Any] | None) -> None:
    """Show on the step what its run is waiting for; None clears it."""
    detail: dict[str, Any] | None = None
    if why is not None:
        approval = {"approval_id": why["request_id"]} if "request_id" in why else {}
        detail = {"reason": why["reason"], **approval, **({"title": why["title"]} if "title" in why else {})}
    suspension.save_detail(scope, run_id, detail)
