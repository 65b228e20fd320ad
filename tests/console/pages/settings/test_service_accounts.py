"""The pages of service accounts: who sees and changes them, what forms refuse, and what the pages of keys and people show."""

import json
import re
from collections.abc import Callable

import httpx

from appliance.testing.running import Running
from tests.api.resources import fresh
from tests.console.browser import Browser

OWNER = "owner@acme.test"


def create(owner: Browser, **more: str) -> str:
    name = fresh("robot")
    form: dict[str, str | list[str]] = {
        "id": name, "title": name.upper(), "description": "", "responsible": OWNER, "scopes": ["logs.read", "skills.read"],
    }  # fmt: skip
    assert owner.post(owner.at("acme", "/console/service-accounts/new"), form | more).status_code == 200
    return name


def test_an_account_is_created_changed_disabled_enabled_and_deleted(owner: Browser, acme: httpx.Client) -> None:
    name = create(owner, description="Counts <things>.")
    at = owner.at("acme", f"/console/service-accounts/{name}")
    page = owner.get(at).text
    assert "Counts &lt;things&gt;." in page
    assert f"service:{name}" in page
    form = {"title": "Counter", "description": "", "responsible": OWNER, "scopes": "logs.read"}
    assert "<h1>Counter" in owner.post(at, form).text
    assert 'data-testid="enable-account"' in owner.post(f"{at}/disable", {}).text
    assert acme.get(f"/api/v1/service-accounts/{name}").json()["data"]["disabled"]
    assert 'data-testid="disable-account"' in owner.post(f"{at}/enable", {}).text
    assert f"/service-accounts/{name}" not in owner.post(f"{at}/delete", {}).text
    assert owner.get(at).status_code == 404
    entries = acme.get("/api/v1/logs/audit", params={"subject": name}).json()["data"]
    assert [each["action"].removeprefix("service_account.") for each in entries] == [
        "delete", "enable", "disable", "change", "create",
    ]  # fmt: skip
    assert json.loads(entries[3]["fields"]) == {
        "description": ["Counts <things>.", ""], "scopes": [["logs.read", "skills.read"], ["logs.read"]],
        "title": [name.upper(), "Counter"],
    }  # fmt: skip


def test_forms_say_what_is_wrong_and_keep_what_was_entered(owner: Browser) -> None:
    form = {"id": "Not A Slug", "title": "Robot", "description": "kept text", "responsible": OWNER, "scopes": "logs.read"}
    at = owner.at("acme", "/console/service-accounts/new")
    for change, mark in (({}, 'id="id-error"'), ({"id": "robot-x", "responsible": "nobody@acme.test"}, 'id="responsible-error"')):
        refused = owner.post(at, {**form, **change})
        assert (refused.status_code, mark in refused.text, "kept text" in refused.text) == (422, True, True)
    name = create(owner)
    answer = owner.post(at, {**form, "id": name})
    assert (answer.status_code, "already a service account" in answer.text) == (409, True)
    page = owner.at("acme", f"/console/service-accounts/{name}")
    refused = owner.post(page, {"title": " ", "description": "", "responsible": OWNER, "scopes": "logs.read"})
    assert (refused.status_code, 'id="title-error"' in refused.text) == (422, True)
    refused = owner.post(page, {"title": "Robot", "description": "", "responsible": OWNER})
    assert (refused.status_code, "at least one known scope" in refused.text) == (422, True)


def test_a_viewer_sees_accounts_and_changes_nothing(owner: Browser, signed_in: Callable[[str], Browser]) -> None:
    name, viewer = create(owner), signed_in("viewer@acme.test")
    at = viewer.at("acme", f"/console/service-accounts/{name}")
    page = viewer.get(at)
    assert (page.status_code, 'action="/console/service-accounts' in page.text) == (200, False)
    for path in ("", "/disable", "/enable", "/delete", "/keys/new"):
        assert viewer.post(f"{at}{path}", {"title": "Mine"}).status_code == 403, path
    assert viewer.get(f"{at}/keys/new").status_code == 403


