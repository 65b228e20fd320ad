"""/api/v1/policies: policies with their drafts and versions, and the evaluation of actions."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from appliance.api.frame.routing import READS, Answer, Body, Call, Json, Query, View, route
from appliance.api.processes.processes import version_number
from appliance.api.tenants.tenants import DeletedView
from appliance.connectors.contract import Effect
from appliance.core import clock
from appliance.core.pages import Page
from appliance.governance import Credential, SkillUsed, Subject, Via, credential_of
from appliance.governance.policies import (
    CompiledPolicies,
    Decision,
    Facts,
    Finding,
    Mode,
    PolicyChange,
    PolicyVersion,
    StoredPolicy,
    ToolAction,
    Verdict,
    decide,
    diff_policies,
    explain,
    parse_policy,
)

POLICY = Json("document", "A policy: `mode` and `rules`, see docs/policies.md and the schema of policies/<name>.yaml.")
Name = Annotated[str, Field(max_length=300)]


class PolicyView(View):
    """A policy with its draft; `active_version` is absent while no version is active, and `is_draft_active` says whether the
    active version equals the draft."""

    name: str
    active_version: int | None = None
    is_draft_active: bool
    draft: dict[str, Any]
    draft_digest: str
    created_at: str
    created_by: str
    updated_at: str
    updated_by: str


class PolicyVersionView(View):
    """An immutable version of a policy, which is `active` or `retired`."""

    policy: str
    version: int
    state: Literal["active", "retired"]
    mode: Mode
    document: dict[str, Any]
    digest: str
    message: str
    created_at: str
    created_by: str
    activated_at: str | None = None
    activated_by: str | None = None


class ActivateBody(Body):
    """`version` is an earlier version to return to; without it, the draft becomes a version.  `digest` is the digest of the
    document you have reviewed."""

    version: Annotated[int, Field(ge=1, le=10**9)] | None = None
    digest: Annotated[str, Field(max_length=100)] | None = None
    message: Annotated[str, Field(max_length=500)] = ""


class DifferenceQuery(Query):
    against: Annotated[int, Field(ge=1, le=10**9)] | Literal["active"] = "active"


class PolicyChangeView(View):
    """One change: of a member of the policy or of the rule `rule`, or of the whole rule."""

    happened: Literal["added", "removed", "changed"]
    rule: str | None = None
    member: str | None = None
    before: Any = None
    after: Any = None


class PolicyDifferenceView(View):
    """The changes from `from` to `to`; `from` is absent when no version is active."""

    model_config = ConfigDict(serialize_by_alias=True, populate_by_name=True)

    from_: Annotated[int | None, Field(alias="from")] = None
    to: Literal["draft"]
    identical: bool
    changes: list[PolicyChangeView]


class SkillBody(Body):
    name: Name
    digest: Name = ""
    trusted: bool = False


class SubjectBody(Body):
    """The caller to evaluate: `actor` defaults to you, `credential` is the kind of key."""

    actor: Name | None = None
    via: Via = "rest"
    credential: Credential | None = None
    agent: Name = ""
    run_id: Name = ""
    skills: Annotated[list[SkillBody], Field(max_length=100, default_factory=list)]
    tainted_by: Annotated[list[Name], Field(max_length=100, default_factory=list)]


class ActionBody(Body):
    """The action to evaluate."""

    tool: Name = "execute_tenant_integration"
    effect: Effect
    input: Annotated[dict[str, Any], Field(default_factory=dict)]
    integration: Name = ""
    operation: Name = ""
    connector: Name = ""
    host: Name = ""
    credential: Name = ""


class EvaluateBody(Body):
    """`policy` is evaluated as if it were active, in place of the active policy of the same name."""

    subject: Annotated[SubjectBody, Field(default_factory=lambda: SubjectBody.model_validate({}))]
    action: ActionBody
    policy: dict[str, Any] | None = None


class ObligationsView(View):
    """The conditions attached to a permission."""

    approvers: list[str]
    needed: int
    ttl_seconds: int
    redact: list[str]
    calls_per_hour: int | None = None
    calls_per_run: int | None = None
    cost_per_run: float | None = None
    dry_run_first: bool


class FindingView(View):
    """A rule and whether it matches: `because` names the member that does not match, `fault` why evaluating it failed."""

    rule: str
    effect: Verdict
    mode: Mode
    holds: bool
    because: str | None = None
    fault: str | None = None


class EvaluationView(View):
    """The decision, the decision if policies in observe mode were enforced, and every active rule, matching ones first."""

    verdict: Verdict
    reasons: list[str]
    rules: list[str]
    obligations: ObligationsView
    would_be: Verdict | None = None
    would_be_rules: list[str]
    policy_version: str
    findings: list[FindingView]


def policy_view(policy: StoredPolicy, active_digest: str | None) -> PolicyView:
    return PolicyView(
        name=policy.name, active_version=policy.active_version, is_draft_active=policy.draft_digest == active_digest,
        draft=dict(policy.draft), draft_digest=policy.draft_digest, created_at=clock.rfc3339(policy.created_at),
        created_by=policy.created_by, updated_at=clock.rfc3339(policy.updated_at), updated_by=policy.updated_by,
    )  # fmt: skip


def version_view(version: PolicyVersion) -> PolicyVersionView:
    activated_at = None if version.activated_at is None else clock.rfc3339(version.activated_at)
    return PolicyVersionView(
        policy=version.policy, version=version.number, state=version.state, mode=version.mode, document=dict(version.document),
        digest=version.digest, message=version.message, created_at=clock.rfc3339(version.created_at), created_by=version.created_by,
        activated_at=activated_at, activated_by=version.activated_by,
    )  # fmt: skip


def evaluation_view(decision: Decision, findings: list[Finding]) -> EvaluationView:
    obligations = decision.obligations
    return EvaluationView(
        verdict=decision.verdict, reasons=list(decision.reasons), rules=list(decision.rules), would_be=decision.would_be,
        obligations=ObligationsView(
            approvers=list(obligations.approvers), needed=obligations.needed, ttl_seconds=obligations.ttl_seconds,
            redact=list(obligations.redact), calls_per_hour=obligations.calls_per_hour,
            calls_per_run=obligations.calls_per_run, cost_per_run=obligations.cost_per_run, dry_run_first=obligations.dry_run_first,
        ),
        would_be_rules=list(decision.would_be_rules), policy_version=decision.version,
        findings=[
            FindingView(
                rule=each.rule, effect=each.effect, mode=each.mode, holds=each.holds, because=each.because or None,
                fault=each.fault or None,
            )
            for each in findings
        ],
    )  # fmt: skip


def _view(call: Call, policy: StoredPolicy) -> PolicyView:
    version = policy.active_version
    active = None if version is None else call.services.policies.get_version(call.scope, policy.name, version)
    return policy_view(policy, active.digest if active else None)


@route("GET", "/policies", scope="policies.read", returns=PolicyView, listed=True)
def list_policies(call: Call) -> Page[PolicyView]:
    """List the tenant's policies."""
    return call.services.policies.list_policies(call.scope, call.query.page).map(lambda stored: _view(call, stored))


