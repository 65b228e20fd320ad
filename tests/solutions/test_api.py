"""/api/v1/solutions over HTTP, and a tenant written back as a folder."""

import io
import tarfile
from collections.abc import Callable

import pytest

from appliance.solutions.archive import ArchiveLimits, read_archive, write_zip
from tests.solutions.conftest import SolutionTenant, make_solution

LIMITS = ArchiveLimits(1000)
ALL = ("solutions.apply", "processflow.write", "integrations.write", "datapool.admin")


def as_tar(files: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for path, text in files.items():
            info = tarfile.TarInfo(f"./{path}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


def test_a_folder_is_planned_and_applied_as_zip_or_tar(tenant: SolutionTenant) -> None:
    plan = tenant.send("plan", make_solution()).json()["data"]
    assert (plan["solution"], plan["applied"], plan["blocked"], len(plan["changes"])) == ("small", False, False, 3)
    applied = tenant.api.post("/api/v1/solutions/apply", content=as_tar(make_solution()))
    assert (applied.status_code, applied.json()["data"]["applied"]) == (200, True)
    again = tenant.send("apply", make_solution()).json()["data"]
    assert {change["action"] for change in again["changes"]} == {"unchanged"}


@pytest.mark.parametrize("missing", ALL)
@pytest.mark.parametrize("verb", ["plan", "apply"])
def test_each_scope_of_what_it_changes_is_needed(make_tenant: Callable[..., SolutionTenant], missing: str, verb: str) -> None:
    tenant = make_tenant(*(name for name in ALL if name != missing))
    answer = tenant.send(verb, make_solution())
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "scope_missing")
    assert missing in answer.json()["error"]["message"]


def test_a_scope_for_what_it_does_not_hold_is_not_needed(make_tenant: Callable[..., SolutionTenant]) -> None:
    tenant = make_tenant("solutions.apply", "datapool.admin")
    files = {path: text for path, text in make_solution().items() if path.startswith("collections/")}
    assert tenant.send("apply", files | {"solution.yaml": "name: data\n"}).status_code == 200


def test_policies_skills_and_agents_are_planned_over_http(make_tenant: Callable[..., SolutionTenant]) -> None:
    tenant = make_tenant("solutions.apply", "policies.write", "skills.write", "agents.write")
    files = {
        "solution.yaml": "name: governed\n",
        "policies/buying.yaml": "mode: enforce\nrules:\n  - {id: no, effect: deny, reason: not yet}\n",
        "SKILLS/returns/SKILL.md": "---\nname: returns\ndescription: How returns are handled.\n---\nAsk first.\n",
        "agents/clerk.yaml": "id: clerk\nname: Clerk\nmodel: house\ninstructions: Note it.\n",
    }
    planned = tenant.send("plan", files).json()["data"]["changes"]
    assert {change["kind"]: change["action"] for change in planned} == {"policy": "create", "skill": "create", "agent": "create"}
    assert tenant.send("apply", files).json()["data"]["applied"] is True


def test_errors_have_the_codes_of_the_contract(tenant: SolutionTenant, make_tenant: Callable[..., SolutionTenant]) -> None:
    post = tenant.api.post
    assert post("/api/v1/solutions/apply", content=b"rubbish").json()["error"]["code"] == "invalid_request"
    assert post("/api/v1/solutions/apply", content=b"").json()["error"]["code"] == "invalid_request"
    escaping = write_zip({"solution.yaml": b"name: x\n", "../evil": b""})
    assert post("/api/v1/solutions/apply", content=escaping).json()["error"]["code"] == "validation_failed"
    broken = tenant.send("apply", make_solution(**{"solution.yaml": "nam: x\n"}))
    assert (broken.status_code, broken.json()["error"]["code"]) == (422, "definition_invalid")
    assert broken.json()["error"]["details"][0]["pointer"] == "/solution.yaml"
    blocked = make_tenant().send("apply", make_solution())
    assert (blocked.status_code, blocked.json()["error"]["code"]) == (409, "conflict")
    large = write_zip({"solution.yaml": b"name: x\n", "processes/a/b.ts": b"\0" * (20 << 20)})
    assert post("/api/v1/solutions/apply", content=large).json()["error"]["code"] == "payload_too_large"


def test_an_exported_tenant_applies_elsewhere_and_back_again(
    tenant: SolutionTenant, make_tenant: Callable[..., SolutionTenant]
) -> None:
    tenant.apply(make_solution())
    answer = tenant.api.get("/api/v1/solutions/export")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/zip")
    back = tenant.api.post("/api/v1/solutions/plan", content=answer.content).json()["data"]
    assert {change["action"] for change in back["changes"]} == {"unchanged"}
    other = make_tenant()
    other.api.put("/api/v1/secrets/erp_token", json={"value": "another-one"}).raise_for_status()
    assert other.api.post("/api/v1/solutions/apply", content=answer.content).status_code == 200
    other_files = read_archive(other.api.get("/api/v1/solutions/export").content, LIMITS)
    own_files = read_archive(answer.content, LIMITS)
    assert {path: text for path, text in other_files.items() if path != "solution.yaml"} == {
        path: text for path, text in own_files.items() if path != "solution.yaml"
    }


def test_secrets_never_leave_and_sealed_ones_stay_where_they_are(
    tenant: SolutionTenant, make_tenant: Callable[..., SolutionTenant]
) -> None:
    settings = {"base_url": "https://erp.example.com", "auth": {"kind": "bearer", "token": "sealed-canary-77"}}
    tenant.api.post("/api/v1/integrations", json={"slug": "erp", "connector": "http", "settings": settings}).raise_for_status()
    content = tenant.api.get("/api/v1/solutions/export").content
    files = read_archive(content, LIMITS)
    assert b"canary" not in b"".join(files.values())
    assert b"sealed: true" in files["integrations/erp.yaml"]
    plan = tenant.api.post("/api/v1/solutions/plan", content=content).json()["data"]
    assert [change["action"] for change in plan["changes"]] == ["unchanged"]
    elsewhere = make_tenant().api.post("/api/v1/solutions/plan", content=content).json()["data"]
    assert "write `= secrets.<name>` there" in elsewhere["changes"][0]["blocked"]
    moved = files["integrations/erp.yaml"].replace(b"erp.example.com", b"evil.example.com")
    refused = tenant.api.post("/api/v1/solutions/apply", content=write_zip({**files, "integrations/erp.yaml": moved}))
    assert refused.status_code == 409


def test_drafts_are_exported_on_request_only(tenant: SolutionTenant) -> None:
    tenant.apply(make_solution())
    definition = {"id": "unfinished", "steps": [{"id": "one", "rule": {"expression": "= 1"}}]}
    tenant.api.put("/api/v1/processes/unfinished", json=definition).raise_for_status()
    published = read_archive(tenant.api.get("/api/v1/solutions/export").content, LIMITS)
    drafts = read_archive(tenant.api.get("/api/v1/solutions/export?drafts=true").content, LIMITS)
    assert drafts.keys() - published.keys() == {"processes/unfinished/process.yaml"}


@pytest.mark.parametrize("missing", ["solutions.apply", "processflow.read", "integrations.read", "entities.read"])
def test_export_needs_to_read_everything(make_tenant: Callable[..., SolutionTenant], missing: str) -> None:
    scopes = {"solutions.apply", "processflow.read", "integrations.read", "entities.read"} - {missing}
    answer = make_tenant(*scopes).api.get("/api/v1/solutions/export")
    assert (answer.status_code, missing in answer.text) == (403, True)
