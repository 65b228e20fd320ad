"""The views of policies, their versions and differences, and of evaluations."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from appliance.api.frame.routing import View
from appliance.core import clock
from appliance.governance.policies import (
    Decision,
    Finding,
    Mode,
    PolicyVersion,
    StoredPolicy,
    Verdict,
)


class PolicyView(View):
    """A policy with its draft; `active_version` is absent while no version is active, and `is_draft_active` says whether the
    active version equals the draft."""

    name: Annotated[str, Field(description=(
        "The name that addresses the policy in paths: lower-case letters, digits and hyphens, at most 63 characters."
    ))]
    active_version: Annotated[
        int | None, Field(description="The number of the version that decides actions now, from 1; absent while none is active.")
    ] = None
    is_draft_active: Annotated[bool, Field(description="True if the active version has the same content as the draft.")]
    draft: Annotated[dict[str, Any], Field(description=(
        "The document as last saved, with `mode` and `rules`; has no effect until it is activated."
    ))]
    draft_digest: Annotated[str, Field(description=(
        "`sha256:` and the hash of the draft; also its ETag, and sent as `digest` it activates exactly this draft."
    ))]
    created_at: Annotated[str, Field(description="When the policy was first saved; RFC 3339, UTC.")]
    created_by: Annotated[str, Field(description="The actor that first saved the policy.")]
    updated_at: Annotated[str, Field(description="When the draft was last saved; RFC 3339, UTC.")]
    updated_by: Annotated[str, Field(description="The actor that last saved the draft.")]


class PolicyVersionView(View):
    """An immutable version of a policy, which is `active` or `retired`."""

    policy: Annotated[str, Field(description="The name of the policy that the version belongs to.")]
    version: Annotated[int, Field(description="The number of the version: 1 for the first, one more for each that follows.")]
    state: Annotated[
        Literal["active", "retired"], Field(description="Whether the version decides actions now (`active`) or not (`retired`).")
    ]
    mode: Annotated[
        Mode, Field(description="Whether its rules decide (`enforce`) or only record what they would have decided (`observe`).")
    ]
    document: Annotated[
        dict[str, Any], Field(description="The content of the version with `mode` and `rules`, which never changes.")
    ]
    digest: Annotated[
        str, Field(description="`sha256:` and the hash of the document in hexadecimal, independent of its formatting.")
    ]
    message: Annotated[str, Field(description="The note left by the person who made the version; may be empty.")]
    created_at: Annotated[str, Field(description="When the draft became this version; RFC 3339, UTC.")]
    created_by: Annotated[str, Field(description="The actor that made a version of the draft.")]
    activated_at: Annotated[
        str | None, Field(description="When the version was last activated; RFC 3339, UTC. Absent if it never was.")
    ] = None
    activated_by: Annotated[
        str | None, Field(description="The actor that last activated the version; absent if it never was active.")
    ] = None


class PolicyChangeView(View):
    """One change: of a member of the policy or of the rule `rule`, or of the whole rule."""

    happened: Annotated[Literal["added", "removed", "changed"], Field(description=(
        "Whether the member or rule exists only in the draft (`added`), only in the version (`removed`) or in both."
    ))]
    rule: Annotated[
        str | None, Field(description="The name of the rule that differs; absent for a member of the policy itself.")
    ] = None
    member: Annotated[
        str | None, Field(description="The member that differs; absent if the whole rule was added or removed.")
    ] = None
    before: Annotated[Any, Field(description="The value in the version; absent if it was added.")] = None
    after: Annotated[Any, Field(description="The value in the draft; absent if it was removed.")] = None


class PolicyDifferenceView(View):
    """The changes from `from` to `to`; `from` is absent when no version is active."""

    model_config = ConfigDict(serialize_by_alias=True, populate_by_name=True)

    from_: Annotated[
        int | None, Field(alias="from", description="The number of the version compared with; absent if no version is active.")
    ] = None
    to: Annotated[Literal["draft"], Field(description="What the version was compared with, which is always the draft.")]
    identical: Annotated[bool, Field(description="True if version and draft do not differ.")]
    changes: Annotated[
        list[PolicyChangeView], Field(description="Every difference between version and draft; empty if there is none.")
    ]


class ObligationsView(View):
    """The conditions attached to a permission."""

    approvers: Annotated[list[str], Field(description=(
        "Who may approve: `role:<role>`, which includes higher roles, or `user:<login>`; empty if no rule names anybody."
    ))]
    needed: Annotated[int, Field(description="How many different people must approve, at least 1.")]
    ttl_seconds: Annotated[int, Field(description="Seconds within which the approvals must be given.")]
    redact: Annotated[list[str], Field(description="JSON pointers to the members that are removed from the result.")]
    calls_per_hour: Annotated[
        int | None, Field(description="The most calls that the rule permits in an hour; absent without a limit.")
    ] = None
    calls_per_run: Annotated[
        int | None, Field(description="The most calls that the rule permits in one agent run; absent without a limit.")
    ] = None
    cost_per_run: Annotated[float | None, Field(description=(
        "The most that the model calls of a run may have cost, in the currency of the model prices; absent without a limit."
    ))] = None
    dry_run_first: Annotated[bool, Field(description="True if the same action must have been previewed before it is executed.")]


class FindingView(View):
    """A rule and whether it matches: `because` names the member that does not match, `fault` why evaluating it failed."""

    rule: Annotated[str, Field(description="The rule with its policy, as `policy/rule`.")]
    effect: Annotated[Verdict, Field(description="What the rule decides when it matches.")]
    mode: Annotated[Mode, Field(description="Whether the rule's policy decides (`enforce`) or only records (`observe`).")]
    holds: Annotated[bool, Field(description="True if the rule matches the action.")]
    because: Annotated[
        str | None, Field(description="The member of the rule that does not match; absent if the rule matches.")
    ] = None
    fault: Annotated[
        str | None, Field(description="Why the rule could not be evaluated, which counts as a denial; absent if it could.")
    ] = None


class EvaluationView(View):
    """The decision, the decision if policies in observe mode were enforced, and every active rule, matching ones first."""

    verdict: Annotated[
        Verdict, Field(description="What would happen to the action: it is executed, waits for approval or is refused.")
    ]
    reasons: Annotated[list[str], Field(description="Sentences that explain the decision, from the rules behind it.")]
    rules: Annotated[list[str], Field(description="The rules behind the decision, as `policy/rule`; empty if a default decided.")]
    obligations: Annotated[
        ObligationsView, Field(description="What the decision demands in addition, such as approvers and limits.")
    ]
    would_be: Annotated[Verdict | None, Field(description=(
        "The decision if policies in observe mode were enforced; absent where it would be the same."
    ))] = None
    would_be_rules: Annotated[list[str], Field(description="The rules behind `would_be`, as `policy/rule`.")]
    policy_version: Annotated[str, Field(description=(
        "Identifies the set of policies that was evaluated; changes whenever one is activated or deactivated."
    ))]
    findings: Annotated[list[FindingView], Field(description="Every rule that was evaluated, matching ones first.")]


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
