"""What one can do with policies: write drafts, have versions of them judge, and ask for the decision about an action."""

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
from appliance.governance.policies.compiled import Active, Compiled
from appliance.governance.policies.decision import Decision, Facts, Looks, Mode, ToolAction
from appliance.governance.policies.evaluation import decide
from appliance.governance.policies.language import MAX_RULES, Policy, parse_policy
from appliance.governance.policies.models import PolicyRow, PolicyVersionRow
from appliance.governance.subjects import Subject
from appliance.monitor import audit

MAX_POLICIES = 200
MAX_ACTIVE_RULES = 2 * MAX_RULES
_MOST_CACHED = 1_000
_MAY_CHANGE = ("user", "key", "system")

State = Literal["active", "retired"]


@dataclass(frozen=True)
class StoredPolicy:
    """A policy as it is read back; times in epoch ms.  `active_version` is None while nothing of it judges."""

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
    """A version; it is `active` or `retired`, and what it says never changes."""

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
    """The verbs.  Those that change something need the scope `policies.write`, and no run of an agent or process has them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cached: dict[str, tuple[str, Compiled]] = {}

    # -- judging

    def decide(self, scope: TenantScope, subject: Subject, action: ToolAction) -> Decision:
        """What the tenant's active policies say, from the moment on at which they were activated, in every process."""
        return decide(self.compiled(scope), Facts(subject, action))

    def looks_at(self, scope: TenantScope) -> Looks:
        """What the active policies have to know of an action, beside its own name and input."""
        compiled = self.compiled(scope)
        return Looks(compiled.looks_at_requests, compiled.looks_at_kin)

    def compiled(self, scope: TenantScope) -> Compiled:
        """The policies that judge now."""
        stamp = _stamp(scope)
        cached = self._cached.get(scope.tenant_id)
        if cached is not None and cached[0] == stamp:
            return cached[1]
        with db.snapshot():
            stamp, compiled = _stamp(scope), Compiled(active_policies(scope))
        with self._lock:
            while len(self._cached) >= _MOST_CACHED:
                del self._cached[next(iter(self._cached))]
            self._cached[scope.tenant_id] = (stamp, compiled)
        return compiled

    def compiled_with(self, scope: TenantScope, draft: Policy) -> Compiled:
        """The policies that would judge if this one were active, in the place of the active one of its name."""
        others = [each for each in active_policies(scope) if each.name != draft.name]
        return Compiled([*others, Active(draft.name, 0, draft.digest(), draft.document())])

    # -- reading

    def list_policies(self, scope: TenantScope, page: PageRequest) -> Page[StoredPolicy]:
        """The tenant's policies by name."""
        fields = {"name": PolicyRow.id, "updated_at": PolicyRow.updated_at, "created_at": PolicyRow.created_at}
        return paginate(scope.select(PolicyRow), page, fields, default="name", tie="name").map(_stored)

    def get_policy(self, scope: TenantScope, name: str) -> StoredPolicy:
        """A policy with its draft; NotFound."""
        return _stored(scope.get(PolicyRow, id=name))

    def list_versions(self, scope: TenantScope, name: str, page: PageRequest) -> Page[PolicyVersion]:
        """The versions of a policy, newest first; NotFound."""
        active = scope.get(PolicyRow, id=name).active_version
        query = scope.select(PolicyVersionRow).where(PolicyVersionRow.policy_id == name)
        found = paginate(query, page, {"number": PolicyVersionRow.number}, default="-number", tie="number")
        return found.map(lambda row: _version(row, active))

    def get_version(self, scope: TenantScope, name: str, number: int) -> PolicyVersion:
        """One version; NotFound."""
        active = scope.get(PolicyRow, id=name).active_version
        return _version(scope.get(PolicyVersionRow, policy_id=name, number=number), active)

    # -- changing

    def put_draft(self, scope: TenantScope, name: str, document: Any, *, if_digest: str | None = None) -> tuple[StoredPolicy, bool]:
        """Create a policy, or replace its draft; nothing of it judges before `activate`.  The flag tells whether it is new.

        ValidationFailed with every finding; VersionConflict when the stored draft's digest is not `if_digest`.
        """
        _may_change(scope)
        policy = parse_policy(document, name)
        digest, now = policy.digest(), clock.now_ms()
        values = {"draft": policy.document(), "draft_digest": digest, "updated_at": now, "updated_by": scope.actor}

        def put() -> bool:
            row = scope.find(PolicyRow, id=name)
            if if_digest is not None and (row is None or row.draft_digest != if_digest):
                raise VersionConflict("the draft is not the one you read; read it again and repeat your change")
            if row is None:
                if scope.select(PolicyRow).count() >= MAX_POLICIES:
                    raise Conflict(Sentence(
                        "a tenant has at most %(max_policies)s policies; put the rules into one that is there",
                        max_policies=MAX_POLICIES,
                    ))
                scope.insert(PolicyRow, id=name, created_at=now, created_by=scope.actor, **values)
            elif row.draft_digest != digest:
                scope.update(PolicyRow, **values).where(PolicyRow.id == name).execute()
            else:
                return False
            audit.record(scope, "policy.draft", name, {"digest": digest, "mode": policy.mode, "rules": len(policy.rules)})
            return row is None

        is_new = db.write(put)
        return self.get_policy(scope, name), is_new

    def activate(
        self, scope: TenantScope, name: str, *, version: int | None = None, message: str = "", if_digest: str | None = None
    ) -> PolicyVersion:
        """Have a version judge from now on; without a number the draft, which becomes the next version unless it is the newest.

        NotFound; VersionConflict when what would judge does not have the digest `if_digest`; ValidationFailed when this
        release cannot read it; Conflict when the active rules became too many.
        """
        _may_change(scope)
        if len(message) > 500:
            raise ValidationFailed("a message has at most 500 characters", pointer="/message")

        def activate() -> int:
            _restamp(scope)  # first, so that two that activate at once take turns
            row = scope.get(PolicyRow, id=name)
            target = _next_version(scope, row, message) if version is None else version
            chosen = scope.get(PolicyVersionRow, policy_id=name, number=target)
            if if_digest is not None and chosen.digest != if_digest:
                raise VersionConflict(
                    Sentence("what would be activated is %(digest)s; read it and decide again", digest=chosen.digest)
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
            audit.record(scope, "policy.activate", name, {**fields, "set": Compiled(active_policies(scope)).version})
            return target

        return self.get_version(scope, name, db.write(activate))

    def deactivate(self, scope: TenantScope, name: str) -> StoredPolicy:
        """Nothing of the policy judges any more; its versions stay.  NotFound."""
        _may_change(scope)

        def deactivate() -> None:
            _restamp(scope)
            before = scope.get(PolicyRow, id=name).active_version
            if before is not None:
                scope.update(PolicyRow, active_version=None).where(PolicyRow.id == name).execute()
                fields = {"version": before, "set": Compiled(active_policies(scope)).version}
                audit.record(scope, "policy.deactivate", name, fields)

        db.write(deactivate)
        return self.get_policy(scope, name)

    def delete_policy(self, scope: TenantScope, name: str) -> None:
        """Delete a policy with its versions; NotFound, and Conflict while it judges."""
        _may_change(scope)

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
    """The versions that judge."""
    versions = db.rows(
        "SELECT version.policy_id, version.number, version.digest, version.document FROM policy_version AS version "
        "JOIN policy ON policy.tenant_id = version.tenant_id AND policy.id = version.policy_id "
        "AND policy.active_version = version.number WHERE policy.tenant_id = ?",
        (scope.tenant_id,),
    )
    read = PolicyVersionRow.document.python_value
    return [Active(str(name), int(number), str(digest), read(document)) for name, number, digest, document in versions]


def _may_change(scope: TenantScope) -> None:
    scope.require("policies.write")
    if scope.actor.partition(":")[0] not in _MAY_CHANGE:
        raise PolicyDenied("policies are changed by people and keys, not by what the policies judge; have one of them do it")


def _stamp(scope: TenantScope) -> str:
    found = db.rows("SELECT stamp FROM policy_set WHERE tenant_id = ?", (scope.tenant_id,))
    return str(found[0][0]) if found else ""


def _restamp(scope: TenantScope) -> None:
    """Inside a write: another set of policies judges once it commits.  A new text each time: a tenant may go and come back."""
    db.execute(
        "INSERT INTO policy_set (tenant_id, stamp) VALUES (?, ?) ON CONFLICT (tenant_id) DO UPDATE SET stamp = excluded.stamp",
        (scope.tenant_id, ids.new("set")),
    )


def _next_version(scope: TenantScope, row: PolicyRow, message: str) -> int:
    """Inside a write: the number of the version that says what the draft says."""
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
            "%(max_active_rules)s rules judge at most; deactivate a policy, or make fewer rules of this one",
            max_active_rules=MAX_ACTIVE_RULES,
        ))


def _stored(row: PolicyRow) -> StoredPolicy:
    return StoredPolicy(
        row.id, row.draft, row.draft_digest, row.active_version, row.created_at, row.created_by, row.updated_at, row.updated_by
    )


def _version(row: PolicyVersionRow, active: int | None) -> PolicyVersion:
    return PolicyVersion(
        row.policy_id, row.number, "active" if row.number == active else "retired", row.mode, row.document, row.digest,
        row.message, row.created_at, row.created_by, row.activated_at, row.activated_by,
    )  # fmt: skip
