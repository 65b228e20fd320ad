"""Manages policies: drafts, activated versions, and the decision about an action."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.errors import Conflict, PolicyDenied, ValidationFailed, VersionConflict
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.governance.policies.accounts import AccountFinder, find_account_behind
from appliance.governance.policies.compiled import Active, CompiledPolicies
from appliance.governance.policies.decision import Decision, Facts, InspectedDetails, Mode, ToolAction
from appliance.governance.policies.evaluation import decide
from appliance.governance.policies.language import MAX_RULES, Policy, parse_policy
from appliance.governance.policies.models import PolicyRow, PolicyVersionRow
from appliance.governance.subjects import Subject
from appliance.monitor import audit
from appliance.tenants.keys import lineage

MAX_POLICIES = 200
MAX_ACTIVE_RULES = 2 * MAX_RULES
_MAX_CACHED = 1_000
_MAY_CHANGE = ("user", "key", "system")

State = Literal["active", "retired"]


@dataclass(frozen=True)
class StoredPolicy:
    """A stored policy; times in epoch ms.  `active_version` is None while it is not active."""

    name: str
    draft: Mapping[str, Any]
    draft_digest: str
    active_version: int | None
    created_at: int
    created_by: str
    updated_at: int
    updated_by: str


@dataclass(frozen=True)
class PolicyVersion:
    """A version, `active` or `retired`; its content never changes."""

    policy: str
    number: int
    state: State
    mode: Mode
    document: Mapping[str, Any]
    digest: str
    message: str
    created_at: int
    created_by: str
    activated_at: int | None
    activated_by: str | None


class PolicyService:
    """Operations on policies.  Changes need the scope `policies.write`, which agents and processes never have."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cached: dict[str, tuple[str, CompiledPolicies]] = {}
        self._accounts = AccountFinder()

    # -- evaluation

    def decide(self, scope: TenantScope, subject: Subject, action: ToolAction) -> Decision:
        """The decision of the tenant's active policies; activations take effect immediately, in every process."""
        compiled = self.compiled(scope)
        account = lineage.find_account_of(scope, subject.actor) if compiled.reads_account else ""
        behind = self._accounts.find(scope, subject.actor) if compiled.reads_account_behind else ""
        return decide(compiled, Facts(subject, action, account, behind))

    def describe(self, scope: TenantScope, subject: Subject, action: ToolAction) -> Facts:
        """What rules can inspect, for an explanation; nobody has started an execution that is not stored."""
        behind = find_account_behind(scope, subject.actor) or ""
        return Facts(subject, action, lineage.find_account_of(scope, subject.actor), behind)

    def looks_at(self, scope: TenantScope) -> InspectedDetails:
        """Which details of an action the active policies inspect, besides its name and input."""
        compiled = self.compiled(scope)
        return InspectedDetails(compiled.looks_at_requests, compiled.looks_at_kin)

    def compiled(self, scope: TenantScope) -> CompiledPolicies:
        """The active policies, compiled and cached until they change."""
        stamp = _stamp(scope)
        cached = self._cached.get(scope.tenant_id)
        if cached is not None and cached[0] == stamp:
            return cached[1]
        with db.snapshot():
            stamp, compiled = _stamp(scope), CompiledPolicies(active_policies(scope))
        with self._lock:
            while len(self._cached) >= _MAX_CACHED:
                del self._cached[next(iter(self._cached))]
            self._cached[scope.tenant_id] = (stamp, compiled)
        return compiled

    def compiled_with(self, scope: TenantScope, draft: Policy) -> CompiledPolicies:
        """The active policies with this draft in place of the active version of its name."""
        others = [each for each in active_policies(scope) if each.name != draft.name]
        return CompiledPolicies([*others, Active(draft.name, 0, draft.digest(), draft.document())])

    # -- reading

    def list_policies(self, scope: TenantScope, page: PageRequest) -> Page[StoredPolicy]:
        """The tenant's policies, by name."""
        fields = {"name": PolicyRow.id, "updated_at": PolicyRow.updated_at, "created_at": PolicyRow.created_at}
        return paginate(scope.select(PolicyRow), page, fields, default="name", tie="name").map(_from_row)

    def get_policy(self, scope: TenantScope, name: str) -> StoredPolicy:
        """A policy with its draft; NotFound."""
        return _from_row(scope.get(PolicyRow, id=name))

    def list_versions(self, scope: TenantScope, name: str, page: PageRequest) -> Page[PolicyVersion]:
        """The versions of a policy, newest first; NotFound."""
        active = scope.get(PolicyRow, id=name).active_version
        query = scope.select(PolicyVersionRow).where(PolicyVersionRow.policy_id == name)
        result = paginate(query, page, {"number": PolicyVersionRow.number}, default="-number", tie="number")
        return result.map(lambda row: _version(row, active))

    def get_version(self, scope: TenantScope, name: str, number: int) -> PolicyVersion:
        """One version; NotFound."""
        active = scope.get(PolicyRow, id=name).active_version
        return _version(scope.get(PolicyVersionRow, policy_id=name, number=number), active)

    # -- changing

    def save_draft(
        self, scope: TenantScope, name: str, document: Any, *, if_digest: str | None = None
    ) -> tuple[StoredPolicy, bool]:
        """Create a policy, or replace its draft; it takes effect only with `activate`.  The flag says whether it is new.

        ValidationFailed with every error; VersionConflict if the stored draft's digest is not `if_digest`.
        """
        _check_may_change(scope)
        policy = parse_policy(document, name)
        digest, now = policy.digest(), clock.now_ms()
        values = {"draft": policy.document(), "draft_digest": digest, "updated_at": now, "updated_by": scope.actor}

        def save() -> bool:
            row = scope.find(PolicyRow, id=name)
            if if_digest is not None and (row is None or row.draft_digest != if_digest):
                raise VersionConflict("the draft has changed since you read it; read it again and repeat your change")
            if row is None:
                if scope.select(PolicyRow).count() >= MAX_POLICIES:
                    raise Conflict(Sentence(
                        "a tenant can have at most %(max_policies)s policies; add the rules to an existing one",
                        max_policies=MAX_POLICIES,
                    ))
                scope.insert(PolicyRow, id=name, created_at=now, created_by=scope.actor, **values)
            elif row.draft_digest != digest:
                scope.update(PolicyRow, **values).where(PolicyRow.id == name).execute()
            else:
                return False
            audit.record(scope, "policy.draft", name, {"digest": digest, "mode": policy.mode, "rules": len(policy.rules)})
            return row is None

        is_new = db.write(save)
        return self.get_policy(scope, name), is_new

    def activate(
        self, scope: TenantScope, name: str, *, version: int | None = None, message: str = "", if_digest: str | None = None
    ) -> PolicyVersion:
        """Activate a version; without a number the draft, which becomes the next version unless it equals the newest.

        NotFound; VersionConflict if the version's digest is not `if_digest`; ValidationFailed if this release cannot read the
        version; Conflict if there would be too many active rules.
        """
        _check_may_change(scope)
        if len(message) > 500:
            raise ValidationFailed("a message may have at most 500 characters", pointer="/message")

        def activate() -> int:
            _renew_stamp(scope)  # first: it locks the row, so that concurrent activations run one after the other
            row = scope.get(PolicyRow, id=name)
            target = _next_version(scope, row, message) if version is None else version
            chosen = scope.get(PolicyVersionRow, policy_id=name, number=target)
            if if_digest is not None and chosen.digest != if_digest:
                raise VersionConflict(
                    Sentence("the version to activate has the digest %(digest)s; read it and decide again", digest=chosen.digest)
                )
            if row.active_version == target:
                return target
            policy = parse_policy(chosen.document, name)
            _refuse_too_many(scope, policy)
            now = clock.now_ms()
            scope.update(PolicyRow, active_version=target).where(PolicyRow.id == name).execute()
            place = (PolicyVersionRow.policy_id == name) & (PolicyVersionRow.number == target)
            scope.update(PolicyVersionRow, activated_at=now, activated_by=scope.actor).where(place).execute()
            fields = {"version": target, "digest": chosen.digest, "mode": policy.mode, "before": row.active_version}
            audit.record(scope, "policy.activate", name, {**fields, "set": CompiledPolicies(active_policies(scope)).version})
            return target

        return self.get_version(scope, name, db.write(activate))

    def deactivate(self, scope: TenantScope, name: str) -> StoredPolicy:
        """Deactivate the policy; its versions stay.  NotFound."""
        _check_may_change(scope)

        def deactivate() -> None:
            _renew_stamp(scope)
            before = scope.get(PolicyRow, id=name).active_version
            if before is not None:
                scope.update(PolicyRow, active_version=None).where(PolicyRow.id == name).execute()
                fields = {"version": before, "set": CompiledPolicies(active_policies(scope)).version}
                audit.record(scope, "policy.deactivate", name, fields)

        db.write(deactivate)
        return self.get_policy(scope, name)

    def delete_policy(self, scope: TenantScope, name: str) -> None:
        """Delete a policy with its versions; NotFound, and Conflict while it is active."""
        _check_may_change(scope)

        def delete() -> None:
            row = scope.get(PolicyRow, id=name)
            if row.active_version is not None:
                raise Conflict(Sentence(
                    "version %(active_version)s of the policy %(name)s is active; deactivate it first",
                    active_version=row.active_version, name=name,
                ))
            scope.delete(PolicyRow).where(PolicyRow.id == name).execute()
            audit.record(scope, "policy.delete", name, {"digest": row.draft_digest})

        db.write(delete)


