"""Applies policies to REST calls made with an agent's key, exactly as they apply to the agent's tools."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from appliance.agents.tools import APPROVAL_ID, Caller
from appliance.core.database import db
from appliance.core.errors import ApplianceError, ApprovalRequired, PolicyDenied, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.governance import Permit, subject_of
from appliance.governance.policies import ToolAction

from .routing import Call, Document, Route, Upload

HEADER = "approval-id"
_LONGEST_ID = 80


def admit_agent(route: Route, call: Call, path_args: Mapping[str, str]) -> tuple[Call, Permit | None]:
    """The permit for a call made with an agent's key, and the call as it was evaluated; no permit for other keys.

    The call is evaluated as an action of the equivalent tool, or else of `api.<name of the route>`; raises PolicyDenied or
    ApprovalRequired.  Routes whose domain function evaluates policies itself (`is_governed`) are skipped.
    """
    if not call.scope.has_agent_key or route.acts.is_governed:
        return call, None
    approval_id = call.headers.get(HEADER)
    if approval_id is not None and not 0 < len(approval_id) <= _LONGEST_ID:
        raise ValidationFailed("Approval-Id must be the id of one approval", pointer="/Approval-Id")
    call, action = _action_of(route, call, path_args)
    governor, subject = call.services.governance.governor, subject_of(call.scope)
    try:
        permit: Permit = governor.permit(call.scope, subject, action, approval_id, may_request=not route.takes_stream)
    except ApprovalRequired as error:
        raise _to_rest_error(route, error) from error
    if permit.redacts:
        raise PolicyDenied(
            "a policy rule hides parts of this answer from agents, which the REST API cannot do; call the tool over MCP instead",
            extra={"reason": "redacted", "rules": list(permit.decision.rules)},
        )
    return call, permit


def begin(permit: Permit | None, call: Call) -> None:
    """Consume the permit's approval and budget, and record what an agent changes; part of the transaction if there is one."""
    if permit is not None and (permit.needs_write or permit.action.effect != "read"):
        db.write(lambda: permit.consume(f"request:{call.scope.request_id}"))


def _to_rest_error(route: Route, error: ApprovalRequired) -> ApplianceError:
    """The error as REST answers it: the approval is sent in a header, and a streamed body cannot be approved."""
    if route.takes_stream:
        return PolicyDenied(
            Sentence(
                "an upload in parts cannot be approved in advance; send the document in one request, or have a policy "
                "allow the tool api.%(name)s",
                name=route.name,
            ),
            extra={**error.extra, "reason": "not_approvable"},
        )
    error.message = f"{error.message} in the header Approval-Id"
    return error


def _action_of(route: Route, call: Call, path_args: Mapping[str, str]) -> tuple[Call, ToolAction]:
    acts = route.acts
    effect = acts.effect or ("read" if route.method == "GET" else "write")
    query = call.query.model_dump(mode="json", exclude_unset=True) if call.query is not None else {}
    if acts.arguments is not None:
        arguments = acts.arguments(call, path_args)
        if HEADER in call.headers:  # Arguments the call leaves open take the values that were approved.
            arguments[APPROVAL_ID] = call.headers[HEADER]
        tool = call.services.agents.tools.get(acts.tool)
        action = call.services.agents.tools.resolved_action(Caller(call.scope, subject_of(call.scope)), acts.tool, arguments)
        return _with_judged_version(call, action), replace(action, effect=tool.effect)
    if acts.tool:
        body = _body_of(route, call)
        merged = {**query, **(body if isinstance(body, Mapping) else {}), **path_args}
        return call, ToolAction(acts.tool, effect, merged)
    input_ = {"path": dict(path_args), "query": query, "body": _body_of(route, call)}
    return call, ToolAction(f"api.{route.name}", effect, {name: value for name, value in input_.items() if value})


def _with_judged_version(call: Call, action: ToolAction) -> Call:
    """The call with the version that was evaluated, so that no other version is executed."""
    version = action.input.get("version")
    if isinstance(call.query, BaseModel) and "version" in type(call.query).model_fields and version is not None:
        return replace(call, query=call.query.model_copy(update={"version": version}))
    return call


def _body_of(route: Route, call: Call) -> Any:
    """The body as JSON; a body that contains secrets is replaced by a keyed digest."""
    body = call.body
    if isinstance(body, Upload):
        return {"sha256": body.received.sha256, "filename": body.filename, "fields": dict(body.fields)}
    if isinstance(body, Document):
        body = body.data
    if isinstance(body, BaseModel):
        body = body.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if route.scope == "secrets.write" and body:
        return {"digest": call.services.sealer.digest(db.dump_json(body).encode()).hex()}
    return body if isinstance(body, dict | list) else None
