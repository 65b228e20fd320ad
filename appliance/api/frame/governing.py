"""What the key of an agent does over REST, judged as its tools are: the road makes no difference to a policy."""

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
    """Leave for what an agent's key asks of a route, and the call as it was judged; None for every other key.

    Reads and writes are judged as the action of the tool that does the same, else as that of `api.<name of the route>`.
    PolicyDenied, ApprovalRequired.  What the verb itself has judged is not judged here.
    """
    if not call.scope.has_agent_key or route.acts.is_governed:
        return call, None
    approval_id = call.headers.get(HEADER)
    if approval_id is not None and not 0 < len(approval_id) <= _LONGEST_ID:
        raise ValidationFailed("Approval-Id takes the id of one approval", pointer="/Approval-Id")
    call, action = _action_of(route, call, path_args)
    governor, subject = call.services.governor, subject_of(call.scope)
    try:
        permit: Permit = governor.permit(call.scope, subject, action, approval_id, asks=not route.takes_stream)
    except ApprovalRequired as error:
        raise _told(route, error) from error
    if permit.hides:
        raise PolicyDenied(
            "a rule hides parts of this answer from agents, which the REST API cannot; call the tool over MCP instead",
            extra={"reason": "redacted", "rules": list(permit.decision.rules)},
        )
    return call, permit


def begin(permit: Permit | None, call: Call) -> None:
    """Use up what the permit owes, and note what an agent changes; inside a write it is part of it."""
    if permit is not None and (permit.is_owing or permit.action.effect != "read"):
        db.write(lambda: permit.take(f"request:{call.scope.request_id}"))


def _told(route: Route, error: ApprovalRequired) -> ApplianceError:
    """How an approval travels over REST."""
    if route.takes_stream:
        return PolicyDenied(
            Sentence(
                "bytes that are sent piece by piece cannot be approved beforehand: send the document whole, or have "
                "a policy allow the tool api.%(name)s",
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
        if HEADER in call.headers:  # what the call leaves open is as it was approved
            arguments[APPROVAL_ID] = call.headers[HEADER]
        tool = call.services.tools.get(acts.tool)
        action = call.services.tools.settled_action(Caller(call.scope, subject_of(call.scope)), acts.tool, arguments)
        return _settled(call, action), replace(action, effect=tool.effect)
    if acts.tool:
        body = _body_of(route, call)
        given = {**query, **(body if isinstance(body, Mapping) else {}), **path_args}
        return call, ToolAction(acts.tool, effect, given)
    input_ = {"path": dict(path_args), "query": query, "body": _body_of(route, call)}
    return call, ToolAction(f"api.{route.name}", effect, {name: value for name, value in input_.items() if value})


def _settled(call: Call, action: ToolAction) -> Call:
    """The call with the version that was judged, so that no other is executed."""
    version = action.input.get("version")
    if isinstance(call.query, BaseModel) and "version" in type(call.query).model_fields and version is not None:
        return replace(call, query=call.query.model_copy(update={"version": version}))
    return call


def _body_of(route: Route, call: Call) -> Any:
    """The body as JSON; of one that holds secrets a digest that only this appliance can make."""
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
