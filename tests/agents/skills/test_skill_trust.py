"""Who may approve a skill, what an approval covers, and what ends it."""

from dataclasses import replace

import pytest

from appliance.agents.skills.service import MAX_VERSIONS, Skills
from appliance.agents.skills.trust import approve_skill, find_refusal, revoke_skill
from appliance.core.errors import NotFound, PolicyDenied, ValidationFailed, VersionConflict
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.monitor import AuditFilter, audit
from appliance.monitor.models import AuditEntry
from appliance.tenants import SignedIn
from appliance.tenants import service as tenants

from .conftest import KEY_SCOPES, member
from .sample_skills import skill

TOOLS = "allowed-tools: query_entities write_entities Bash(git:*)\n"


def scope_of(person: SignedIn) -> TenantScope:
    assert person.scope is not None
    return person.scope


def store_skill(skills: Skills, scope: TenantScope, more: str = TOOLS) -> str:
    return skills.put_skill(scope, "returns", skill(more=more))[0].version_digest


def last_entry(scope: TenantScope) -> AuditEntry:
    (entry,) = audit.list_entries(scope, AuditFilter(), PageRequest(1)).items
    return entry


@pytest.fixture
def ann(skills: Skills, acme: TenantScope) -> SignedIn:
    """An owner."""
    return member(acme, "ann@example.com", "owner")


def test_a_person_approves_one_digest_and_grants_some_of_its_tools(skills: Skills, acme: TenantScope, ann: SignedIn) -> None:
    digest = store_skill(skills, acme)
    approve_skill(scope_of(ann), skills, ann, "returns", digest, ["query_entities"])
    loaded = skills.load_skill(acme, "returns")
    assert (loaded.trust, loaded.granted_tools, loaded.used.is_trusted) == ("trusted", ("query_entities",), True)
    assert loaded.requested_tools == ("query_entities", "write_entities", "Bash(git:*)")
    assert skills.list_skills(acme)[0].trust == "trusted"
    entry = last_entry(acme)
    assert (entry.action, entry.subject, entry.actor) == ("skill.approve", "returns", f"user:{ann.user_id}")
    assert digest in entry.fields
    assert '"granted_tools":["query_entities"]' in entry.fields


def test_a_changed_skill_is_untrusted_and_has_no_tools_until_it_is_approved_anew(
    skills: Skills, acme: TenantScope, ann: SignedIn
) -> None:
    first = store_skill(skills, acme)
    approve_skill(scope_of(ann), skills, ann, "returns", first, ["query_entities"])
    second = store_skill(skills, acme, TOOLS + "license: MIT\n")
    loaded = skills.load_skill(acme, "returns")
    assert (loaded.trust, loaded.granted_tools, loaded.used.is_trusted) == ("untrusted", (), False)
    approve_skill(scope_of(ann), skills, ann, "returns", second)
    loaded = skills.load_skill(acme, "returns")
    assert (loaded.trust, loaded.granted_tools) == ("trusted", ())
    assert store_skill(skills, acme) == first
    assert skills.load_skill(acme, "returns").trust == "untrusted"  # only what was approved last counts


def test_an_approved_version_is_trusted_again_when_restored(skills: Skills, acme: TenantScope, ann: SignedIn) -> None:
    first = store_skill(skills, acme)
    approve_skill(scope_of(ann), skills, ann, "returns", first, ["query_entities"])
    for number in range(MAX_VERSIONS + 2):
        store_skill(skills, acme, f"license: '{number}'\n")
    assert skills.list_files(acme, "returns", first)  # the approved version is kept to be compared with
    store_skill(skills, acme)
    assert skills.load_skill(acme, "returns").granted_tools == ("query_entities",)


def test_approving_an_outdated_digest_is_refused(skills: Skills, acme: TenantScope, ann: SignedIn) -> None:
    seen = store_skill(skills, acme)
    now = store_skill(skills, acme, "")
    with pytest.raises(VersionConflict) as caught:
        approve_skill(scope_of(ann), skills, ann, "returns", seen)
    assert caught.value.extra == {"version_digest": now}
    assert skills.get_skill(acme, "returns").grant is None


@pytest.mark.parametrize("tool", ["delete_everything", "Bash(git:*)", "Bash", "", "Query_entities"])
def test_only_what_is_requested_by_a_plain_name_is_granted(skills: Skills, acme: TenantScope, ann: SignedIn, tool: str) -> None:
    digest = store_skill(skills, acme)
    with pytest.raises(ValidationFailed, match="cannot be granted") as caught:
        approve_skill(scope_of(ann), skills, ann, "returns", digest, ["query_entities", tool])
    assert caught.value.details[0].pointer == "/tools/1"
    assert skills.get_skill(acme, "returns").trust == "untrusted"