@route("GET", "/policies/{policy}", scope="policies.read", returns=PolicyView)
def get_policy(call: Call, policy: str) -> Answer:
    """Show a policy with its draft."""
    stored = call.services.policies.get_policy(call.scope, policy)
    return Answer(_view(call, stored), etag=stored.draft_digest)


@route("PUT", "/policies/{policy}", scope="policies.write", body=POLICY, returns=PolicyView, also={201: PolicyView})
def put_policy(call: Call, policy: str) -> Answer:
    """Create a policy or replace its draft; a draft has no effect until it is activated.

    If the draft is invalid, the error lists every problem with a JSON pointer. With If-Match, the draft must still have that
    ETag.
    """
    stored, is_new = call.services.policies.save_draft(call.scope, policy, call.body.data, if_digest=call.if_match)
    headers = {"Location": f"/api/v1/policies/{stored.name}"} if is_new else {}
    return Answer(_view(call, stored), status=201 if is_new else 200, headers=headers, etag=stored.draft_digest)


@route("DELETE", "/policies/{policy}", scope="policies.write", returns=DeletedView)
def delete_policy(call: Call, policy: str) -> DeletedView:
    """Delete a policy with its versions; refused while one of them is active."""
    call.services.policies.delete_policy(call.scope, policy)
    return DeletedView(deleted=policy)


