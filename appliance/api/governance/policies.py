"""/api/v1/policies: policies with their drafts and versions, and the evaluation of actions."""

from typing import Annotated, Any, Literal

from pydantic import Field

from appliance.api.frame.routing import READS, Answer, Body, Call, Json, Query, route
from appliance.api.processes.processes import version_number
from appliance.api.tenants.tenants import DeletedView
from appliance.connectors.contract import Effect
from appliance.core.errors import Conflict, ValidationFailed, VersionConflict
from appliance.core.pages import Page
from appliance.governance import Credential, SkillUsed, Subject, Via, credential_of
from appliance.governance.policies import (
    CompiledPolicies,
    Facts,
    PolicyChange,
    StoredPolicy,
    ToolAction,
    decide,
    diff_policies,
    explain,
    parse_policy,
)

from .policy_views import (
    EvaluationView,
    PolicyChangeView,
    PolicyDifferenceView,
    PolicyVersionView,
    PolicyView,
    evaluation_view,
    policy_view,
    version_view,
)

POLICY = Json("document", "A policy: `mode` and `rules`, see docs/policies.md and the schema of policies/<name>.yaml.")
Name = Annotated[str, Field(max_length=300)]
VersionNumber = Annotated[int, Field(ge=1, le=10**9)]
Digest = Annotated[str, Field(max_length=100)]


class ActivateBody(Body):
    """`version` is an earlier version to return to; without it, the draft becomes a version.  `digest` is the digest of the
    document you have reviewed."""

    version: Annotated[VersionNumber | None, Field(description=(
        "The number of an earlier version to return to, from 1; absent to make a version of the draft."
    ))] = None
    digest: Annotated[Digest | None, Field(description=(
        "The digest of the document that you reviewed, at most 100 characters; another document is then refused."
    ))] = None
    message: Annotated[
        str, Field(max_length=500, description="A note about the change, kept with the version; at most 500 characters.")
    ] = ""


class DifferenceQuery(Query):
    against: Annotated[VersionNumber | Literal["active"], Field(description=(
        "What to compare the draft with: the number of a version, or `active`."
    ))] = "active"


class SkillBody(Body):
    name: Annotated[Name, Field(description="The skill that the run has loaded; at most 300 characters.")]
    digest: Annotated[
        Name, Field(description="The digest of the skill's files, at most 300 characters; empty if it does not matter.")
    ] = ""
    trusted: Annotated[bool, Field(description="Whether a person trusts the skill.")] = False


class SubjectBody(Body):
    """The caller to evaluate: `actor` defaults to you, `credential` is the kind of key."""

    actor: Annotated[
        Name | None, Field(description="Who acts, as the audit trail names them; at most 300 characters. Default: you.")
    ] = None
    via: Annotated[Via, Field(description="The edge through which the action arrives.")] = "rest"
    credential: Annotated[Credential | None, Field(description=(
        "The kind of API key used; absent for that of your own key, or for none if `actor` is sent."
    ))] = None
    agent: Annotated[Name, Field(description="The agent that acts, at most 300 characters; empty if none does.")] = ""
    run_id: Annotated[Name, Field(description="The agent run that acts; `run_…`, at most 300 characters. Empty if none does.")] = ""
    skills: Annotated[
        list[SkillBody], Field(max_length=100, default_factory=list, description="The skills that the run has loaded, at most 100.")
    ]
    tainted_by: Annotated[list[Name], Field(max_length=100, default_factory=list, description=(
        "The sources outside the tenant whose content the run has read, at most 100."
    ))]


