"""A tenant is exported, imported and reset, each in the background and with an entry in the audit trail."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.core import clock
from appliance.documents import retention
from appliance.quotas import limits
from appliance.solutions import write_zip
from appliance.tenants import people, service
from appliance.testing.running import Running
from tests.api.resources import Resources
from tests.console.browser import Browser
from tests.console.conftest import PASSWORD
from tests.processes.world import wait_until

TENANT = "moving"
EXPORT, RESET, TENANTS = "/console/settings/export", "/console/settings/reset", "/console/appliance/tenants"
PHRASE = "a phrase for the road 4d1"
LIVE_MARK = "data-live="


@pytest.fixture(scope="module")
def house(running: Running) -> Running:
    """A tenant with an entity and a secret, its owner and its builder."""
    for role in ("owner", "builder"):
        running.user(f"{role}@moving.test", PASSWORD, TENANT, role)
    with running.api(TENANT) as api:
        api.post("/api/v1/datapool", json={"name": "crates", "fields": [{"name": "label", "type": "text"}]}).raise_for_status()
        api.post("/api/v1/datapool/crates/entities", json={"label": "plates"}).raise_for_status()
        api.put("/api/v1/secrets/van_key", json={"value": "hush hush"}).raise_for_status()
    return running


@pytest.fixture(scope="module")
def visitor(house: Running, signed_in: Callable[[str], Browser]) -> Callable[[str], Browser]:
    return lambda role: signed_in(f"{role}@moving.test")


def wait_for_result(browser: Browser, url: str) -> str:
    """The live part of a page, as soon as it stops polling."""
    ends = clock.monotonic() + 60
    while LIVE_MARK in (part := browser.get(f"{url}?part=live").text):
        assert clock.monotonic() < ends
    return part


def actions(house: Running, tenant: str = TENANT) -> list[str]:
    with house.api(tenant) as api:
        return [each["action"] for each in api.get("/api/v1/logs/audit").json()["data"]]


def labels(house: Running, tenant: str) -> list[str]:
    with house.api(tenant) as api:
        answer = api.get("/api/v1/datapool/crates/entities")
        return [each["label"] for each in answer.json()["data"]] if answer.is_success else []


def stored_files(house: Running, tenant: str) -> list[Path]:
    """The files of the tenant's jobs, as soon as none of any job is half written."""
    data = house.config.data
    wait_until(lambda: [*(data / "blobs" / "incoming").iterdir(), *(data / "transfers").glob("*")] == [])
    return sorted((data / "blobs" / tenant / "jobs").glob("*"))


def export_tenant(browser: Browser, passphrase: str = "") -> tuple[str, bytes]:
    here = browser.at(TENANT, EXPORT)
    assert browser.post(here, {"passphrase": passphrase, "again": passphrase}).status_code == 200
    (link,) = re.findall(rf'href="({EXPORT}/[\w-]+\.gost)"', wait_for_result(browser, here))
    return link, browser.get(browser.at(TENANT, link)).content


def test_only_an_owner_exports_and_downloads(house: Running, visitor: Callable[[str], Browser], owner: Browser) -> None:
    ours, builder = visitor("owner"), visitor("builder")
    refused = ours.post(ours.at(TENANT, EXPORT), {"passphrase": PHRASE, "again": "another"})
    assert (refused.status_code, 'id="again-error"' in refused.text) == (422, True)
    assert ours.post(ours.at(TENANT, EXPORT), {"passphrase": "short", "again": "short"}).status_code == 422
    first, _ = export_tenant(ours)
    link, content = export_tenant(ours, PHRASE)
    wait_until(lambda: len(stored_files(house, TENANT)) == 1)
    (file,) = stored_files(house, TENANT)
    assert content == file.read_bytes(), f"{first} is older"
    assert {"tenant.export", "tenant.download"} <= set(actions(house))
    for path in (EXPORT, link):
        assert builder.get(builder.at(TENANT, path)).status_code == 403
    assert builder.post(builder.at(TENANT, EXPORT), {}).status_code == 403
    assert owner.get(owner.at("acme", link)).status_code == 404
    assert ours.post(ours.at(TENANT, f"{link}/delete"), {}).status_code == 200
    assert stored_files(house, TENANT) == []


def upload_export(admin: Browser, content: bytes) -> str:
    admin.upload(admin.at("acme", f"{TENANTS}/import"), ("moving.gost", content))
    return admin.url


def test_an_encrypted_export_is_opened_reviewed_and_imported(
    house: Running, visitor: Callable[[str], Browser], owner: Browser
) -> None:
    _, content = export_tenant(visitor("owner"), PHRASE)
    here = upload_export(owner, content)
    assert 'data-testid="open-export"' in owner.get(here).text
    owner.post(f"{here}/open", {"passphrase": "not the one it was"})
    assert "passphrase is wrong" in wait_for_result(owner, here)
    owner.post(f"{here}/open", {"passphrase": PHRASE})
    plan = wait_for_result(owner, here)
    assert all(text in plan for text in ("moving", "van_key", "builder@moving.test", "The tenant moving already exists"))
    for name, text in (("moving", "there already"), ("No Id", "No Id"), ("", "choose the id")):
        refused = owner.post(f"{here}/run", {"name": name, "title": "Copied"})
        assert (refused.status_code, 'id="name-error"' in refused.text) == (409 if name == "moving" else 422, True), text
    assert "copied" not in {row.id for row in service.list_tenants()}
    owner.post(f"{here}/run", {"name": "copied", "title": "Copied & moved", "owner": "yes"})
    done = wait_for_result(owner, here)
    assert all(text in done for text in ('data-testid="done"', "van_key", "The tenant copied was imported"))
    assert service.get_tenant("copied").name == "Copied & moved"
    assert labels(house, "copied") == ["plates"]
    roles = {each.login: each.role for each in people.list_members(house.tenant("copied"))}
    assert roles == {"owner@moving.test": "owner", "builder@moving.test": "builder", "owner@acme.test": "owner"}
    assert "tenant.import" in actions(house, "acme")
    assert "tenant.import" in actions(house, "copied")
    wait_until(lambda: stored_files(house, "acme") == [])