def test_its_key_leads_back_to_the_account_and_cannot_be_adopted(owner: Browser, acme: httpx.Client) -> None:
    name = create(owner)
    at = owner.at("acme", f"/console/service-accounts/{name}")
    form = {"name": fresh("its"), "environment": "live", "days": "30", "addresses": "", "scopes": "logs.read"}
    wide = owner.post(f"{at}/keys/new", {**form, "scopes": "secrets.write"})
    assert (wide.status_code, "does not have secrets.write" in wide.text) == (422, True)
    answer = owner.post(f"{at}/keys/new", form)
    assert (answer.status_code, f'href="/console/service-accounts/{name}"' in answer.text) == (201, True)
    (key,) = acme.get(f"/api/v1/service-accounts/{name}/keys").json()["data"]
    assert key["issuer"] == f"service:{name}"
    accounts = owner.at("acme", "/console/service-accounts?limit=500")
    assert 'number">1</td>' in next(row for row in owner.get(accounts).text.split('data-testid="row"') if f"/{name}" in row)
    page = owner.get(at).text
    assert ('data-testid="rotate-key"' in page, 'data-testid="adopt-key"' in page) == (True, False)
    listed = owner.get(owner.at("acme", "/console/keys?limit=500")).text
    assert f'<a href="/console/service-accounts/{name}">{name.upper()} (service account)</a>' in listed
    owner.post(f"{at}/disable", {})
    assert 'number">0</td>' in next(row for row in owner.get(accounts).text.split('data-testid="row"') if f"/{name}" in row)
    assert "Its service account is disabled." in owner.get(owner.at("acme", f"/console/keys/{key['id']}")).text
    assert f"service:{name}" in owner.post(owner.at("acme", f"/console/keys/{key['id']}/revoke"), {}).text


def test_the_removal_of_a_member_shows_what_they_are_responsible_for(owner: Browser, running: Running) -> None:
    login = f"{fresh('leaver')}@acme.test"
    user_id = running.user(login, "a long enough password", "acme", "viewer")
    name = create(owner, responsible=login)
    removal = owner.get(owner.at("acme", f"/console/people/{user_id}/remove")).text
    assert f'<a href="/console/service-accounts/{name}">' in removal.partition('data-testid="responsible-for"')[2]
    owner.post(owner.at("acme", f"/console/people/{user_id}/remove"), {})
    notice = owner.get(owner.at("acme", "/console/service-accounts")).text.partition('data-testid="nobody-responsible"')[2]
    assert f'href="/console/service-accounts/{name}"' in notice.partition("</section>")[0]
    page = owner.get(owner.at("acme", f"/console/service-accounts/{name}")).text
    assert 'data-testid="nobody-responsible"' in page
    renamed = owner.post(
        owner.at("acme", f"/console/service-accounts/{name}"),
        {"title": "Renamed", "description": "", "responsible": "", "scopes": "logs.read"},
    )
    assert ("<h1>Renamed" in renamed.text, 'data-testid="nobody-responsible"' in renamed.text) == (True, True)


def test_a_key_moves_to_an_account_from_the_list_of_keys(owner: Browser, acme: httpx.Client) -> None:
    key = acme.post("/api/v1/keys", json={"name": fresh("moved"), "scopes": ["logs.read"]}).json()["data"]["id"]
    wide = acme.post("/api/v1/keys", json={"name": fresh("stays"), "scopes": ["secrets.write"]}).json()["data"]["id"]
    name = create(owner)
    rows = owner.get(owner.at("acme", "/console/keys?limit=500")).text.split('data-testid="row"')
    offers = {each: f'<option value="{name}">' in next(row for row in rows if each in row) for each in (key, wide)}
    assert offers == {key: True, wide: False}
    answer = owner.post(owner.at("acme", f"/console/keys/{key}/adopt"), {"account": name})
    assert (answer.status_code, key in answer.text, f"service:{name}" in answer.text) == (200, True, True)
    assert acme.get(f"/api/v1/keys/{key}").json()["data"]["issuer"] == f"service:{name}"
    refused = acme.post(f"/api/v1/keys/{wide}/adopt", json={"service_account": name})
    assert (refused.status_code, refused.json()["error"]["details"][0]["pointer"]) == (422, "/scopes")


