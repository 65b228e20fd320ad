"""The routes of a WebApp never have more access than whoever publishes or previews it."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest

from appliance.app.findings.checks import authority_findings
from appliance.core import clock
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.solutions import write_zip
from appliance.tenants import ALL_SCOPES
from appliance.tenants.grants import Assessor, Confirmation, confirmations, grace_periods, grants
from appliance.testing.running import Running
from appliance.webapps import changes
from appliance.webapps.publishing import served_grants
from tests.console.browser import Browser
from tests.sites.route_shop import deploy
from tests.sites.test_webapps import site

TENANT = "routing"
WEBAPPS = ("webapps.read", "webapps.write", "webapps.publish")
ROUTES: list[dict[str, Any]] = [
    {"path": "/api/customers", "entities": "customers", "operations": ["list", "create"], "access": "public"},
]


@pytest.fixture(scope="module")
def owner(running: Running) -> TenantScope:
    running.tenant(TENANT)
    with running.api(TENANT) as client:
        customers = {"name": "customers", "fields": [{"name": "name", "type": "text"}], "access": {"list": "allow"}}
        client.post("/api/v1/datapool", json=customers).raise_for_status()
    return TenantScope(TENANT, f"user:{running.user('owner@routing.test', 'correct horse battery', TENANT)}", ALL_SCOPES)


def test_a_key_of_webapps_alone_serves_and_previews_no_collection(running: Running, owner: TenantScope) -> None:
    with running.api(TENANT, WEBAPPS) as client:
        version = "/api/v1/webapps/leaky/versions/1"
        refused = deploy(client, "leaky", ROUTES)
        assert refused.json()["error"]["code"] == "grant_required", refused.text
        for verb in ("publish", "preview"):
            error = client.post(f"{version}/{verb}", json={}).json()["error"]
            assert (error["code"], error["scopes"]) == ("grant_required", ["entities.read", "entities.write"])
        (confirmation,) = [each for each in confirmations.list_open(owner) if each.subject == "webapp:leaky"]
        running.services.governance.confirmations.decide(owner, confirmation.id, True)
        assert client.post(f"{version}/publish", json={}).status_code == 200
    with running.api(TENANT, [*WEBAPPS, "entities.read", "entities.write"]) as client:
        assert deploy(client, "covered", ROUTES).status_code == 200


@pytest.fixture
def builder(running: Running, owner: TenantScope) -> Iterator[httpx.Client]:
    """A key with every scope, which publishes without asking."""
    with running.api(TENANT) as client:
        yield client


def open_about(scope: TenantScope, app: str) -> list[Confirmation]:
    return [each for each in confirmations.list_open(scope) if each.subject == f"webapp:{app}"]


def before_the_upgrade(scope: TenantScope, app: str, publisher: str) -> None:
    """The app is as one that was published by `publisher` before grants were recorded."""
    mine = (scope.tenant_id, app)
    db.write(lambda: [
        db.execute("UPDATE webapp SET grant_digest = NULL, allowed_until = NULL WHERE tenant_id = ? AND id = ?", mine),
        db.execute("UPDATE audit_entry SET actor = ? WHERE tenant_id = ? AND subject = ? AND action = 'webapp.publish'",
                   (publisher, *mine)),
        db.execute("DELETE FROM authority_grant WHERE tenant_id = ? AND subject = ?", (mine[0], f"webapp:{app}")),
    ])  # fmt: skip


def key_of(scopes: Sequence[str]) -> str:
    """A key of the tenant that holds exactly these."""
    params = (TENANT, db.dump_json(sorted(scopes)))
    ((key_id,),) = db.rows("SELECT id FROM api_key WHERE tenant_id = ? AND scopes = ? LIMIT 1", params)
    return f"key:{key_id}"


def customers(running: Running, app: str) -> httpx.Response:
    """What a visitor gets from the app's route, looked up anew."""
    changes.notify_here(TenantScope(TENANT, "system"), app)
    with site(running, f"{app}--{TENANT}") as visitor:
        return visitor.get("/api/customers")


def assess(running: Running) -> None:
    assessor = served_grants.build_assessor(grace_periods(running.config))
    while assessor.assess_some():
        pass


