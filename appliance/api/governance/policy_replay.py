"""/api/v1/policies/replay: what a draft would have changed."""

import asyncio
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from appliance.api.frame.routing import READS, Body, Call, View, route
from appliance.core import clock
from appliance.core.errors import ConcurrencyLimited, ValidationFailed
from appliance.governance.policies import MOST_SHOWN, Policy, Rejudged, ReplayRequest, parse_policy, replay

DAYS_MS = 30 * 86_400_000
LONGEST_WAIT = 20.0
"""Seconds that a replay waits for its turn; it takes `MOST_SECONDS` at most once it has begun."""
Known = Literal["allow", "require_approval", "deny", "undecidable"]


class ReplayPolicyBody(Body):
    """The draft of `name`, or its `version`, or a `policy` that is sent along; by default the calls of the last 30 days."""

    name: Annotated[str, Field(max_length=63)] | None = None
    version: Annotated[int, Field(ge=1, le=10**9)] | None = None
    policy: dict[str, Any] | None = None
    since: str | None = None
    until: str | None = None
    limit: Annotated[int, Field(ge=1, le=MOST_SHOWN)] = 100
    cursor: Annotated[str, Field(max_length=500)] | None = None


class RejudgedView(View):
    """A call with its verdict before and after, and the rules that decide then; `unknown` is what its record does not say."""

    call_id: str
    integration: str
    action: str
    effect: str
    actor: str
    at: str
    status: str
    before: Known
    after: Known
    rules: list[str]
    unknown: list[str]


class PolicyReplayView(View):
    """What was found of the `scanned` calls, newest first, back to `oldest_at`; the counts of several pages add up.

    `undecidable` calls are those of which the record does not say enough to tell whether the draft changes them.
    """

    scanned: int
    before: dict[Known, int]
    after: dict[Known, int]
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
    """Say what a draft would have changed of the integration calls that were made.

    Every recorded call is judged by what is active now, and by the same with the draft enforced in the place of the policy
    of its name. A page ends at `limit` changed calls, or when it has taken long enough; `next_cursor` leads on. Calls that
    were refused left no record, so a draft that allows more shows nothing of them.
    Needs integrations.read as well. One replay of a tenant runs at a time; 429 `concurrency_limited` meanwhile.
    """
    call.scope.require("integrations.read")
    latest = clock.monotonic() + LONGEST_WAIT
    return await asyncio.wrap_future(call.services.replays.submit(call.scope, partial(_replay, call, latest)))


def _replay(call: Call, latest: float) -> PolicyReplayView:
    if clock.monotonic() > latest:
        raise ConcurrencyLimited("the replays of other tenants took too long; ask again in a moment", headers={"Retry-After": "5"})
    body: ReplayPolicyBody = call.body
    now = clock.now_ms()
    until = clock.parse_rfc3339(body.until, pointer="/until") if body.until else now + 1
    since = clock.parse_rfc3339(body.since, pointer="/since") if body.since else until - DAYS_MS
    found = replay.replay(call.scope, _draft(call, body), ReplayRequest(since, until, body.limit, body.cursor))
    return PolicyReplayView(
        scanned=found.scanned, before=_counts(found.before), after=_counts(found.after),
        changed=[_view(each) for each in found.changed], undecidable_count=found.undecidable_count,
        undecidable=[_view(each) for each in found.undecidable],
        oldest_at=clock.optional_rfc3339(found.oldest_at), next_cursor=found.next_cursor,
    )  # fmt: skip


def _draft(call: Call, body: ReplayPolicyBody) -> Policy:
    if body.policy is not None and body.name is None and body.version is None:
        return parse_policy(body.policy, str(body.policy.get("name", "")))
    if body.policy is not None or body.name is None:
        raise ValidationFailed("send a policy, or the name of one and perhaps its version", pointer="/policy")
    policies = call.services.policies
    if body.version is not None:
        return parse_policy(policies.get_version(call.scope, body.name, body.version).document, body.name)
    return parse_policy(policies.get_policy(call.scope, body.name).draft, body.name)


def _counts(found: Any) -> dict[Known, int]:
    return dict(found)


def _view(judged: Rejudged) -> RejudgedView:
    call = judged.call
    return RejudgedView(
        call_id=call.id, integration=call.integration, action=call.action, effect=call.effect, actor=call.actor,
        at=clock.rfc3339(call.created_at), status=call.status, before=judged.before, after=judged.after,
        rules=list(judged.rules), unknown=list(judged.unknown),
    )  # fmt: skip
