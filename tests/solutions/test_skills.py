"""Skills in a solution folder: planned, applied, written back and pruned; never approved by that."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.agents.skills import Skills, approve_skill
from appliance.core.errors import ApplianceError, Conflict
from appliance.solutions.archive import write_zip
from appliance.solutions.definition import read_solution
from appliance.solutions.folder import write_folder
from tests.agents.skills.conftest import member
from tests.solutions.conftest import Gos, SolutionTenant, make_solution
from tests.solutions.test_definition import problems_of
from tests.solutions.test_service import actions_of

ABOUT = "---\nname: returns\ndescription: How returns are handled.\nallowed-tools: query_entities\n---\nAsk first.\n"


def with_skill(about: str = ABOUT, **more: str) -> dict[str, str]:
    return make_solution(**{"SKILLS/returns/SKILL.md": about, "SKILLS/returns/references/limits.md": "3\n"} | more)


def skills_of(tenant: SolutionTenant) -> Skills:
    skills: Skills = tenant.running.services.agents.skills
    return skills


def summary_of(tenant: SolutionTenant, files: dict[str, str]) -> str:
    return next(each.summary for each in tenant.plan(files) if each.kind == "skill")


def test_a_skill_is_applied_once_and_again_when_it_changed(tenant: SolutionTenant) -> None:
    assert summary_of(tenant, with_skill()) == "2 files; untrusted until a person approves it"
    assert actions_of(tenant.apply(with_skill()))["skill returns"] == "create"
    assert actions_of(tenant.apply(with_skill()))["skill returns"] == "unchanged"
    changed = with_skill(ABOUT + "Then write.\n", **{"SKILLS/returns/scripts/sum.py": "print(1)\n"})
    assert summary_of(tenant, changed) == "1 file added, 1 file changed; untrusted until a person approves it"
    tenant.apply(changed)
    assert skills_of(tenant).load_skill(tenant.scope, "returns").instructions == "Ask first.\nThen write."


def test_applying_never_approves_and_ends_what_was_granted(tenant: SolutionTenant) -> None:
    tenant.apply(with_skill())
    skills, person = skills_of(tenant), member(tenant.scope, f"owner@{tenant.scope.tenant_id}.example", "owner")
    assert person.scope is not None
    digest = skills.get_skill(tenant.scope, "returns").version_digest
    approve_skill(person.scope, skills, person, "returns", digest, ["query_entities"])
    tenant.apply(with_skill(ABOUT + "Then write.\n"))
    assert skills.load_skill(tenant.scope, "returns").granted_tools == ()
    assert summary_of(tenant, with_skill()) == "1 file changed; trusted, because this content was approved"
    tenant.apply(with_skill())
    assert skills.load_skill(tenant.scope, "returns").granted_tools == ("query_entities",)


def test_a_tenant_is_written_back_with_its_skills_byte_by_byte(tenant: SolutionTenant) -> None:
    files = {path: text.encode() for path, text in with_skill().items()} | {"SKILLS/returns/assets/a.png": b"\x89PNG\0\r\n"}
    sent = tenant.api.post("/api/v1/solutions/apply", content=write_zip(files), headers={"Content-Type": "application/zip"})
    assert sent.is_success, sent.text
    pulled = tenant.api.get("/api/v1/solutions/export")
    with zipfile.ZipFile(io.BytesIO(pulled.content)) as archive:
        back = {name: archive.read(name) for name in archive.namelist()}
    assert {path: back[path] for path in files if path.startswith("SKILLS/")} == {
        path: content for path, content in files.items() if path.startswith("SKILLS/")
    }
    assert read_solution(back).skills["returns"].digest == skills_of(tenant).get_skill(tenant.scope, "returns").version_digest


def test_a_leftover_skill_is_pruned_unless_an_agent_uses_it(tenant: SolutionTenant) -> None:
    agent = "name: Clerk\nmodel: default\ninstructions: Help.\nskills: [returns]\n"
    tenant.apply(with_skill(**{"agents/clerk.yaml": agent}))
    assert actions_of(tenant.apply(make_solution(**{"agents/clerk.yaml": agent})))["skill returns"] == "leftover"
    with pytest.raises(Conflict, match="the agent clerk uses it"):
        tenant.apply(make_solution(**{"agents/clerk.yaml": agent}), prune=True)
    assert actions_of(tenant.apply(make_solution(), prune=True))["skill returns"] == "delete"
    assert skills_of(tenant).list_skills(tenant.scope) == []


def test_an_agent_whose_skill_is_nowhere_is_blocked(tenant: SolutionTenant) -> None:
    agent = "name: Clerk\nmodel: default\ninstructions: Help.\nskills: [returns]\n"
    with pytest.raises(Conflict, match="SKILLS/returns/"):
        tenant.apply(make_solution(**{"agents/clerk.yaml": agent}))


def test_a_problem_of_a_skill_is_reported_with_its_file() -> None:
    errors = problems_of(
        with_skill(ABOUT.replace("name: returns", "name: other"), **{"SKILLS/returns/a.md": "pay\u200bnow", "SKILLS/stray.md": ""})
    )
    assert errors["SKILLS/returns/SKILL.md"].startswith("SKILLS/returns/SKILL.md: its name is 'other', but its folder is 'returns'")
    assert errors["SKILLS/returns/a.md"].startswith("SKILLS/returns/a.md: line 1, column 4 contains U+200B")
    assert "SKILLS/<name>/" in errors["SKILLS/stray.md"]


def test_a_folder_is_checked_without_an_appliance(gos: Gos, tmp_path: Path) -> None:
    write_folder(tmp_path / "shop", {path: text.encode() for path, text in with_skill().items()})
    assert gos("check", tmp_path / "shop")[1].endswith("0 webapps, 1 skills, no errors\n")
    (tmp_path / "shop/SKILLS/returns/references/link.md").symlink_to("limits.md")
    assert "link.md is a link" in gos("check", tmp_path / "shop")[2]


def test_a_key_needs_the_scope_of_skills(make_tenant: Callable[..., SolutionTenant]) -> None:
    tenant = make_tenant("solutions.apply", "processflow.write", "datapool.admin", "integrations.write")
    refused = tenant.send("plan", {"solution.yaml": "name: small\n", "SKILLS/returns/SKILL.md": ABOUT})
    assert (refused.status_code, refused.json()["error"]["scope"]) == (403, "skills.write")


def test_a_failed_apply_leaves_no_skill(tenant: SolutionTenant) -> None:
    with pytest.raises(ApplianceError):
        tenant.apply(with_skill(**{"integrations/erp.yaml": "connector: nowhere\n"}))
    assert skills_of(tenant).list_skills(tenant.scope) == []