def active_policies(scope: TenantScope) -> list[Active]:
    """The active version of each policy."""
    versions = db.rows(
        "SELECT version.policy_id, version.number, version.digest, version.document FROM policy_version AS version "
        "JOIN policy ON policy.tenant_id = version.tenant_id AND policy.id = version.policy_id "
        "AND policy.active_version = version.number WHERE policy.tenant_id = ?",
        (scope.tenant_id,),
    )
    read = PolicyVersionRow.document.python_value
    return [Active(str(name), int(number), str(digest), read(document)) for name, number, digest, document in versions]


def _check_may_change(scope: TenantScope) -> None:
    scope.require("policies.write")
    if scope.actor.partition(":")[0] not in _MAY_CHANGE:
        raise PolicyDenied(
            "only people and API keys can change policies, not the agents and processes they govern; ask a person to change it"
        )


def _stamp(scope: TenantScope) -> str:
    rows = db.rows("SELECT stamp FROM policy_set WHERE tenant_id = ?", (scope.tenant_id,))
    return str(rows[0][0]) if rows else ""


def _renew_stamp(scope: TenantScope) -> None:
    """Inside a write: mark the policy set as changed.  The stamp is a new id each time, as a tenant can be deleted and restored."""
    db.execute(
        "INSERT INTO policy_set (tenant_id, stamp) VALUES (?, ?) ON CONFLICT (tenant_id) DO UPDATE SET stamp = excluded.stamp",
        (scope.tenant_id, ids.new("set")),
    )