def test_keys_and_agents_cannot_decide(skills: Skills, acme: TenantScope, ann: SignedIn) -> None:
    digest = store_skill(skills, acme)
    for actor in ("key:acme", "agent:clerk", "execution:exe_1", "system", "user:somebody"):
        scope = TenantScope("acme", actor, KEY_SCOPES)
        with pytest.raises(PolicyDenied, match="signed-in person"):
            approve_skill(scope, skills, ann, "returns", digest)
        with pytest.raises(PolicyDenied, match="signed-in person"):
            revoke_skill(scope, skills, ann, "returns")


@pytest.mark.parametrize(
    ("role", "approver", "may"), [("builder", False, False), ("viewer", True, True), ("operator", False, False)]
)
def test_an_approver_or_an_owner_decides(skills: Skills, acme: TenantScope, role: str, approver: bool, may: bool) -> None:
    digest, person = store_skill(skills, acme), member(acme, "bob@example.com", role, approver=approver)
    assert (find_refusal(scope_of(person), person, skills.get_skill(acme, "returns")) is None) == may
    if may:
        approve_skill(scope_of(person), skills, person, "returns", digest)
        revoke_skill(scope_of(person), skills, person, "returns")
    else:
        with pytest.raises(PolicyDenied, match="only an approver or owner"):
            approve_skill(scope_of(person), skills, person, "returns", digest)
        with pytest.raises(PolicyDenied, match="only an approver or owner"):
            revoke_skill(scope_of(person), skills, person, "returns")


def test_a_member_of_another_tenant_does_not_decide(skills: Skills, acme: TenantScope, globex: TenantScope) -> None:
    digest, stranger = store_skill(skills, acme), member(globex, "eve@example.com", "owner")
    with pytest.raises(NotFound):
        approve_skill(scope_of(stranger), skills, stranger, "returns", digest)
    here = replace(scope_of(stranger), tenant_id="acme")
    with pytest.raises(PolicyDenied, match="only an approver or owner"):
        approve_skill(here, skills, stranger, "returns", digest)


def test_the_author_of_a_skill_cannot_approve_it(skills: Skills, acme: TenantScope, ann: SignedIn) -> None:
    digest = store_skill(skills, scope_of(ann))
    with pytest.raises(PolicyDenied, match="somebody else"):
        approve_skill(scope_of(ann), skills, ann, "returns", digest)
    store_skill(skills, acme, "")
    assert store_skill(skills, acme) == digest  # put back by another: ann still wrote it
    with pytest.raises(PolicyDenied, match="somebody else"):
        approve_skill(scope_of(ann), skills, ann, "returns", digest)
    bob = member(acme, "bob@example.com", "builder", approver=True)
    approve_skill(scope_of(bob), skills, bob, "returns", digest)


def test_in_a_sandbox_tenant_the_author_may_approve(skills: Skills) -> None:
    tenants.create_tenant("sandbox-a", "a", kind="sandbox")
    person = member(TenantScope("sandbox-a", "system"), "cy@example.com", "owner")
    approve_skill(scope_of(person), skills, person, "returns", store_skill(skills, scope_of(person)))
    assert '"self_approved":true' in last_entry(scope_of(person)).fields


def test_revoking_ends_trust_and_grants(skills: Skills, acme: TenantScope, ann: SignedIn) -> None:
    approve_skill(scope_of(ann), skills, ann, "returns", store_skill(skills, acme), ["query_entities"])
    revoked = revoke_skill(scope_of(ann), skills, ann, "returns")
    assert (revoked.trust, revoked.granted_tools, revoked.grant) == ("untrusted", (), None)
    assert last_entry(acme).action == "skill.revoke"
    revoke_skill(scope_of(ann), skills, ann, "returns")
    assert len(audit.list_entries(acme, AuditFilter(action="skill.revoke"), PageRequest()).items) == 1


def test_a_deleted_skill_comes_back_untrusted(skills: Skills, acme: TenantScope, ann: SignedIn) -> None:
    approve_skill(scope_of(ann), skills, ann, "returns", store_skill(skills, acme), ["query_entities"])
    skills.delete_skill(acme, "returns")
    store_skill(skills, acme)
    assert skills.get_skill(acme, "returns").grant is None