@route("GET", "/policies/{policy}/versions", scope="policies.read", returns=PolicyVersionView, listed=True)
def list_policy_versions(call: Call, policy: str) -> Page[PolicyVersionView]:
    """List the versions of a policy, newest first."""
    return call.services.policies.list_versions(call.scope, policy, call.query.page).map(version_view)


@route("GET", "/policies/{policy}/versions/{version}", scope="policies.read", returns=PolicyVersionView)
def get_policy_version(call: Call, policy: str, version: str) -> PolicyVersionView:
    """Show one version of a policy."""
    return version_view(call.services.policies.get_version(call.scope, policy, version_number(version)))


@route("GET", "/policies/{policy}/diff", scope="policies.read", query=DifferenceQuery, returns=PolicyDifferenceView)
def get_policy_diff(call: Call, policy: str) -> PolicyDifferenceView:
    """Compare the draft with the `active` version, or with another version by its number."""
    stored = call.services.policies.get_policy(call.scope, policy)
    number = stored.active_version if call.query.against == "active" else call.query.against
    before = {} if number is None else call.services.policies.get_version(call.scope, policy, number).document
    changes = diff_policies(before, stored.draft)
    return PolicyDifferenceView(from_=number, to="draft", identical=not changes, changes=[_change_view(each) for each in changes])


def _change_view(change: PolicyChange) -> PolicyChangeView:
    return PolicyChangeView(
        happened=change.happened, rule=change.rule or None, member=change.member or None, before=change.before, after=change.after
    )


@route("POST", "/policies/{policy}/activate", scope="policies.write", body=ActivateBody, returns=PolicyVersionView)
def activate_policy(call: Call, policy: str) -> PolicyVersionView:
    """Activate a version of a policy, at once and in every process of the appliance.

    Without `version`, the draft becomes the next version, unless it equals the newest one. With `digest`, the call is refused
    when the document to activate has another digest.
    """
    body: ActivateBody = call.body
    version = call.services.policies.activate(
        call.scope, policy, version=body.version, message=body.message, if_digest=body.digest
    )  # fmt: skip
    return version_view(version)


@route("POST", "/policies/{policy}/deactivate", scope="policies.write", returns=PolicyView)
def deactivate_policy(call: Call, policy: str) -> PolicyView:
    """Deactivate a policy, so that none of its rules apply; the defaults apply in their place."""
    return _view(call, call.services.policies.deactivate(call.scope, policy))


@route("POST", "/policies/evaluate", scope="policies.read", body=EvaluateBody, returns=EvaluationView, acts=READS)
def evaluate_policies(call: Call) -> EvaluationView:
    """Explain how policies would decide an action, without executing it.

    Only rules are evaluated, not kill switches and budgets. With `policy`, a draft is evaluated as if it were active.
    """
    body: EvaluateBody = call.body
    facts = Facts(_subject(call, body.subject), ToolAction(**body.action.model_dump()))
    policies = call.services.policies.compiled(call.scope)
    if body.policy is not None:
        draft = parse_policy(body.policy, str(body.policy.get("name", "")))
        policies = call.services.policies.compiled_with(call.scope, draft)
    return evaluate(policies, facts)


def evaluate(policies: CompiledPolicies, facts: Facts) -> EvaluationView:
    return evaluation_view(decide(policies, facts), explain(policies, facts))


def _subject(call: Call, body: SubjectBody) -> Subject:
    skills = tuple(SkillUsed(each.name, each.digest, each.trusted) for each in body.skills)
    actor = body.actor if body.actor is not None else call.scope.actor
    credential = body.credential or (credential_of(call.scope) if body.actor is None else "")
    return Subject(actor, body.via, body.agent, body.run_id, skills, tuple(body.tainted_by), credential)
