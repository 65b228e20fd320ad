"""What an execution waits for, one line each: a person, a time, an event, another execution, an agent, the next try."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from appliance.core import clock
from appliance.core.texts import gettext as _
from appliance.core.texts import mark
from appliance.processes import Execution


@dataclass(frozen=True)
class Wait:
    """One thing waited for; `url` leads to it, `until` is when it ends at the latest, in epoch milliseconds.

    `next` says what somebody can do about it; by `token` an event is delivered.
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


def waits_of(row: Execution) -> list[Wait]:
    """The waits of an execution, those that a person can end first."""
    waiting = row.waiting_for if isinstance(row.waiting_for, Mapping) else {}
    given = waiting.get("waits")
    if isinstance(given, list) and given:
        told = [each for each in given if isinstance(each, Mapping)]
        return [_wait(each) for each in sorted(told, key=lambda each: each.get("kind") != "human")]
    return [Wait(_for_no_one(row.wait_reason or ""), step=str(waiting.get("step") or ""), until=row.next_run_at)]


def _for_no_one(reason: str) -> str:
    if reason == "timer":
        return _("Waiting for a set time")
    return _("Waiting for the next attempt") if reason == "retry" else _("Waiting for %(reason)s", reason=reason)


def _wait(given: Mapping[str, Any]) -> Wait:
    text, what, url = _("Waiting"), "", ""
    if given.get("kind") == "human":
        text, what = _("Waiting for a decision"), str(given.get("title") or _("the request"))
        url = f"/console/approvals/{given['approval_id']}" if given.get("approval_id") else ""
    elif given.get("kind") == "agent":
        text, what, url = _of_agent(given)
    elif given.get("kind") == "event":
        text, what = _("Waiting for the event"), str(given.get("name") or "")
    elif given.get("kind") == "child":
        what = str(given.get("process_id") or "")
        text = _("Waiting for an execution of") if what else _("Waiting for another execution")
        url = f"/console/executions/{given['execution_id']}" if given.get("execution_id") else ""
    elif given.get("kind") == "llm_profile":
        text, what = _("Waiting for the LLM profile"), str(given.get("profile") or "")
        url = f"/console/approvals/{given['approval_id']}" if given.get("approval_id") else ""
    elif given.get("kind") in ("timer", "retry"):
        text = _for_no_one(given["kind"])
    kind = str(given.get("kind") or "")
    token = str(given.get("token") or "") if kind == "event" else ""
    return Wait(text, what, url, str(given.get("step") or ""), _moment(given.get("until")), _(_NEXT.get(kind, "")), token)


def _of_agent(given: Mapping[str, Any]) -> tuple[str, str, str]:
    """The run; where it waits for a person, what they are asked."""
    agent, run = str(given.get("agent_id") or ""), str(given.get("run_id") or "")
    if given.get("approval_id"):
        about = str(given.get("title") or _("the request"))
        text = _("Waiting for a decision requested by the agent %(agent)s", agent=agent)
        return text, about, f"/console/approvals/{given['approval_id']}"
    return _("Waiting for the agent"), agent, f"/console/agents/{agent}/runs/{run}"


def _moment(until: Any) -> int | None:
    return clock.parse_rfc3339(until) if isinstance(until, str) else until
