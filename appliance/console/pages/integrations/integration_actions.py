"""The page of one action: its form, a preview of the request, the call itself, and the YAML of the step for a process."""

import secrets
from dataclasses import dataclass
from typing import Any

from appliance.connectors import translate_schema
from appliance.connectors.contract import Action
from appliance.console.frame.forms import InputForm, read_form
from appliance.console.frame.routing import Answer, Deferred, Page, Visit, idempotency_token, page
from appliance.core import yaml12
from appliance.core.errors import ApplianceError, Detail, ValidationFailed
from appliance.governance.executor import ActionRequest, ActionResult

SECONDS = 60.0


@dataclass
class ActionAttempt:
    """The content of the form, and the result of the attempt."""

    form: InputForm
    result: ActionResult | None = None
    problem: ApplianceError | None = None


@page("GET", "/integrations/<slug>/actions/<action>", scope="integrations.read")
def show_action(visit: Visit, slug: str, action: str) -> Answer:
    """The form of an action, filled with its sample input."""
    definition = visit.services.integrations.get_action(visit.scope, slug, action)
    form = InputForm(translate_schema(definition.input), _is_whole(visit))
    form.fill(definition.sample)
    return _action_page(visit, slug, definition, ActionAttempt(form))


def _is_whole(visit: Visit) -> bool:
    return "json" in (visit.request.args.get("as"), visit.request.field("as"))


@page("POST", "/integrations/<slug>/actions/<action>", scope="integrations.execute")
def try_action(visit: Visit, slug: str, action: str) -> Answer:
    """Preview or execute the action, subject to the policies; no thread is held during the call."""
    definition = visit.services.integrations.get_action(visit.scope, slug, action)
    form = InputForm(translate_schema(definition.input), _is_whole(visit))
    value = read_form(form, visit.request.form)
    if form.problems:
        error = ValidationFailed("some of the input is invalid; see the messages next to the fields", details=form.problems)
        return _action_page(visit, slug, definition, ActionAttempt(form, problem=error))
    executor, request = visit.services.governance.executor, _request(visit, slug, action, value)
    work = executor.submit(visit.scope, lambda: executor.execute(visit.scope, request))

    def show() -> Answer:
        try:
            return _action_page(visit, slug, definition, ActionAttempt(form, work.result()))
        except ApplianceError as refusal:
            form.show_errors([Detail(each.pointer.removeprefix("/input"), each.code, each.message) for each in refusal.details])
            return _action_page(visit, slug, definition, ActionAttempt(form, problem=refusal))

    return Deferred(work, show)


def _request(visit: Visit, slug: str, action: str, value: Any) -> ActionRequest:
    if not isinstance(value, dict):
        raise ValidationFailed("the input must be a JSON object: {…}", pointer="")
    may = frozenset(access for access in ("read", "write") if visit.may(f"documents.{access}"))
    if visit.request.field("do") == "execute":
        return ActionRequest(
            slug, action, value, idempotency_key=idempotency_token(visit) or None, seconds=SECONDS, documents=may,
            approval_id=visit.request.field("approval_id")[:80] or None,
        )  # fmt: skip
    return ActionRequest(slug, action, value, "preview", seconds=SECONDS, documents=may)


def _action_page(visit: Visit, slug: str, action: Action, tried: ActionAttempt) -> Page:
    step = {"id": "call", "integration": {"use": slug, "action": action.name, "input": dict(action.sample)}}
    values = {
        "integration": visit.services.integrations.get_integration(visit.scope, slug), "action": action, "tried": tried,
        "form": tried.form, "problem": tried.problem, "whole": _is_whole(visit), "token": secrets.token_urlsafe(16),
        "snippet": yaml12.dump([step]), "output_schema": dict(action.output),
    }  # fmt: skip
    return Page("integration_action.html", values, tried.problem.status if tried.problem else 200)
