"""Describes what an execution waits for: a person, a time, an event, another execution, an agent or the next attempt."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from appliance.core import clock
from appliance.core.texts import gettext as _
from appliance.core.texts import mark
from appliance.processes import Execution


@dataclass(frozen=True)
class Wait:
    """One wait; `url` links to its cause, `until` is its deadline in epoch ms.

    `next` says how it can be ended; `token` is needed to deliver an event.
    """

    text: str
    what: str = ""
    url: str = ""
    step: str = ""
    until: int | None = None
    next: str = ""
    token: str = ""


_NEXT = {
    "human": mark("It continues once someone who may decide has decided."),
    "event": mark("A program delivers it with POST …/resume and the token of this wait."),
    "llm_profile": mark("It continues when the profile is available or someone answers in its place."),
    "retry": mark("The last attempt failed. See the step below for the error."),
}


def list_waits(row: Execution) -> list[Wait]:
    """The waits of an execution; those for a person come first."""
    waiting = row.waiting_for if isinstance(row.waiting_for, Mapping) else {}
    stored = waiting.get("waits")
    if isinstance(stored, list) and stored:
        waits = [each for each in stored if isinstance(each, Mapping)]
        return [_to_wait(each) for each in sorted(waits, key=lambda each: each.get("kind") != "human")]
    return [Wait(_describe_reason(row.wait_reason or ""), step=str(waiting.get("step") or ""), until=row.next_run_at)]


def _describe_reason(reason: str) -> str:
    if reason == "timer":
        return _("Waiting for a set time")
    return _("Waiting for the next attempt") if reason == "retry" else _("Waiting for %(reason)s", reason=reason)


def _to_wait(stored: Mapping[str, Any]) -> Wait:
    text, what, url = _("Waiting"), "", ""
    if stored.get("kind") == "human":
        text, what = _("Waiting for a decision"), str(stored.get("title") or _("the request"))
        url = f"/console/approvals/{stored['approval_id']}" if stored.get("approval_id") else ""
    elif stored.get("kind") == "agent":
        text, what, url = _agent_wait(stored)
    elif stored.get("kind") == "event":
        text, what = _("Waiting for the event"), str(stored.get("name") or "")
    elif stored.get("kind") == "child":
        what = str(stored.get("process_id") or "")
        text = _("Waiting for an execution of") if what else _("Waiting for another execution")
        url = f"/console/executions/{stored['execution_id']}" if stored.get("execution_id") else ""
    elif stored.get("kind") == "llm_profile":
        text, what = _("Waiting for the LLM profile"), str(stored.get("profile") or "")
        url = f"/console/approvals/{stored['approval_id']}" if stored.get("approval_id") else ""
    elif stored.get("kind") in ("timer", "retry"):
        text = _describe_reason(stored["kind"])
    kind = str(stored.get("kind") or "")
    token = str(stored.get("token") or "") if kind == "event" else ""
    return Wait(
        text=text, what=what, url=url, step=str(stored.get("step") or ""), until=_moment(stored.get("until")),
        next=_(_NEXT.get(kind, "")), token=token,
    )


def _agent_wait(stored: Mapping[str, Any]) -> tuple[str, str, str]:
    """The (text, title, URL) of a wait for an agent; if the agent itself waits for a decision, of that decision."""
    agent, run = str(stored.get("agent_id") or ""), str(stored.get("run_id") or "")
    if stored.get("approval_id"):
        about = str(stored.get("title") or _("the request"))
        text = _("Waiting for a decision requested by the agent %(agent)s", agent=agent)
        return text, about, f"/console/approvals/{stored['approval_id']}"
    return _("Waiting for the agent"), agent, f"/console/agents/{agent}/runs/{run}"


def _moment(until: Any) -> int | None:
    return clock.parse_rfc3339(until) if isinstance(until, str) else until
