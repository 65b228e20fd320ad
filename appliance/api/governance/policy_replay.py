"""/api/v1/policies/replay: which past calls a draft policy would have decided differently."""

import asyncio
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from appliance.api.frame.routing import READS, Body, Call, View, route
from appliance.core import clock
from appliance.core.errors import ConcurrencyLimited, InvalidCursor, NotFound, ValidationFailed
from appliance.governance.policies import MAX_LISTED, Policy, ReplayedCall, ReplayRequest, parse_policy, replay

DAYS_MS = 30 * 86_400_000
LONGEST_WAIT = 20.0
"""Seconds that a replay may wait to start; once started, it takes `MOST_SECONDS` at most."""
ReplayDecision = Literal["allow", "require_approval", "deny", "undecidable"]
PolicyName = Annotated[str, Field(max_length=63)]
VersionNumber = Annotated[int, Field(ge=1, le=10**9)]
Cursor = Annotated[str, Field(max_length=500)]


class ReplayPolicyBody(Body):
    """The policy to replay: the draft of `name`, its `version`, or a `policy` in the body. Default: calls of the last 30 days."""

    name: Annotated[PolicyName | None, Field(description=(
        "The stored policy whose draft, or `version`, is replayed; at most 63 characters. Absent if `policy` is sent."
    ))] = None
    version: Annotated[
        VersionNumber | None, Field(description="The number of a version of `name` to replay instead of its draft, from 1.")
    ] = None
    policy: Annotated[
        dict[str, Any] | None, Field(description="A policy document to replay without saving it; absent if `name` is sent.")
    ] = None
    since: Annotated[
        str | None, Field(description="Only calls made at or after this RFC 3339 time. Default: 30 days before `until`.")
    ] = None
    until: Annotated[str | None, Field(description="Only calls made before this RFC 3339 time. Default: now.")] = None
    limit: Annotated[int, Field(ge=1, le=MAX_LISTED, description="The most changed calls on a page, from 1 to 500.")] = 100
    cursor: Annotated[Cursor | None, Field(description=(
        "The `next_cursor` of the previous page, at most 500 characters; absent for the first page."
    ))] = None


class RejudgedView(View):
    """A call with its decision before and after, and the rules behind the latter; `unknown` lists what its record lacks."""

    call_id: Annotated[str, Field(description="Identifies the recorded call; `call_…`.")]
    integration: Annotated[str, Field(description="The slug of the integration that was called.")]
    action: Annotated[str, Field(description="The name of the integration's action.")]
    effect: Annotated[str, Field(description="The strongest effect that the action can have: `read`, `idempotent` or `write`.")]
    actor: Annotated[str, Field(description="Who made the call.")]
    at: Annotated[str, Field(description="When the call was made; RFC 3339, UTC.")]
    status: Annotated[str, Field(description="How far the call got: `queued`, `running`, `waiting`, `succeeded` or `failed`.")]
    before: Annotated[ReplayDecision, Field(description="The decision of the active policies, evaluated now.")]
    after: Annotated[ReplayDecision, Field(description="The decision with the draft enforced.")]
    rules: Annotated[list[str], Field(description="The rules behind `after`, as `policy/rule`.")]
    unknown: Annotated[list[str], Field(description=(
        "What each undetermined rule would have needed, which the record lacks; empty if all could be evaluated."
    ))]


class PolicyReplayView(View):
    """The result for the `scanned` calls, newest first, back to `oldest_at`; add up the counts of several pages.

    `undecidable` lists calls whose record does not contain enough to tell whether the draft changes the decision.
    """

    scanned: Annotated[int, Field(description="How many recorded calls this page evaluated.")]
    before: Annotated[dict[ReplayDecision, int], Field(description="The number of calls for each decision of the active policies.")]
    after: Annotated[dict[ReplayDecision, int], Field(description="The number of calls for each decision with the draft enforced.")]
    changed: Annotated[list[RejudgedView], Field(description="The calls whose decision the draft changes, newest first.")]
    undecidable_count: Annotated[
        int, Field(description="How many evaluated calls lack what a rule inspects, those not listed included.")
    ]
    undecidable: Annotated[
        list[RejudgedView], Field(description="The first calls whose record lacks what a rule inspects, newest first; at most 20.")
    ]
    oldest_at: Annotated[
        str | None, Field(description="When the oldest evaluated call was made; RFC 3339, UTC. Absent if no call was evaluated.")
    ] = None
    next_cursor: Annotated[str | None, Field(description="Sent as `cursor` to continue; absent after the last page.")] = None


@route(
    "POST", "/policies/replay", scope="policies.read", body=ReplayPolicyBody, returns=PolicyReplayView, atomic=False,
    acts=READS, errors=(ConcurrencyLimited, InvalidCursor, NotFound),
)  # fmt: skip
async def replay_policy(call: Call) -> PolicyReplayView:
    """Replay past calls against a draft policy.

    Compares how integration calls are decided now and how the draft would decide them.

    Every recorded call is evaluated twice: by the active policies, and with the draft enforced in place of the policy of the
    same name. A page ends after `limit` changed calls or when its time is up; continue with `next_cursor`. Refused calls are
    not recorded, so a replay cannot show what a more permissive draft would have allowed.
    Also needs the scope `integrations.read`. A tenant runs one replay at a time; further ones get 429 `concurrency_limited`.
    """
    call.scope.require("integrations.read")
    latest = clock.monotonic() + LONGEST_WAIT
    return await asyncio.wrap_future(call.services.governance.replays.submit(call.scope, partial(_replay, call, latest)))


def _replay(call: Call, latest: float) -> PolicyReplayView:
    if clock.monotonic() > latest:
        raise ConcurrencyLimited(
            "other tenants' replays are still running; try again in a few seconds", headers={"Retry-After": "5"}
        )
    body: ReplayPolicyBody = call.body
    now = clock.now_ms()
    until = clock.parse_rfc3339(body.until, pointer="/until") if body.until else now + 1
    since = clock.parse_rfc3339(body.since, pointer="/since") if body.since else until - DAYS_MS
    result = replay.replay(call.scope, _draft(call, body), ReplayRequest(since, until, body.limit, body.cursor))
    return PolicyReplayView(
        scanned=result.scanned, before=_counts(result.before), after=_counts(result.after),
        changed=[_view(each) for each in result.changed], undecidable_count=result.undecidable_count,
        undecidable=[_view(each) for each in result.undecidable],
        oldest_at=clock.optional_rfc3339(result.oldest_at), next_cursor=result.next_cursor,
    )  # fmt: skip


def _draft(call: Call, body: ReplayPolicyBody) -> Policy:
    if body.policy is not None and body.name is None and body.version is None:
        return parse_policy(body.policy, str(body.policy.get("name", "")))
    if body.policy is not None or body.name is None:
        raise ValidationFailed("send either `policy`, or `name` with an optional `version`", pointer="/policy")
    policies = call.services.governance.policies
    if body.version is not None:
        return parse_policy(policies.get_version(call.scope, body.name, body.version).document, body.name)
    return parse_policy(policies.get_policy(call.scope, body.name).draft, body.name)


def _counts(counts: Any) -> dict[ReplayDecision, int]:
    return dict(counts)


def _view(replayed: ReplayedCall) -> RejudgedView:
    call = replayed.call
    return RejudgedView(
        call_id=call.id, integration=call.integration, action=call.action, effect=call.effect, actor=call.actor,
        at=clock.rfc3339(call.created_at), status=call.status, before=replayed.before, after=replayed.after,
        rules=list(replayed.rules), unknown=list(replayed.unknown),
    )  # fmt: skip