def test_an_older_app_is_assessed_once_by_its_publisher(
    running: Running, owner: TenantScope, builder: httpx.Client
) -> None:
    with running.api(TENANT, WEBAPPS):
        narrow = key_of(WEBAPPS)
    for app in ("old-covered", "old-wider", "old-departed"):
        deploy(builder, app, ROUTES).raise_for_status()
    before_the_upgrade(owner, "old-covered", owner.actor)
    before_the_upgrade(owner, "old-wider", narrow)
    before_the_upgrade(owner, "old-departed", "user:usr_gone")
    assess(running)

    assert customers(running, "old-covered").status_code == 200
    assert open_about(owner, "old-covered") == []
    refused = customers(running, "old-wider")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "policy_denied")
    assert "owner" in refused.json()["error"]["message"]
    assert customers(running, "old-departed").status_code == 200
    (wider,), (departed,) = open_about(owner, "old-wider"), open_about(owner, "old-departed")
    assert (wider.details["why"], departed.details["why"]) == ("wider", "departed")
    assert departed.deadline is not None
    assert departed.deadline - clock.now_ms() > 29 * 86_400_000
    notes = [text for level, text in authority_findings() if level == "note"]
    assert any("webapp:old-wider" in text for text in notes)
    running.services.governance.confirmations.decide(owner, wider.id, True)
    assert customers(running, "old-wider").status_code == 200
    running.services.governance.confirmations.decide(owner, departed.id, False)
    assert customers(running, "old-departed").status_code == 404
    assert running.services.webapps.apps.get_app(owner, "old-departed").published_version is None


def test_a_suspended_app_answers_again_once_somebody_who_may_publishes_it(
    running: Running, owner: TenantScope, builder: httpx.Client
) -> None:
    with running.api(TENANT, WEBAPPS):
        narrow = key_of(WEBAPPS)
    deploy(builder, "old-again", ROUTES).raise_for_status()
    before_the_upgrade(owner, "old-again", narrow)
    assess(running)
    assert customers(running, "old-again").status_code == 403
    builder.post("/api/v1/webapps/old-again/versions/1/publish", json={}).raise_for_status()
    assert customers(running, "old-again").status_code == 200
    assert open_about(owner, "old-again") == []


def test_refusing_or_withdrawing_a_grant_unpublishes_the_app(
    running: Running, owner: TenantScope, builder: httpx.Client
) -> None:
    with running.api(TENANT, WEBAPPS) as client:
        deploy(client, "taken-back", ROUTES)
        (confirmation,) = open_about(owner, "taken-back")
        running.services.governance.confirmations.decide(owner, confirmation.id, True)
        client.post("/api/v1/webapps/taken-back/versions/1/publish", json={}).raise_for_status()
    running.services.governance.confirmations.decide(owner, confirmation.id, False)
    response = customers(running, "taken-back")
    assert (response.status_code, response.json()["error"]["code"]) == (404, "not_found")
    assert "publish" in response.json()["error"]["message"]

    deploy(builder, "withdrawn", ROUTES).raise_for_status()
    preview = builder.post("/api/v1/webapps/withdrawn/versions/1/preview", json={}).json()["data"]["url"]
    page = Browser(running)
    page.sign_in("owner@routing.test", "correct horse battery", TENANT)
    address = page.at(TENANT, "/console/webapps/withdrawn")
    assert "read the collection customers" in page.get(address).text
    digest = grants.list_grants(owner, "webapp:withdrawn")[0].digest
    assert "unpublished" in page.post(f"{address}/withdraw", {"digest": digest}).text
    assert customers(running, "withdrawn").status_code == 404
    with site(running, f"v1-withdrawn--{TENANT}") as visitor:
        link = visitor.get("/?" + preview.partition("?")[2])
        answer = visitor.get("/api/customers", headers={"Cookie": link.headers["set-cookie"].partition(";")[0]})
    assert answer.json()["error"]["code"] == "policy_denied"
    again = builder.post("/api/v1/webapps/withdrawn/versions/1/publish", json={})
    assert again.json()["error"]["code"] == "grant_required"


def test_what_was_withdrawn_from_an_app_holds_for_a_version_with_one_route_more(
    running: Running, owner: TenantScope, builder: httpx.Client
) -> None:
    more = [{"path": "/api/others", "entities": "others", "operations": ["list"], "access": "public"}]
    builder.post("/api/v1/datapool", json={"name": "others", "fields": [{"name": "name", "type": "text"}]}).raise_for_status()
    deploy(builder, "one-more", ROUTES).raise_for_status()
    (grant,) = grants.list_grants(owner, "webapp:one-more")
    served_grants.revoke(owner, running.services.webapps.apps, "one-more", grant.digest)
    version = {"app.yaml": json.dumps({"routes": ROUTES + more}).encode(), "public/index.html": b"<h1>Shop</h1>"}
    path, header = "/api/v1/webapps/one-more/versions", {"Content-Type": "application/zip"}
    builder.post(path, content=write_zip(version), headers=header).raise_for_status()
    answer = builder.post(f"{path}/2/publish", json={})
    assert answer.json()["error"]["code"] == "grant_required", answer.text


def test_what_cannot_be_assessed_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    done: list[int] = []

    def assess_one(key: int) -> None:
        if key == 2:
            raise ValueError("a row that nobody can read")
        done.append(key)

    assessor = Assessor(lambda: [key for key in (1, 2, 3) if key not in done], assess_one)
    assert [assessor.assess_some(), assessor.assess_some()] == [2, 0]
    assert done == [1, 3]
    assert caplog.text.count("cannot be assessed") == 1