def test_a_policy_that_names_an_account_is_explained_for_its_keys(owner: Browser, acme: httpx.Client) -> None:
    name = create(owner)
    key = acme.post(f"/api/v1/service-accounts/{name}/keys", json={"name": "its", "scopes": ["logs.read"]}).json()["data"]
    rule = {"id": "no", "effect": "deny", "subject": {"actors": [f"service:{name}"]}, "reason": "It only reads."}
    policy = {"name": fresh("policy"), "mode": "enforce", "rules": [rule]}
    for actor, decision in ((f"key:{key['id']}", "deny"), (f"service:{name}", "deny"), ("key:another", "allow")):
        action = {"tool": "x", "effect": "write", "input": {}}
        body = {"subject": {"actor": actor, "via": "rest"}, "action": action, "policy": policy}
        answer = acme.post("/api/v1/policies/evaluate", json=body)
        assert answer.is_success, answer.text
        assert answer.json()["data"]["verdict"] == decision, answer.text
    assert acme.put(f"/api/v1/policies/{policy['name']}", json=policy).is_success
    form = {"kind": "key", "who": key["id"], "via": "rest", "effect": "write", "tool": "x", "policy": policy["name"]}
    page = owner.post(owner.at("acme", "/console/policies/-/decide"), dict(form)).text
    assert f"{policy['name']}/no" in page
    assert 'data-state="deny"' in page


def test_what_goes_on_working_is_shown_before_a_key_is_revoked(staff: Running, owner: Browser, acme: httpx.Client) -> None:
    name = create(owner)
    scopes = ["keys.read", "keys.write", "logs.read"]
    deploy = acme.post("/api/v1/keys", json={"name": fresh("deploy"), "scopes": scopes}).json()["data"]
    with staff.client("acme.localhost", {"X-API-Key": deploy["key"]}) as client:
        path = f"/api/v1/service-accounts/{name}/keys"
        theirs = client.post(path, json={"name": fresh("<theirs>"), "scopes": ["logs.read"]}).json()["data"]
        below = client.post("/api/v1/keys", json={"name": fresh("below"), "scopes": ["logs.read"]}).json()["data"]
    rows = owner.get(owner.at("acme", "/console/keys")).text.split('<tr data-testid="row">')
    (row,) = [each for each in rows if f'<td><a href="/console/keys/{deploy["id"]}">' in each]
    (ask,) = continuing_lists(row)
    assert (f'href="/console/keys/{theirs["id"]}"' in ask, f"{name.upper()}" in ask, below["id"] in ask) == (True, True, False)
    assert "&lt;theirs&gt;" in ask
    at = owner.at("acme", f"/console/keys/{deploy['id']}")
    assert theirs["id"] in "".join(continuing_lists(owner.get(at).text))
    owner.post(f"{at}/revoke", {})
    staff.move_clock(500)
    with staff.client("acme.localhost", {"X-API-Key": theirs["key"]}) as client:
        assert client.get("/api/v1/logs").status_code == 200
    assert theirs["id"] in "".join(continuing_lists(owner.get(at).text)), "and on the page of the revoked key"
    owner.post(owner.at("acme", f"/console/keys/{theirs['id']}/revoke"), {})
    assert continuing_lists(owner.get(at).text) == []


def continuing_lists(page: str) -> list[str]:
    return re.findall(r'data-testid="continuing-keys">(.*?)</ul>', page, re.DOTALL)
