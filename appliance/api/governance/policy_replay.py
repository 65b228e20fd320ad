"""/api/v1/policies/replay: which past calls a draft policy would have decided differently."""

import asyncio
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from appliance.api.frame.routing import READS, Body, Call, View, route
from appliance.core import clock
from appliance.core.errors import ConcurrencyLimited, ValidationFailed
from appliance.governance.policies import MAX_LISTED, Policy, ReplayedCall, ReplayRequest, parse_policy, replay

DAYS_MS = 30 * 86_400_000
LONGEST_WAIT = 20.0
"""Seconds that a replay may wait to start; once started, it takes `MOST_SECONDS` at most."""
ReplayDecision = Literal["allow", "require_approval", "deny", "undecidable"]


class ReplayPolicyBody(Body):
    """The policy to replay: the draft of `name`, its `version`, or a `policy` in the body. Default: calls of the last 30 days."""

    name: Annotated[str, Field(max_length=63)] | None = None
    version: Annotated[int, Field(ge=1, le=10**9)] | None = None
    policy: dict[str, Any] | None = None
    since: str | None = None
    until: str | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_LISTED)] = 100
    cursor: Annotated[str, Field(max_length=500)] | None = None


class RejudgedView(View):
    """A call with its decision before and after, and the rules behind the latter; `unknown` lists what its record lacks."""

    call_id: str
    integration: str
    action: str
    effect: str
    actor: str
    at: str
    status: str
    before: ReplayDecision
    after: ReplayDecision
    rules: list[str]
    unknown: list[str]


class PolicyReplayView(View):
    """The result for the `scanned` calls, newest first, back to `oldest_at`; add up the counts of several pages.

    `undecidable` lists calls whose record does not contain enough to tell whether the draft changes the decision.
    """

    scanned: int
    before: dict[ReplayDecision, int]
    after: dict[ReplayDecision, int]
    changed: list[RejudgedView]
    undecidable_count: int
    undecidable: list[RejudgedView]
    oldest_at: str | None = None
    next_cursor: str | None = None


@route(
    "POST", "/policies/replay", scope="policies.read", body=ReplayPolicyBody, returns=PolicyReplayView, atomic=False,
    acts=READS,
)  # fmt: skip
async def replay_policy(call: Call) -> PolicyReplayView:
    """Compare how past integration calls are decided now and how a draft policy would decide them.

    Every recorded call is evaluated twice: by the active policies, and with the draft enforced in place of the policy of the
    same name. A page ends after `limit` changed calls or when its time is up; continue with `next_cursor`. Refused calls are
    not recorded, so a replay cannot show what a more permissive draft would have allowed.
    Also needs the scope `integrations.read`. A tenant runs one replay at a time; further ones get 429 `concurrency_limited`.
    """
    call.scope.require("integrations.read")
    latest = clock.monotonic() + LONGEST_WAIT
    return await asyncio.wrap_future(call.services.replays.submit(call.scope, partial(_replay, call, latest)))


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
    policies = call.services.policies
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
