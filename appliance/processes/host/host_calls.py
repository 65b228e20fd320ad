"""Host calls of steps to the DataPool and, through the governed executor, to integrations."""

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
from appliance.governance import Subject, add_taint, subject_of
from appliance.governance.approvals import approvals, count_withdrawn
from appliance.governance.executor import MOST_SECONDS, ActionRequest, GovernedExecutor
from appliance.integrations import Origin
from appliance.processes.engine import tracing
from appliance.processes.engine.store import Claim

from . import tainting
from .protocols import ActionCall

ASK_AGAIN_SECONDS = 0.2
MAX_REAPPROVALS = 3
"""How often the approval of one action is requested again because the policies changed in the meantime."""


class DataPoolCalls:
    """`api.datapool.*` and the `datapool` step, with the positional arguments of docs/contract.md § 6."""

    def perform(self, claim: Claim, method: str, args: list[Any]) -> Any:
        """Performs `datapool.<verb>` and returns its answer as JSON."""
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
        batch = {"operations": document} if isinstance(document, list) else document
        if not isinstance(batch, Mapping) or not set(batch) <= {"operations", "dry_run"}:
            raise ValidationFailed("a batch is {operations: […], dry_run?}")
        results = datapool.run_batch(scope, batch.get("operations"), dry_run=batch.get("dry_run") is True)
        return [{"event": each.event, "collection": each.collection, "entity": each.entity} for each in results]


_ARGUMENTS = {"find": 2, "query": 2, "create": 2, "update": 3, "upsert": 2, "delete": 2, "batch": 1}


def _padded(method: str, args: list[Any]) -> list[Any]:
    """Pads the arguments with None to the number that the verb takes; raises ValidationFailed for too many or none."""
    count = _ARGUMENTS[method.removeprefix("datapool.")]
    if len(args) > count or len(args) < min(count, 1):
        raise ValidationFailed(
            Sentence("api.%(method)s takes %(wanted)s arguments, %(args)s were given", method=method, wanted=count, args=len(args))
        )
    return [*args, *[None] * (count - len(args))]


def _text(value: Any, name: str) -> str:
    if isinstance(value, str) and value:
        return value
    raise ValidationFailed(Sentence("%(name)s must be a text that is not empty", name=name), pointer=f"/{name}")


class IntegrationCalls:
    """`api.integrations.execute` and the `integration` step."""

    def __init__(self, executor: GovernedExecutor) -> None:
        self._executor = executor
        self._pause = threading.Event()  # never set

    def execute(self, claim: Claim, call: ActionCall, seconds: float) -> Any:
        """The action's output; the idempotency key is `<execution>.<where>`, the same for every attempt.

        If the policies have changed since the action was approved, it is evaluated again and a new approval is requested
        where they demand one.
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
            _withdraw_approval(claim, request)
        return self._perform(claim, call.step, replace(request, approval_id=None))

    def _perform(self, claim: Claim, step: str, request: ActionRequest) -> Any:
        scope = tracing.scope_of_step(claim, step)
        ends = clock.monotonic() + request.seconds
        while True:
            try:
                return self._executor.execute(scope, request).output
            except IdempotencyInFlight:
                # An earlier run of this attempt has sent the same call, which is still in flight: wait for its answer.
                if clock.monotonic() + ASK_AGAIN_SECONDS >= ends or self._pause.wait(ASK_AGAIN_SECONDS):
                    raise

    def preview(self, claim: Claim, call: ActionCall) -> str:
        """The effect that the action would have with this input; nothing is sent or recorded."""
        if not isinstance(call.input, Mapping):
            raise ValidationFailed(Sentence("the input of %(action)s must be an object", action=call.action))
        request = ActionRequest(call.integration, call.action, call.input, mode="preview", subject=_subject(claim))
        return self._executor.execute(claim.scope, request).effect


def _subject(claim: Claim) -> Subject:
    """The execution as a policy subject, tainted by the sources read by agents whose answers it uses."""
    return add_taint(subject_of(claim.scope), *tainting.sources_of(claim.scope, claim.execution_id))


def _is_out_of_date(request: ActionRequest, error: PolicyDenied) -> bool:
    """Whether the approval fits this action except that the policies have changed since."""
    extra = error.extra
    return request.approval_id is not None and extra.get("reason") == "digest_differs" and extra.get("changed") == ["policy"]


def _withdraw_approval(claim: Claim, request: ActionRequest) -> None:
    """Withdraws an approval made under old policies; raises PolicyDenied when that has happened too often for this call."""
    scope, old = claim.scope, approvals.get_approval(claim.scope, str(request.approval_id))

    def withdraw() -> int:
        approvals.withdraw_approval(scope, old.id, "policies_changed")
        return count_withdrawn(scope, old.origin)

    if db.write(withdraw) > MAX_REAPPROVALS:
        reason = Sentence(
            "the policies changed %(most_voided)s times while people decided about %(action)s of %(integration)s",
            most_voided=MAX_REAPPROVALS + 1, action=request.action, integration=request.integration,
        )
        message = Sentence("%(reason)s; once they no longer change, retry from the failed step", reason=reason)
        raise PolicyDenied(message, extra={"reason": "policies_changed", "approval_id": old.id})
