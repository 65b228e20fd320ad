"""/api/v1/solutions over HTTP, and a tenant written back as a folder."""

import io
import tarfile
from collections.abc import Callable

import pytest

from appliance.solutions.archive import ArchiveLimits, read_archive, write_zip
from tests.solutions.conftest import Place, make_solution

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


def test_a_folder_is_planned_and_applied_as_zip_or_tar(place: Place) -> None:
    plan = place.send("plan", make_solution()).json()["data"]
    assert (plan["solution"], plan["applied"], plan["blocked"], len(plan["changes"])) == ("small", False, False, 3)
    applied = place.api.post("/api/v1/solutions/apply", content=as_tar(make_solution()))
    assert (applied.status_code, applied.json()["data"]["applied"]) == (200, True)
    again = place.send("apply", make_solution()).json()["data"]
    assert {change["action"] for change in again["changes"]} == {"unchanged"}


@pytest.mark.parametrize("missing", ALL)
@pytest.mark.parametrize("verb", ["plan", "apply"])
def test_each_scope_of_what_it_changes_is_needed(make_place: Callable[..., Place], missing: str, verb: str) -> None:
    place = make_place(*(name for name in ALL if name != missing))
    answer = place.send(verb, make_solution())
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "scope_missing")
    assert missing in answer.json()["error"]["message"]


def test_a_scope_for_what_it_does_not_hold_is_not_needed(make_place: Callable[..., Place]) -> None:
    place = make_place("solutions.apply", "datapool.admin")
    files = {path: text for path, text in make_solution().items() if path.startswith("collections/")}
    assert place.send("apply", files | {"solution.yaml": "name: data\n"}).status_code == 200


def test_what_governs_is_planned_over_http_like_everything_else(make_place: Callable[..., Place]) -> None:
    place = make_place("solutions.apply", "policies.write", "skills.write", "agents.write")
    files = {
        "solution.yaml": "name: governed\n",
        "policies/buying.yaml": "mode: enforce\nrules:\n  - {id: no, effect: deny, reason: not yet}\n",
        "SKILLS/returns/SKILL.md": "---\nname: returns\ndescription: How returns are handled.\n---\nAsk first.\n",
        "agents/clerk.yaml": "id: clerk\nname: Clerk\nmodel: house\ninstructions: Note it.\n",
    }
    planned = place.send("plan", files).json()["data"]["changes"]
    assert {change["kind"]: change["action"] for change in planned} == {"policy": "create", "skill": "create", "agent": "create"}
    assert place.send("apply", files).json()["data"]["applied"] is True


def test_what_is_wrong_is_answered_by_the_codes_of_the_contract(place: Place, make_place: Callable[..., Place]) -> None:
    post = place.api.post
    assert post("/api/v1/solutions/apply", content=b"rubbish").json()["error"]["code"] == "invalid_request"
    assert post("/api/v1/solutions/apply", content=b"").json()["error"]["code"] == "invalid_request"
    escaping = write_zip({"solution.yaml": b"name: x\n", "../evil": b""})
    assert post("/api/v1/solutions/apply", content=escaping).json()["error"]["code"] == "validation_failed"
    broken = place.send("apply", make_solution(**{"solution.yaml": "nam: x\n"}))
    assert (broken.status_code, broken.json()["error"]["code"]) == (422, "definition_invalid")
    assert broken.json()["error"]["details"][0]["pointer"] == "/solution.yaml"
    blocked = make_place().send("apply", make_solution())
    assert (blocked.status_code, blocked.json()["error"]["code"]) == (409, "conflict")
    large = write_zip({"solution.yaml": b"name: x\n", "processes/a/b.ts": b"\0" * (20 << 20)})
    assert post("/api/v1/solutions/apply", content=large).json()["error"]["code"] == "payload_too_large"


def test_an_exported_tenant_applies_elsewhere_and_back_again(place: Place, make_place: Callable[..., Place]) -> None:
    place.apply(make_solution())
    answer = place.api.get("/api/v1/solutions/export")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/zip")
    back = place.api.post("/api/v1/solutions/plan", content=answer.content).json()["data"]
    assert {change["action"] for change in back["changes"]} == {"unchanged"}
    other = make_place()
    other.api.put("/api/v1/secrets/erp_token", json={"value": "another-one"}).raise_for_status()
    assert other.api.post("/api/v1/solutions/apply", content=answer.content).status_code == 200
    theirs = read_archive(other.api.get("/api/v1/solutions/export").content, LIMITS)
    ours = read_archive(answer.content, LIMITS)
    assert {path: text for path, text in theirs.items() if path != "solution.yaml"} == {
        path: text for path, text in ours.items() if path != "solution.yaml"
    }


def test_secrets_never_leave_and_sealed_ones_stay_where_they_are(place: Place, make_place: Callable[..., Place]) -> None:
    settings = {"base_url": "https://erp.example.com", "auth": {"kind": "bearer", "token": "sealed-canary-77"}}
    place.api.post("/api/v1/integrations", json={"slug": "erp", "connector": "http", "settings": settings}).raise_for_status()
    content = place.api.get("/api/v1/solutions/export").content
    files = read_archive(content, LIMITS)
    assert b"canary" not in b"".join(files.values())
    assert b"sealed: true" in files["integrations/erp.yaml"]
    plan = place.api.post("/api/v1/solutions/plan", content=content).json()["data"]
    assert [change["action"] for change in plan["changes"]] == ["unchanged"]
    elsewhere = make_place().api.post("/api/v1/solutions/plan", content=content).json()["data"]
    assert "write `= secrets.<name>` there" in elsewhere["changes"][0]["blocked"]
    moved = files["integrations/erp.yaml"].replace(b"erp.example.com", b"evil.example.com")
    thief = place.api.post("/api/v1/solutions/apply", content=write_zip({**files, "integrations/erp.yaml": moved}))
    assert thief.status_code == 409


def test_drafts_are_exported_on_request_only(place: Place) -> None:
    place.apply(make_solution())
    definition = {"id": "unfinished", "steps": [{"id": "one", "rule": {"expression": "= 1"}}]}
    place.api.put("/api/v1/processes/unfinished", json=definition).raise_for_status()
    published = read_archive(place.api.get("/api/v1/solutions/export").content, LIMITS)
    drafts = read_archive(place.api.get("/api/v1/solutions/export?drafts=true").content, LIMITS)
    assert drafts.keys() - published.keys() == {"processes/unfinished/process.yaml"}


@pytest.mark.parametrize("missing", ["solutions.apply", "processflow.read", "integrations.read", "entities.read"])
def test_export_needs_to_read_everything(make_place: Callable[..., Place], missing: str) -> None:
    scopes = {"solutions.apply", "processflow.read", "integrations.read", "entities.read"} - {missing}
    answer = make_place(*scopes).api.get("/api/v1/solutions/export")
    assert (answer.status_code, missing in answer.text) == (403, True)
