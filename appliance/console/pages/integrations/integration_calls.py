"""The calls of an integration: a list to filter, one with what was sent and answered, and the verdict on an unknown outcome."""

import json
from typing import Any

from appliance.console.frame.people import Names
from appliance.console.frame.routing import Answer, Later, Page, Redirect, Visit, page
from appliance.core.errors import ApplianceError, NotFound, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.integrations import OUTCOMES, STATUSES, CallFilter, history

MOST_CHARACTERS = 1 << 18


@page("GET", "/integrations/<slug>/calls", scope="integrations.read")
def list_calls(visit: Visit, slug: str) -> Answer:
    """What was called, newest first."""
    chosen = {name: visit.asked.args.get(name, "")[:200] for name in ("action", "status", "outcome")}
    wanted = CallFilter(chosen["status"] or None, chosen["action"] or None, outcome=chosen["outcome"] or None)
    found = history.list_calls(visit.scope, slug, wanted, visit.page())
    values = {
        "integration": visit.services.integrations.get_integration(visit.scope, slug), "calls": found.items,
        "next_cursor": found.next_cursor, "chosen": chosen, "statuses": STATUSES, "outcomes": OUTCOMES, "names": Names(visit),
    }  # fmt: skip
    return Page("integration_calls.html", values)


@page("GET", "/integrations/<slug>/calls/<call_id>", scope="integrations.read")
def show_call(visit: Visit, slug: str, call_id: str) -> Answer:
    """One call."""
    return _call_page(visit, slug, call_id)


def _call_page(visit: Visit, slug: str, call_id: str, problem: ApplianceError | None = None) -> Page:
    values = {
        "integration": visit.services.integrations.get_integration(visit.scope, slug), "names": Names(visit),
        "call": history.get_call(visit.scope, slug, call_id), "problem": problem, "output": visit.asked.field("output"),
    }  # fmt: skip
    return Page("integration_call.html", values, problem.status if problem else 200)


@page("POST", "/integrations/<slug>/calls/<call_id>/settle", scope="integrations.write")
def settle_call(visit: Visit, slug: str, call_id: str) -> Answer:
    """A person has looked in the foreign system: it happened, or it did not."""
    try:
        done = visit.asked.field("happened") == "yes"
        history.settle_call(visit.scope, slug, call_id, done=done, output=_output(visit.asked.field("output")) if done else None)
    except NotFound:
        raise
    except ApplianceError as refusal:
        return _call_page(visit, slug, call_id, refusal)
    return Redirect(f"/console/integrations/{slug}/calls/{call_id}")


@page("POST", "/integrations/<slug>/calls/<call_id>/retry", scope="integrations.execute")
def retry_call(visit: Visit, slug: str, call_id: str) -> Answer:
    """Make a failed call again, with the key it had; to the record of the new one."""
    executor = visit.services.executor
    history.get_call(visit.scope, slug, call_id)
    work = executor.submit(visit.scope, lambda: executor.retry(visit.scope, slug, call_id))

    def show() -> Answer:
        try:
            return Redirect(f"/console/integrations/{slug}/calls/{work.result()}")
        except ApplianceError as refusal:
            return _call_page(visit, slug, call_id, refusal)

    return Later(work, show)


def _output(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}") if len(text) <= MOST_CHARACTERS else None
    except (ValueError, RecursionError) as error:
        raise ValidationFailed(Sentence("what it answered is no JSON: %(error)s", error=error), pointer="/output") from error
    if not isinstance(found, dict):
        raise ValidationFailed("what it answered is a JSON object: {…}", pointer="/output")
    try:
        json.dumps(found, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise ValidationFailed("what it answered holds NaN, Infinity or half a character: no JSON", pointer="/output") from error
    return found
