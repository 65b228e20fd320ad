"""What steps reach: DataPool and, through the governed executor, integrations."""

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import IdempotencyInFlight, PolicyDenied, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.datapool import service as datapool
from appliance.governance import Subject, subject_of, tainted
from appliance.governance.approvals import approvals
from appliance.governance.executor import MOST_SECONDS, ActionRequest, GovernedExecutor
from appliance.integrations import Origin
from appliance.processes.engine import tracing
from appliance.processes.engine.store import Claim

from . import tainting
from .reached import ActionCall

ASK_AGAIN_SECONDS = 0.2
MOST_VOIDED = 3
"""So often an action is asked for again because the policies changed while people decided."""


class DataPoolReach:
    """`api.datapool.*` and the `datapool` step: positional arguments as CONTRACT § 6 has them."""

    def perform(self, claim: Claim, method: str, args: list[Any]) -> Any:
        """The verb's answer as JSON."""
        return getattr(self, method.removeprefix("datapool."))(claim.scope, *_padded(method, args))

    def find(self, scope: TenantScope, collection: str, entity_id: Any) -> Any:
        return datapool.find_entity(scope, collection, _text(entity_id, "id"))

    def query(self, scope: TenantScope, collection: str, query: Any) -> Any:
        page = datapool.query_entities(scope, collection, query or {})
        return {"items": list(page.items), "next_cursor": page.next_cursor}

    def create(self, scope: TenantScope, collection: str, values: Any) -> Any:
        return datapool.create_entity(scope, collection, values)

    def update(self, scope: TenantScope, collection: str, entity_id: Any, values: Any) -> Any:
        return datapool.update_entity(scope, collection, _text(entity_id, "id"), values)

    def upsert(self, scope: TenantScope, collection: str, document: Any) -> Any:
        return datapool.upsert_entity(scope, collection, document).entity

    def delete(self, scope: TenantScope, collection: str, entity_id: Any) -> Any:
        datapool.delete_entity(scope, collection, _text(entity_id, "id"))

    def batch(self, scope: TenantScope, document: Any) -> Any:
        given = {"operations": document} if isinstance(document, list) else document
        if not isinstance(given, Mapping) or not set(given) <= {"operations", "dry_run"}:
            raise ValidationFailed("a batch is {operations: […], dry_run?}")
        outcomes = datapool.run_batch(scope, given.get("operations"), dry_run=given.get("dry_run") is True)
        return [{"event": each.event, "collection": each.collection, "entity": each.entity} for each in outcomes]


_ARGUMENTS = {"find": 2, "query": 2, "create": 2, "update": 3, "upsert": 2, "delete": 2, "batch": 1}


def _padded(method: str, args: list[Any]) -> list[Any]:
    """Exactly as many arguments as the verb takes; a missing query is the empty one."""
    wanted = _ARGUMENTS[method.removeprefix("datapool.")]
    if len(args) > wanted or len(args) < min(wanted, 1):
        raise ValidationFailed(
            Sentence("api.%(method)s takes %(wanted)s arguments, %(args)s were given", method=method, wanted=wanted, args=len(args))
        )
    return [*args, *[None] * (wanted - len(args))]


def _text(value: Any, name: str) -> str:
    if isinstance(value, str) and value:
        return value
    raise ValidationFailed(Sentence("%(name)s must be a text that is not empty", name=name), pointer=f"/{name}")


class ActionReach:
    """`api.integrations.execute` and the `integration` step."""

    def __init__(self, executor: GovernedExecutor) -> None:
        self._executor = executor
        self._pause = threading.Event()  # never set

    def execute(self, claim: Claim, call: ActionCall, seconds: float) -> Any:
        """The action's output; the idempotency key is `<execution>.<where>`, equal for every attempt.

        What was approved under policies that have changed since is judged anew, and asked for again where it needs that.
        """
        if not isinstance(call.input, Mapping):
            raise ValidationFailed(Sentence("the input of %(action)s must be an object", action=call.action))
        key = f"{claim.execution_id}.{call.where}"
        request = ActionRequest(
            call.integration, call.action, call.input, idempotency_key=key, origin=Origin(claim.execution_id, call.where),
            seconds=max(0.001, min(seconds, MOST_SECONDS)), documents=call.documents,
            approval_id=call.approval_id, subject=_subject(claim),
        )  # fmt: skip
        try:
            return self._perform(claim, call.step, request)
        except PolicyDenied as error:
            if not _is_out_of_date(request, error):
                raise
            _void(claim, request)
        return self._perform(claim, call.step, replace(request, approval_id=None))

    def _perform(self, claim: Claim, step: str, request: ActionRequest) -> Any:
        scope = tracing.scope_of_step(claim, step)
        ends = clock.monotonic() + request.seconds
        while True:
            try:
                return self._executor.execute(scope, request).output
            except IdempotencyInFlight:
                # The same call of a former run of this attempt is still under way: its answer will be this one's.
                if clock.monotonic() + ASK_AGAIN_SECONDS >= ends or self._pause.wait(ASK_AGAIN_SECONDS):
                    raise

    def preview(self, claim: Claim, call: ActionCall) -> str:
        """The effect of an action that may be called with this input; nothing is sent or recorded."""
        if not isinstance(call.input, Mapping):
            raise ValidationFailed(Sentence("the input of %(action)s must be an object", action=call.action))
        request = ActionRequest(call.integration, call.action, call.input, mode="preview", subject=_subject(claim))
        return self._executor.execute(claim.scope, request).effect


def _subject(claim: Claim) -> Subject:
    """The execution as policies see it now: tainted by what the agents had read whose answers it goes on with."""
    return tainted(subject_of(claim.scope), *tainting.sources_of(claim.scope, claim.execution_id))


def _is_out_of_date(request: ActionRequest, error: PolicyDenied) -> bool:
    """Whether the approval is of this very action, judged by policies that are others now."""
    extra = error.extra
    return request.approval_id is not None and extra.get("reason") == "digest_differs" and extra.get("changed") == ["policy"]


def _void(claim: Claim, request: ActionRequest) -> None:
    """The approval holds no more, and the audit trail says why; PolicyDenied when that has happened too often here."""
    scope, old = claim.scope, approvals.get_approval(claim.scope, str(request.approval_id))
    place = old.origin

    def void() -> int:
        approvals.withdraw_approval(scope, old.id, "policies_changed")
        sql = (
            "SELECT COUNT(*) FROM approval WHERE tenant_id = ? AND execution_id = ? AND path = ? AND iteration = ? "
            "AND host_call = ? AND status = 'cancelled'"
        )
        ((count,),) = db.rows(sql, (scope.tenant_id, place.execution_id, place.path, place.iteration, place.call))
        return int(count)

    if db.write(void) > MOST_VOIDED:
        told = Sentence(
            "the policies changed %(most_voided)s times while people decided about %(action)s of %(integration)s",
            most_voided=MOST_VOIDED + 1, action=request.action, integration=request.integration,
        )
        message = Sentence("%(told)s; let them settle, then retry from the failed step", told=told)
        raise PolicyDenied(message, extra={"reason": "policies_changed", "approval_id": old.id})
