"""Who may send SCIM requests, and how refusals look."""

import json

import httpx
import pytest

from appliance.app.findings.sign_in import account_findings
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import Conflict, ValidationFailed
from appliance.tenants.provisioning import create_token, list_tokens, revoke_token, rotate_token
from appliance.tenants.sign_in import Attempts
from appliance.testing.running import Running
from tests.api.resources import fresh
from tests.scim.provider import ERROR, GROUP, PATCH, USER, Directory

DAY_MS = 86_400_000
WRONG = "gos_scim_000000000000000000000000000000000000"


def send(running: Running, token: str, host: str = "localhost", scheme: str = "Bearer") -> httpx.Response:
    with running.client(host, {"Authorization": f"{scheme} {token}"} if token else {}) as client:
        return client.get("/scim/v2/Users")


def test_a_token_is_needed_and_belongs_to_one_provider(live: Running, corp: Directory) -> None:
    key = live.key("acme")
    plain = create_token(live.services.sealer, live.services.single_sign_on.find_provider("plain"))[1]
    for token in ("", WRONG, f"{corp.token}x", corp.token[:-1], key, plain, "x" * 5000):
        refused = send(live, token)
        assert (refused.status_code, refused.json()["schemas"]) == (401, [ERROR]), token
        assert refused.headers["WWW-Authenticate"].startswith("Bearer")
        assert corp.token not in refused.text
    assert send(live, corp.token, scheme="Basic").status_code == 401
    assert send(live, corp.token, scheme="bearer").status_code == 200
    assert send(live, corp.token, host="acme.localhost").status_code == 404, "SCIM belongs to the appliance"
    with live.client("acme.localhost", {"X-API-Key": corp.token}) as client:
        assert client.get("/api/v1/tenant").status_code == 401, "and its tokens are no API keys"


def test_wrong_tokens_are_slowed_down_and_right_ones_are_not(
    live: Running, corp: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live.services.provisioning, "attempts", Attempts(free=20, first=2.0, longest=300.0))
    answers = [send(live, WRONG) for _ in range(30)]
    assert {each.status_code for each in answers} == {401, 429}
    late = answers[-1]
    assert (late.status_code, late.json()["status"]) == (429, "429")
    assert int(late.headers["Retry-After"]) >= 1
    assert send(live, corp.token).status_code == 200


