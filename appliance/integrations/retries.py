"""Retries of failed calls: each is a separate record that refers to the first, sent with the first one's key."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from appliance.connectors.contract import Effect
from appliance.core import clock, ids
from appliance.core.errors import Conflict, NotFound
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.integrations.models import CallRow, IntegrationRow

_USUAL_SECONDS = 30.0


@dataclass(frozen=True)
class RetryRequest:
    """The request of a failed call."""

    action: str
    input: dict[str, Any]
    seconds: float


def digest_of(action: str, input_values: Mapping[str, Any]) -> str:
    """A digest of an action and its input, independent of the order of members."""
    canonical = json.dumps([action, dict(input_values)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def latest_of(scope: TenantScope, row: CallRow) -> CallRow:
    """The latest retry of a call, or the call itself."""
    while (following := scope.find(CallRow, retry_of=row.id)) is not None:
        row = following
    return row


def get_retry_request(scope: TenantScope, slug: str, call_id: str) -> RetryRequest:
    """The request of a failed call.  NotFound; Conflict if it must not be repeated, or its input is incomplete."""
    row = _row(scope, slug, call_id)
    _check(scope, row, row.effect)
    if not isinstance(row.input, dict) or digest_of(row.action, row.input) != row.request_digest:
        raise Conflict(Sentence(
            "the input of the call %(call_id)s was too large to store, or contained a secret that was redacted; send "
            "a new call instead",
            call_id=call_id,
        ))
    seconds = (row.deadline_at - (row.started_at or row.created_at)) / 1000
    return RetryRequest(row.action, row.input, seconds if seconds > 0 else _USUAL_SECONDS)


def enqueue_retry(scope: TenantScope, slug: str, call_id: str, request: RetryRequest, effect: Effect) -> str:
    """Inside a write: queue a retry of a call; returns its id.  Errors as `get_retry_request`."""
    row = _row(scope, slug, call_id)
    _check(scope, row, effect)
    retry_id, now = ids.new("call"), clock.now_ms()
    columns = ("integration_id", "connector", "action", "input", "request_digest", "sent_key")
    place = ("execution_id", "path", "iteration", "attempt", "host_call")
    scope.insert(
        CallRow, id=retry_id, retry_of=row.id, status="queued", effect=effect, owner="", tries=0, created_at=now,
        deadline_at=now + int(request.seconds * 1000), output_kept=1, actor=scope.actor, request_id=scope.request_id,
        **{name: getattr(row, name) for name in (*columns, *place)},
    )  # fmt: skip
    return retry_id


def _check(scope: TenantScope, row: CallRow, effect: str) -> None:
    if row.status == "waiting":
        raise Conflict(
            Sentence("the outcome of the call %(id)s is unknown; check the foreign system and settle the call first", id=row.id)
        )
    if row.status != "failed":
        raise Conflict(Sentence("the call %(id)s is %(status)s; only a failed call can be retried", id=row.id, status=row.status))
    if "write" in (effect, row.effect) and row.outcome != "not_done":
        raise Conflict(
            Sentence("the call %(id)s may have changed something in the foreign system, so it is not sent again", id=row.id)
        )
    if following := scope.find(CallRow, retry_of=row.id):
        raise Conflict(
            Sentence("the call %(id)s was already retried as %(id2)s; retry that one if it failed", id=row.id, id2=following.id)
        )


def _row(scope: TenantScope, slug: str, call_id: str) -> CallRow:
    row = scope.find(CallRow, id=call_id, integration_id=slug)
    if row is None:
        scope.get(IntegrationRow, id=slug)
        raise NotFound(Sentence("there is no call %(call_id)s of this integration", call_id=repr(call_id[:80])))
    return row