def _next_version(scope: TenantScope, row: PolicyRow, message: str) -> int:
    """Inside a write: the number of the version with the draft's content, created if necessary."""
    newest = (
        scope.select(PolicyVersionRow)
        .where(PolicyVersionRow.policy_id == row.id)
        .order_by(PolicyVersionRow.number.desc())
        .limit(1)
        .get_or_none()
    )
    if newest is not None and newest.digest == row.draft_digest:
        return int(newest.number)
    number = 1 if newest is None else newest.number + 1
    scope.insert(
        PolicyVersionRow, policy_id=row.id, number=number, document=row.draft, digest=row.draft_digest, mode=row.draft["mode"],
        message=message, created_at=clock.now_ms(), created_by=scope.actor,
    )  # fmt: skip
    return int(number)


def _refuse_too_many(scope: TenantScope, policy: Policy) -> None:
    others = sum(len(each.document.get("rules", ())) for each in active_policies(scope) if each.name != policy.name)
    if others + len(policy.rules) > MAX_ACTIVE_RULES:
        raise Conflict(Sentence(
            "at most %(max_active_rules)s rules can be active; deactivate a policy, or reduce the rules of this one",
            max_active_rules=MAX_ACTIVE_RULES,
        ))


def _from_row(row: PolicyRow) -> StoredPolicy:
    return StoredPolicy(
        name=row.id, draft=row.draft, draft_digest=row.draft_digest, active_version=row.active_version, created_at=row.created_at,
        created_by=row.created_by, updated_at=row.updated_at, updated_by=row.updated_by,
    )


def _version(row: PolicyVersionRow, active: int | None) -> PolicyVersion:
    return PolicyVersion(
        policy=row.policy_id, number=row.number, state="active" if row.number == active else "retired", mode=row.mode,
        document=row.document, digest=row.digest, message=row.message, created_at=row.created_at, created_by=row.created_by,
        activated_at=row.activated_at, activated_by=row.activated_by,
    )  # fmt: skip