def test_a_failed_import_stores_nothing_and_can_be_retried(
    house: Running, visitor: Callable[[str], Browser], owner: Browser
) -> None:
    _, content = export_tenant(visitor("owner"))
    here = upload_export(owner, content[:-200])
    assert "Nothing was stored" in wait_for_result(owner, here)
    owner.post(f"{here}/discard", {})
    assert owner.get(here).status_code == 404
    here = upload_export(owner, content)
    wait_for_result(owner, here)
    house.tenant("early")
    conflict = owner.post(f"{here}/run", {"name": "early"})
    assert conflict.status_code == 409
    owner.post(f"{here}/run", {"name": "later"})
    assert "The tenant later was imported" in wait_for_result(owner, here)
    assert "owner@acme.test" not in {each.login for each in people.list_members(house.tenant("later"))}


def test_an_import_beyond_the_quotas_is_refused_until_it_has_its_own(
    visitor: Callable[[str], Browser], owner: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, content = export_tenant(visitor("owner"))
    here = upload_export(owner, content)
    wait_for_result(owner, here)
    monkeypatch.setattr(limits, "defaults", limits.Defaults(standard={"storage": 1}))
    refused = owner.post(f"{here}/run", {"name": "large", "storage": "much"})
    assert (refused.status_code, 'id="storage-error"' in refused.text) == (422, True)
    owner.post(f"{here}/run", {"name": "large"})
    assert "new tenant may have 1B" in wait_for_result(owner, here)
    owner.post(f"{here}/run", {"name": "large", "storage": "1GB", "entities": ""})
    assert "The tenant large was imported" in wait_for_result(owner, here)
    assert limits.limits_of("large").own == {"storage"}


def test_only_administrators_of_the_appliance_import(house: Running, visitor: Callable[[str], Browser], owner: Browser) -> None:
    ours, before = visitor("owner"), stored_files(house, "acme")
    assert ours.get(ours.at(TENANT, TENANTS)).status_code == 403
    assert ours.upload(ours.at(TENANT, f"{TENANTS}/import"), ("a.gost", b"x" * 100_000)).status_code == 403
    assert stored_files(house, "acme") == before
    ignored = ours.post(ours.at(TENANT, f"{TENANTS}/import"), {"no": "multipart"})
    assert ignored.status_code == 403, "the body is not even read"
    refused = owner.upload(owner.at("acme", f"{TENANTS}/import"), ("a.gost", b"no export at all"))
    assert (refused.status_code, 'id="file-error"' in refused.text) == (422, True)
    assert "moving" in owner.get(owner.at("acme", TENANTS)).text
    _, content = export_tenant(ours)
    here = upload_export(owner, content)
    other = here.replace("acme.", f"{TENANT}.")
    for path in ("", "/run", "/open", "/discard"):
        answer = ours.post(other + path, {}) if path else ours.get(other)
        assert answer.status_code == 403
    wait_for_result(owner, here)
    owner.post(f"{here}/discard", {})
    assert stored_files(house, "acme") == before


def test_a_reset_is_confirmed_and_restores_the_initial_state(house: Running, visitor: Callable[[str], Browser]) -> None:
    ours, builder = visitor("owner"), visitor("builder")
    here = ours.at(TENANT, RESET)
    solution = {"solution.yaml": b"name: fresh\n", "collections/pots.yaml": b"name: pots\nfields:\n  - {name: a, type: text}\n"}
    archive = write_zip(solution)
    for form, file, field in (
        ({"confirm": "another", "solution": "own"}, archive, "confirm"),
        ({"confirm": TENANT, "solution": "own"}, b"no archive", "file"),
    ):
        refused = ours.upload(here, ("s.zip", file), form)
        assert (refused.status_code, f'id="{field}-error"' in refused.text) == (422, True)
    assert builder.upload(builder.at(TENANT, RESET), ("s.zip", archive), {"confirm": TENANT, "solution": "own"}).status_code == 403
    assert labels(house, TENANT) == ["plates"]
    ours.upload(here, ("s.zip", archive), {"confirm": TENANT, "solution": "own"})
    assert 'data-testid="done"' in wait_for_result(ours, here)
    with house.api(TENANT) as api:
        assert [each["name"] for each in api.get("/api/v1/datapool").json()["data"]] == ["pots"]
        entry = next(e for e in api.get("/api/v1/logs/audit").json()["data"] if e["action"] == "tenant.reset")
    assert entry["actor"].startswith("user:")
    assert [each.name for each in service.list_secrets(house.tenant(TENANT))] == ["van_key"]


def test_a_refused_reset_changes_nothing(house: Running, visitor: Callable[[str], Browser]) -> None:
    ours = visitor("owner")
    with house.api(TENANT) as api:
        document = Resources(house, TENANT, api).document()
    retention.set_hold(house.tenant(TENANT), document, "a quarrel")
    ours.upload(ours.at(TENANT, RESET), ("", b""), {"confirm": TENANT, "solution": "starter"})
    page = wait_for_result(ours, ours.at(TENANT, RESET))
    assert all(each in page for each in ('data-testid="problem"', "legal hold", "Nothing changed."))
    with house.api(TENANT) as api:
        assert api.get(f"/api/v1/documents/{document}").is_success
        assert [each["name"] for each in api.get("/api/v1/datapool").json()["data"]] == ["pots"]
    retention.release_hold(house.tenant(TENANT), document)