class ActionBody(Body):
    """The action to evaluate."""

    tool: Annotated[Name, Field(description=(
        "The tool that would be called, at most 300 characters; the default covers every action of an integration."
    ))] = "execute_tenant_integration"
    effect: Annotated[Effect, Field(description=(
        "The strongest effect that the action can have: it only reads, can be repeated safely, or writes."
    ))]
    input: Annotated[
        dict[str, Any], Field(default_factory=dict, description="The arguments that rules inspect, as the tool would receive them.")
    ]
    integration: Annotated[
        Name, Field(description="The slug of the integration, at most 300 characters; empty for a tool that uses none.")
    ] = ""
    operation: Annotated[
        Name, Field(description="The name of the integration's action, at most 300 characters; empty for a tool without one.")
    ] = ""
    connector: Annotated[
        Name, Field(description="The connector with its version, at most 300 characters; empty if no rule inspects it.")
    ] = ""
    host: Annotated[Name, Field(description=(
        "The host that would be called, at most 300 characters; empty for a tool that stays inside the appliance."
    ))] = ""
    credential: Annotated[Name, Field(description=(
        "A reference to the credential that would be used, never the secret itself; at most 300 characters."
    ))] = ""


class EvaluateBody(Body):
    """`policy` is evaluated as if it were active, in place of the active policy of the same name."""

    subject: Annotated[SubjectBody, Field(default_factory=lambda: SubjectBody.model_validate({}), description=(
        "Who would act; by default you, through REST."
    ))]
    action: Annotated[ActionBody, Field(description="What the subject would do.")]
    policy: Annotated[dict[str, Any] | None, Field(description=(
        "A policy document with `name`, `mode` and `rules` to try out; absent to use only the active policies."
    ))] = None


def _view(call: Call, policy: StoredPolicy) -> PolicyView:
    version = policy.active_version
    active = None if version is None else call.services.governance.policies.get_version(call.scope, policy.name, version)
    return policy_view(policy, active.digest if active else None)


@route("GET", "/policies", scope="policies.read", returns=PolicyView, listed=True)
def list_policies(call: Call) -> Page[PolicyView]:
    """List the tenant's policies.

    Those without an active version, which decide nothing, are included.
    """
    return call.services.governance.policies.list_policies(call.scope, call.query.page).map(lambda stored: _view(call, stored))


@route("GET", "/policies/{policy}", scope="policies.read", returns=PolicyView)
def get_policy(call: Call, policy: str) -> Answer:
    """Show a policy with its draft.

    The draft has no effect until it is activated; `active_version` is the number of the one that decides now.
    """
    stored = call.services.governance.policies.get_policy(call.scope, policy)
    return Answer(_view(call, stored), etag=stored.draft_digest)


@route(
    "PUT", "/policies/{policy}", scope="policies.write", body=POLICY, returns=PolicyView, also={201: PolicyView},
    errors=(Conflict,),
)  # fmt: skip
def put_policy(call: Call, policy: str) -> Answer:
    """Create a policy or replace its draft.

    A draft has no effect until it is activated.

    If the draft is invalid, the error lists every problem with a JSON pointer. With If-Match, the draft must still have that
    ETag.
    """
    stored, is_new = call.services.governance.policies.save_draft(call.scope, policy, call.body.data, if_digest=call.if_match)
    headers = {"Location": f"/api/v1/policies/{stored.name}"} if is_new else {}
    return Answer(_view(call, stored), status=201 if is_new else 200, headers=headers, etag=stored.draft_digest)


@route("DELETE", "/policies/{policy}", scope="policies.write", returns=DeletedView, errors=(Conflict,))
def delete_policy(call: Call, policy: str) -> DeletedView:
    """Delete a policy with its versions.

    Refused while one of them is active.
    """
    call.services.governance.policies.delete_policy(call.scope, policy)
    return DeletedView(deleted=policy)


@route("GET", "/policies/{policy}/versions", scope="policies.read", returns=PolicyVersionView, listed=True)
def list_policy_versions(call: Call, policy: str) -> Page[PolicyVersionView]:
    """List the versions of a policy, newest first.

    At most one of them is `active`; the others are `retired`.
    """
    return call.services.governance.policies.list_versions(call.scope, policy, call.query.page).map(version_view)


