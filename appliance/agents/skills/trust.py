"""Approves skills and revokes approvals: a signed-in person trusts one digest and grants it tools.

No scope allows this (docs/contract.md § 4): API keys and agents can neither approve nor revoke.
"""

from collections.abc import Sequence

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import PolicyDenied, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.governance import SkillUsed
from appliance.monitor import audit
from appliance.tenants import Member, SignedIn, people, service
from appliance.tenants.keys import lineage

from .format import is_grantable
from .models import SkillRow, SkillVersionRow
from .service import Skill, Skills, check_digest


def approve_skill(scope: TenantScope, skills: Skills, person: SignedIn, name: str, digest: str, tools: Sequence[str] = ()) -> Skill:
    """Trust exactly this digest and grant it these of its requested tools; replaces any earlier approval.

    Raises NotFound; VersionConflict if the skill has changed; PolicyDenied unless the person is an approver or owner who did
    not upload the version themselves (allowed in sandbox tenants); ValidationFailed for a tool that the skill does not request
    or that is not a plain name.
    """
    granted = tuple(dict.fromkeys(tools))

    def approve() -> Skill:
        skill = skills.get_skill(scope, name)
        check_digest(skill, digest)
        own = _check_person(scope, person, skill)
        for index, tool in enumerate(granted):
            if tool not in skill.requested_tools or not is_grantable(tool):
                message = Sentence(
                    "%(tool)s cannot be granted; grant only tools that the skill requests by a plain name", tool=repr(tool[:80])
                )
                raise ValidationFailed(message, pointer=f"/tools/{index}")
        scope.update(
            SkillRow, approved_digest=digest, granted_tools=list(granted), granted_by=scope.actor, granted_login=person.login,
            granted_at=clock.now_ms(),
        ).where(SkillRow.name == name).execute()  # fmt: skip
        facts = {"digest": digest, "requested_tools": list(skill.requested_tools), "granted_tools": list(granted)}
        audit.record(scope, "skill.approve", name, facts | ({"self_approved": True} if own else {}))
        return skills.get_skill(scope, name)

    return db.write(approve)


def revoke_skill(scope: TenantScope, skills: Skills, person: SignedIn, name: str) -> Skill:
    """Revoke the approval of a skill, if it has one.  Raises NotFound; PolicyDenied unless the person is an approver or owner."""

    def revoke() -> Skill:
        skill = skills.get_skill(scope, name)
        _deciding_member(scope, person)
        if skill.grant is None:
            return skill
        nothing = {"granted_tools": None, "granted_by": None, "granted_login": None, "granted_at": None}
        scope.update(SkillRow, approved_digest=None, **nothing).where(SkillRow.name == name).execute()
        facts = {"digest": skill.grant.digest, "granted_tools": list(skill.grant.tools), "approved_by": skill.grant.by}
        audit.record(scope, "skill.revoke", name, facts)
        return skills.get_skill(scope, name)

    return db.write(revoke)


def current_trust(scope: TenantScope, name: str, digest: str) -> SkillUsed:
    """The current trust of a skill that a run loaded: trusted only while it exists, unchanged and approved."""
    row = scope.find(SkillRow, name=name)
    if row is None or row.digest != digest or row.approved_digest != digest:
        return SkillUsed(name, digest)
    return SkillUsed(name, digest, True, tuple(row.granted_tools or ()))


def find_refusal(scope: TenantScope, person: SignedIn, skill: Skill) -> str | None:
    """The reason why this person cannot approve the current version, or None if they can."""
    try:
        _check_person(scope, person, skill)
    except PolicyDenied as error:
        return error.message
    return None


def can_revoke(scope: TenantScope, person: SignedIn) -> bool:
    """Whether this person can revoke approvals."""
    try:
        _deciding_member(scope, person)
    except PolicyDenied:
        return False
    return True


def _deciding_member(scope: TenantScope, person: SignedIn) -> Member:
    if scope.actor != f"user:{person.user_id}":
        raise PolicyDenied("only a signed-in person can approve skills; open the skill in the console")
    member = people.find_member(scope, person.user_id)
    if member is None or not (member.approver or member.role == "owner"):
        raise PolicyDenied("only an approver or owner of this tenant can decide about skills; ask one of them")
    return member


def _check_person(scope: TenantScope, person: SignedIn, skill: Skill) -> bool:
    """Raise PolicyDenied unless this person may approve the skill; returns whether they uploaded it themselves."""
    member = _deciding_member(scope, person)
    version = scope.get(SkillVersionRow, name=skill.name, digest=skill.version_digest)
    own = any(member.user_id in lineage.people_behind(scope, actor) for actor in (skill.updated_by, version.created_by))
    if own and service.get_tenant(scope.tenant_id).kind != "sandbox":
        raise PolicyDenied("you or one of your keys uploaded this version of the skill; ask somebody else to approve it")
    return own
