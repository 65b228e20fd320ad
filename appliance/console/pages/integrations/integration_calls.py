"""The calls of an integration: a list with filters, one call with its request and response, settling and retrying it."""

import json
from typing import Any

from appliance.console.frame.people import Names
from appliance.console.frame.routing import Answer, Deferred, Page, Redirect, Visit, page
from appliance.core.errors import ApplianceError, NotFound, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.integrations import OUTCOMES, STATUSES, CallFilter, history

MOST_CHARACTERS = 1 << 18


@page("GET", "/integrations/<slug>/calls", scope="integrations.read")
def list_calls(visit: Visit, slug: str) -> Answer:
    """The calls, newest first."""
    chosen = {name: visit.request.args.get(name, "")[:200] for name in ("action", "status", "outcome")}
    filters = CallFilter(chosen["status"] or None, chosen["action"] or None, outcome=chosen["outcome"] or None)
    result = history.list_calls(visit.scope, slug, filters, visit.page())
    values = {
        "integration": visit.services.integrations.get_integration(visit.scope, slug), "calls": result.items,
        "next_cursor": result.next_cursor, "chosen": chosen, "statuses": STATUSES, "outcomes": OUTCOMES, "names": Names(visit),
    }  # fmt: skip
    return Page("integration_calls.html", values)


@page("GET", "/integrations/<slug>/calls/<call_id>", scope="integrations.read")
def show_call(visit: Visit, slug: str, call_id: str) -> Answer:
    """One call."""
    return _call_page(visit, slug, call_id)


def _call_page(visit: Visit, slug: str, call_id: str, problem: ApplianceError | None = None) -> Page:
    values = {
        "integration": visit.services.integrations.get_integration(visit.scope, slug), "names": Names(visit),
        "call": history.get_call(visit.scope, slug, call_id), "problem": problem, "output": visit.request.field("output"),
    }  # fmt: skip
    return Page("integration_call.html", values, problem.status if problem else 200)


@page("POST", "/integrations/<slug>/calls/<call_id>/settle", scope="integrations.write")
def settle_call(visit: Visit, slug: str, call_id: str) -> Answer:
    """Settle a call with an unknown outcome, after a person has checked in the foreign system whether it took effect."""
    try:
        done = visit.request.field("happened") == "yes"
        output = _parse_output(visit.request.field("output")) if done else None
        history.settle_call(visit.scope, slug, call_id, done=done, output=output)
    except NotFound:
        raise
    except ApplianceError as refusal:
        return _call_page(visit, slug, call_id, refusal)
    return Redirect(f"/console/integrations/{slug}/calls/{call_id}")


@page("POST", "/integrations/<slug>/calls/<call_id>/retry", scope="integrations.execute")
def retry_call(visit: Visit, slug: str, call_id: str) -> Answer:
    """Retry a failed call with its original idempotency key, and show the new call."""
    executor = visit.services.governance.executor
    history.get_call(visit.scope, slug, call_id)
    work = executor.submit(visit.scope, lambda: executor.retry(visit.scope, slug, call_id))

    def show() -> Answer:
        try:
            return Redirect(f"/console/integrations/{slug}/calls/{work.result()}")
        except ApplianceError as refusal:
            return _call_page(visit, slug, call_id, refusal)

    return Deferred(work, show)


def _parse_output(text: str) -> dict[str, Any]:
    try:
        output = json.loads(text or "{}") if len(text) <= MOST_CHARACTERS else None
    except (ValueError, RecursionError) as error:
        raise ValidationFailed(Sentence("the output is not valid JSON: %(error)s", error=error), pointer="/output") from error
    if not isinstance(output, dict):
        raise ValidationFailed("the output must be a JSON object: {…}", pointer="/output")
    try:
        json.dumps(output, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise ValidationFailed(
            "the output contains NaN, Infinity or half a surrogate pair, which JSON does not allow", pointer="/output"
        ) from error
    return output