@route("GET", "/policies/{policy}/versions/{version}", scope="policies.read", returns=PolicyVersionView, errors=(ValidationFailed,))
def get_policy_version(call: Call, policy: str, version: str) -> PolicyVersionView:
    """Show one version of a policy.

    A version has the rules of the draft that was activated, and never changes.
    """
    return version_view(call.services.governance.policies.get_version(call.scope, policy, version_number(version)))


@route("GET", "/policies/{policy}/diff", scope="policies.read", query=DifferenceQuery, returns=PolicyDifferenceView)
def get_policy_diff(call: Call, policy: str) -> PolicyDifferenceView:
    """Compare a draft with a version.

    By default with the active one, or with another version by its number.
    """
    stored = call.services.governance.policies.get_policy(call.scope, policy)
    number = stored.active_version if call.query.against == "active" else call.query.against
    before = {} if number is None else call.services.governance.policies.get_version(call.scope, policy, number).document
    changes = diff_policies(before, stored.draft)
    return PolicyDifferenceView(from_=number, to="draft", identical=not changes, changes=[_change_view(each) for each in changes])


def _change_view(change: PolicyChange) -> PolicyChangeView:
    return PolicyChangeView(
        happened=change.happened, rule=change.rule or None, member=change.member or None, before=change.before, after=change.after
    )


@route(
    "POST", "/policies/{policy}/activate", scope="policies.write", body=ActivateBody, returns=PolicyVersionView,
    errors=(Conflict, VersionConflict),
)  # fmt: skip
def activate_policy(call: Call, policy: str) -> PolicyVersionView:
    """Activate a version of a policy.

    It takes effect at once and in every process of the appliance.

    Without `version`, the draft becomes the next version, unless it equals the newest one. With `digest`, the call is refused
    when the document to activate has another digest.
    """
    body: ActivateBody = call.body
    version = call.services.governance.policies.activate(
        call.scope, policy, version=body.version, message=body.message, if_digest=body.digest
    )  # fmt: skip
    return version_view(version)


@route("POST", "/policies/{policy}/deactivate", scope="policies.write", returns=PolicyView)
def deactivate_policy(call: Call, policy: str) -> PolicyView:
    """Deactivate a policy.

    None of its rules apply any longer; the defaults apply in their place.
    """
    return _view(call, call.services.governance.policies.deactivate(call.scope, policy))


@route("POST", "/policies/evaluate", scope="policies.read", body=EvaluateBody, returns=EvaluationView, acts=READS)
def evaluate_policies(call: Call) -> EvaluationView:
    """Explain how policies decide an action.

    The action is not executed.

    Only rules are evaluated, not kill switches and budgets. With `policy`, a draft is evaluated as if it were active.
    """
    body: EvaluateBody = call.body
    subject = _subject(call, body.subject)
    facts = call.services.governance.policies.describe(call.scope, subject, ToolAction(**body.action.model_dump()))
    policies = call.services.governance.policies.compiled(call.scope)
    if body.policy is not None:
        draft = parse_policy(body.policy, str(body.policy.get("name", "")))
        policies = call.services.governance.policies.compiled_with(call.scope, draft)
    return evaluate(policies, facts)


def evaluate(policies: CompiledPolicies, facts: Facts) -> EvaluationView:
    return evaluation_view(decide(policies, facts), explain(policies, facts))


def _subject(call: Call, body: SubjectBody) -> Subject:
    skills = tuple(SkillUsed(each.name, each.digest, each.trusted) for each in body.skills)
    actor = body.actor if body.actor is not None else call.scope.actor
    credential = body.credential or (credential_of(call.scope) if body.actor is None else "")
    return Subject(
        actor=actor, via=body.via, agent=body.agent, run_id=body.run_id, skills=skills, tainted_by=tuple(body.tainted_by),
        credential=credential,
    )