def test_expired_tokens_are_slowed_down_like_wrong_ones(live: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = live.services.single_sign_on.find_provider("corp")
    token, text = create_token(live.services.sealer, provider, days=1)
    db.write(lambda: db.execute("UPDATE scim_token SET expires_at = ? WHERE id = ?", (clock.now_ms(), token.id)))
    monkeypatch.setattr(live.services.provisioning, "attempts", Attempts(free=20, first=2.0, longest=300.0))
    assert {send(live, text).status_code for _ in range(30)} == {401, 429}


def test_a_rotation_does_not_lengthen_the_life_of_the_old_token(live: Running) -> None:
    sso = live.services.single_sign_on
    token, _ = create_token(live.services.sealer, sso.find_provider("corp"), days=1)
    rotate_token(live.services.sealer, token.id, sso.find_provider, 30 * 86_400)
    (old,) = [each for each in list_tokens() if each.id == token.id]
    assert old.expires_at == token.expires_at


def test_a_provider_has_a_rate(live: Running, corp: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appliance.tenants.provisioning.service.REQUESTS", 0)
    refused = corp.send("GET", "/Users")
    assert (refused.status_code, refused.json()["schemas"]) == (429, [ERROR])
    assert int(refused.headers["Retry-After"]) >= 1


def test_a_revoked_token_ends_at_once_and_is_in_the_trail(live: Running) -> None:
    sso = live.services.single_sign_on
    token, text = create_token(live.services.sealer, sso.find_provider("corp"))
    assert send(live, text).status_code == 200
    assert db.rows("SELECT COUNT(*) FROM scim_token WHERE digest = ?", (text.encode(),)) == [(0,)]
    assert not any(text in str(each) for each in list_tokens())
    revoke_token(token.id, sso.find_provider)
    assert send(live, text).status_code == 401
    revoke_token(token.id, sso.find_provider)
    with live.api("acme") as api:
        rows = api.get("/api/v1/logs/audit", params={"subject": token.id}).json()["data"]
    assert [each["action"] for each in rows] == ["scim_token.revoke", "scim_token.create"]
    assert {json.loads(each["fields"])["provider"] for each in rows} == {"corp"}


@pytest.mark.parametrize(("method", "path", "body", "expected"), [
    ("GET", "/Nothing", None, (404, None)), ("GET", "/", None, (404, None)), ("GET", "/Users/usr_none", None, (404, None)),
    ("POST", "/Users", b"{", (400, "invalidSyntax")), ("POST", "/Users", b"[]", (400, "invalidSyntax")),
    ("POST", "/Users", b"", (400, "invalidSyntax")), ("POST", "/Users", b"\xff\xfe", (400, "invalidSyntax")),
    ("POST", "/Users", {"schemas": [USER]}, (400, "invalidValue")),
    ("POST", "/Users", {"schemas": [USER], "userName": ""}, (400, "invalidValue")),
    ("POST", "/Users", {"schemas": [USER], "userName": "with space"}, (400, "invalidValue")),
    ("POST", "/Users", {"schemas": [USER], "userName": "x" * 300}, (400, "invalidValue")),
    ("POST", "/Users", {"schemas": [USER], "userName": ["a"]}, (400, "invalidValue")),
    ("POST", "/Users", {"schemas": [USER], "userName": "a\x00b"}, (400, "invalidValue")),
    ("POST", "/Users", {"schemas": [USER], "userName": "a@b", "externalId": "x\x00"}, (400, "invalidValue")),
    ("POST", "/Users", {"schemas": [USER], "userName": "a@b", "displayName": "x" * 70_000}, (400, "invalidValue")),
    ("POST", "/Users", {"schemas": [USER], "userName": "a@b", "active": "perhaps"}, (400, "invalidValue")),
    ("POST", "/Groups", {"schemas": [GROUP], "displayName": " "}, (400, "invalidValue")),
    ("POST", "/Groups", {"schemas": [GROUP], "displayName": "x\x00"}, (400, "invalidValue")),
    ("PATCH", "/Users", {"schemas": [PATCH]}, (405, None)), ("DELETE", "/Groups", None, (405, None)),
    ("POST", "/ServiceProviderConfig", {}, (405, None)), ("DELETE", "/Schemas", None, (405, None)),
    ("POST", "/Bulk", {}, (501, None)), ("GET", "/Me", None, (501, None)), ("POST", "/Users/.search", {}, (501, None)),
    ("POST", "/.search", {}, (501, None)),
    ("POST", "/Groups", {"schemas": [GROUP], "displayName": "x\ud800"}, (400, "invalidSyntax")),
    ("POST", "/Groups", {"schemas": [GROUP], "displayName": "x", "members": [{"value": "\x00"}]}, (400, "invalidValue")),
    ("POST", "/Groups", {"schemas": [GROUP], "displayName": "x", "members": [{"value": "\ud800"}]}, (400, "invalidSyntax")),
    ("POST", "/Users", {"schemas": [USER], "userName": "a@b", "displayName": "\ud800"}, (400, "invalidSyntax")),
    ("POST", "/Users", {"schemas": [USER], "userName": "a@b", "externalId": "\ud800"}, (400, "invalidSyntax")),
    ("GET", "/Users/%00", None, (404, None)), ("GET", "/Groups/%ff", None, (404, None)),
    ("DELETE", "/Users/a%00b", None, (404, None)),
    ("GET", "/Users/usr_1/more", None, (404, None)), ("GET", f"/Users/{'x' * 5000}", None, (404, None)),
    ("GET", "/Schemas/urn:unknown", None, (404, None)), ("GET", "/ResourceTypes/Device", None, (404, None)),
    ("GET", "/Users?attributes=userName&excludedAttributes=name", None, (400, "invalidValue")),
    ("GET", "/Users?count=many", None, (400, "invalidValue")), ("GET", "/Schemas?filter=id+eq+%22x%22", None, (403, None)),
])  # fmt: skip
def test_errors_are_those_of_scim(corp: Directory, method: str, path: str, body: object, expected: tuple[int, str | None]) -> None:
    assert corp.refuse(method, path, body) == expected


@pytest.mark.parametrize(("operation", "scim_type"), [
    ({"op": "replace", "path": "userName", "value": ""}, "invalidValue"), ({"op": "remove", "path": "userName"}, "mutability"),
    ({"op": "remove", "path": "active"}, "mutability"), ({"op": "replace", "path": "id", "value": "usr_other"}, "mutability"),
    ({"op": "replace", "path": "active", "value": "perhaps"}, "invalidValue"), ({"op": "steal", "path": "x"}, "invalidValue"),
    ({"op": "remove"}, "noTarget"), ({"op": "replace", "path": "emails[", "value": "x"}, "invalidPath"),
    ({"op": "replace", "path": "groups", "value": [{"value": "x"}]}, "mutability"),
])  # fmt: skip
def test_a_patch_that_makes_no_sense_changes_nothing(corp: Directory, operation: dict[str, object], scim_type: str) -> None:
    ann = corp.add_user()
    before = corp.ask("GET", f"/Users/{ann}")
    both = [{"op": "replace", "path": "displayName", "value": "New"}, operation]
    assert corp.refuse("PATCH", f"/Users/{ann}", {"schemas": [PATCH], "Operations": both}) == (400, scim_type)
    assert corp.ask("GET", f"/Users/{ann}") == before
    corp.drop(f"/Users/{ann}")


def test_a_name_is_taken_once(corp: Directory, trusted: Directory) -> None:
    login, group = f"{fresh('p')}@corp.test", fresh("Group")
    ann, one = corp.add_user(login), corp.add_group(group)
    bob, two = corp.add_user(), corp.add_group(fresh("Group"))
    clash = (409, "uniqueness")
    for directory in (corp, trusted):
        assert directory.refuse("POST", "/Users", {"schemas": [USER], "userName": login.upper()}) == clash
    assert corp.refuse("POST", "/Groups", {"schemas": [GROUP], "displayName": group.upper()}) == clash
    assert corp.refuse("PUT", f"/Users/{bob}", {"schemas": [USER], "userName": login}) == clash
    assert corp.refuse("PUT", f"/Groups/{two}", {"schemas": [GROUP], "displayName": group}) == clash
    corp.drop(f"/Users/{ann}", f"/Users/{bob}", f"/Groups/{one}", f"/Groups/{two}")


def test_an_unexpected_error_shows_no_traceback(corp: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("appliance.tenants.provisioning.users.list_users", fail)
    refused = corp.send("GET", "/Users")
    assert (refused.status_code, refused.json()["schemas"], "secret detail" in refused.text) == (500, [ERROR], False)


def test_a_body_has_a_limit(corp: Directory) -> None:
    assert corp.refuse("POST", "/Users", b" " * ((4 << 20) + 1)) == (413, None)


def test_the_service_says_what_it_can_do(live: Running, corp: Directory) -> None:
    config = corp.ask("GET", "/ServiceProviderConfig")
    able = {name: config[name]["supported"] for name in ("patch", "bulk", "filter", "changePassword", "sort", "etag")}
    assert able == {"patch": True, "bulk": False, "filter": True, "changePassword": False, "sort": False, "etag": False}
    assert config["meta"]["location"] == f"{live.config.base_url}/scim/v2/ServiceProviderConfig"
    kinds = corp.ask("GET", "/ResourceTypes")["Resources"]
    described = [(each["id"], each["endpoint"], each["schema"]) for each in kinds]
    assert described == [("User", "/Users", USER), ("Group", "/Groups", GROUP)]
    assert corp.ask("GET", f"/Schemas/{USER}")["id"] == USER


def test_a_token_ends_on_its_day(live: Running) -> None:
    provider = live.services.single_sign_on.find_provider("corp")
    token, text = create_token(live.services.sealer, provider, days=1)
    assert token.expires_at is not None
    assert abs(token.expires_at - clock.now_ms() - DAY_MS) < 60_000
    assert send(live, text).status_code == 200
    end_at(token.id, clock.now_ms() - 1)
    refused = send(live, text)
    assert (refused.status_code, "has expired" in refused.json()["detail"]) == (401, True)
    for days in (0, -1, 3651):
        with pytest.raises(ValidationFailed, match="from 1 to 3650"):
            create_token(live.services.sealer, provider, days=days)


def end_at(token_id: str, moment: int) -> None:
    db.write(lambda: db.execute("UPDATE scim_token SET expires_at = ? WHERE id = ?", (moment, token_id)))


def test_a_rotated_token_works_beside_the_new_one_for_a_while(live: Running) -> None:
    sealer, sso = live.services.sealer, live.services.single_sign_on
    old, old_text = create_token(sealer, sso.find_provider("corp"), days=30)
    new, new_text = rotate_token(sealer, old.id, sso.find_provider, 3600)
    assert (new.rotated_from, new.provider) == (old.id, "corp")
    assert new.expires_at is not None
    assert abs(new.expires_at - clock.now_ms() - 30 * DAY_MS) < 60_000, "it lasts as long as the old one was meant to"
    assert [send(live, text).status_code for text in (old_text, new_text)] == [200, 200]
    (row,) = [each for each in list_tokens() if each.id == old.id]
    assert row.expires_at is not None
    assert abs(row.expires_at - clock.now_ms() - 3_600_000) < 60_000
    again, again_text = rotate_token(sealer, new.id, sso.find_provider, 0)
    assert [send(live, text).status_code for text in (new_text, again_text)] == [401, 200]
    with pytest.raises(Conflict, match="works no more"):
        rotate_token(sealer, new.id, sso.find_provider, 0)
    with pytest.raises(ValidationFailed, match="30 days"):
        rotate_token(sealer, again.id, sso.find_provider, 31 * 86_400)
    endless, _ = create_token(sealer, sso.find_provider("corp"))
    assert rotate_token(sealer, endless.id, sso.find_provider, 60)[0].expires_at is None
    with live.api("acme") as api:
        rows = api.get("/api/v1/logs/audit", params={"subject": old.id}).json()["data"]
    assert [each["action"] for each in rows] == ["scim_token.rotate", "scim_token.create"]


def test_doctor_warns_before_the_last_token_ends(live: Running) -> None:
    def about(provider_id: str) -> list[tuple[str, str]]:
        return [each for each in account_findings(live.config) if "SCIM token" in each[1] and provider_id in each[1]]

    sealer, provider = live.services.sealer, live.services.single_sign_on.find_provider("corp")
    db.write(lambda: db.execute("DELETE FROM scim_token WHERE provider = 'corp'"))
    ((level, text),) = about("corp")
    assert (level, "`gos scim token corp`" in text) == ("FAIL", True)
    token, _ = create_token(sealer, provider, days=13)
    ((level, text),) = about("corp")
    assert (level, f"`gos scim rotate {token.id} --overlap 86400`" in text) == ("note", True)
    rotate_token(sealer, token.id, live.services.single_sign_on.find_provider, 60)
    create_token(sealer, provider, days=60)
    assert [level for level, _ in about("corp")] == ["ok"]
