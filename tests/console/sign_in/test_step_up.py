"""Sensitive forms wait for a fresh proof, and continue afterwards with what was entered."""

import re
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from appliance.console.blueprint import PAGES
from appliance.core.database import db
from appliance.testing.running import Running
from tests.console.browser import Browser
from tests.console.conftest import PASSWORD
from tests.console.sign_in.factor_holder import Holder

STEP_UP = {
    "/console/approvals", "/console/approvals/<approval_id>", "/console/confirmations/<confirmation_id>",
    "/console/kill-switches/off", "/console/kill-switches/on", "/console/keys/new", "/console/keys/<key_id>/rotate",
    "/console/keys/<key_id>", "/console/keys/<key_id>/adopt", "/console/people", "/console/people/<user_id>/remove",
    "/console/account/factors/<factor_id>/remove", "/console/account/recovery-codes",
    "/console/account/data", "/console/appliance/keys", "/console/appliance/master-key/rotate",
    "/console/appliance/master-key/retire", "/console/appliance/people/data", "/console/appliance/people/erase",
    "/console/appliance/scim", "/console/appliance/scim/<token_id>/rotate", "/console/appliance/scim/<token_id>/revoke",
    "/console/service-accounts/new", "/console/service-accounts/<account_id>", "/console/service-accounts/<account_id>/enable",
    "/console/service-accounts/<account_id>/delete", "/console/service-accounts/<account_id>/keys/new",
    "/console/settings/visitors/data", "/console/settings/visitors/erase",
    "/console/account/sessions/end", "/console/account/sessions/end-all", "/console/account/sessions/<sign_in_id>/end",
}  # fmt: skip
REASON = 'Out of <order> & "late"'


@pytest.fixture
def holder(staff: Running, request: pytest.FixtureRequest) -> Holder:
    """An owner of acme with an app, whose last proof is stale."""
    login = f"{request.node.name.partition('[')[0].replace('_', '-')[:60]}@acme.test"
    staff.user(login, PASSWORD, "acme", "owner")
    person = Holder(staff, login)
    assert person.sign_in().status_code == 200
    person.add_app()
    person.grow_stale()
    return person


def switch_off(person: Holder, name: str = "") -> httpx.Response:
    form = {"kind": "agent", "name": name or person.login.partition("@")[0], "reason": REASON, "sure": "yes"}
    return person.browser.post(person.browser.at("acme", "/console/kill-switches/off"), form)


def is_off(person: Holder, name: str = "") -> bool:
    what = name or person.login.partition("@")[0]
    rows = db.rows("SELECT reason FROM switched_off WHERE tenant_id = 'acme' AND name = ?", (what,))
    return rows == [(REASON,)]


def request_of(person: Holder) -> str:
    """The token of the request that the browser is asked to prove something for."""
    assert urlsplit(person.browser.url).path == "/confirm", person.browser.url
    return parse_qs(urlsplit(person.browser.url).query)["request"][0]


def confirm(person: Holder, token: str, code: str) -> httpx.Response:
    return person.browser.post(person.at("/confirm"), {"request": token, "code": code})


def send_again(browser: Browser, page: httpx.Response) -> httpx.Response:
    """Submit the form of the page as its script or its button does."""
    (action,) = re.findall(r'<form method="post" action="([^"]+)"', page.text)
    (value,) = re.findall(r'type="hidden" name="kept-form" value="([\w=-]+)"', page.text)
    return browser.post(browser.at("acme", action), {"kept-form": value})


def change_sessions(person: Holder, values: str) -> None:
    sql = f"UPDATE session SET {values} WHERE user_id = (SELECT id FROM person WHERE login = ?)"  # noqa: S608  constants
    db.write(lambda: db.execute(sql, (person.login,)))


def test_the_sensitive_forms_are_declared() -> None:
    assert {page.path for page in PAGES if page.step_up} == STEP_UP
    assert {page.method for page in PAGES if page.step_up} == {"POST"}


def test_a_form_waits_for_a_code_and_continues(holder: Holder) -> None:
    page = switch_off(holder)
    assert "has to prove it again" in page.text
    assert not is_off(holder)
    token = request_of(holder)
    wrong = confirm(holder, token, "000000")
    assert (wrong.status_code, "This code is wrong" in wrong.text) == (401, True)
    page = confirm(holder, token, holder.code())
    assert "data-sends-itself" in page.text
    assert send_again(holder.browser, page).status_code == 200
    assert is_off(holder)
    assert holder.actions("step_up")[0] == ("step_up.confirm", {"method": "totp", "page": "/console/kill-switches/off"})
    assert switch_off(holder, "another").status_code == 200
    assert is_off(holder, "another"), "the proof lasts"


def test_a_passkey_proves_it_as_well(holder: Holder) -> None:
    device = holder.make_device()
    holder.browser.get(holder.at("/factors/new"))
    confirm(holder, request_of(holder), holder.code())
    assert holder.add_passkey(device).status_code == 201
    holder.grow_stale()
    switch_off(holder)
    token = request_of(holder)
    page = holder.use_passkey(device, f"/confirm/options?request={token}", "/confirm", request=token)
    send_again(holder.browser, page)
    assert is_off(holder)
    assert holder.actions("step_up")[0][1]["method"] == "passkey"


def test_the_form_does_not_go_by_itself_again(holder: Holder) -> None:
    switch_off(holder)
    page = confirm(holder, request_of(holder), holder.code())
    assert "data-sends-itself" in page.text
    again = holder.browser.get(holder.browser.url)
    assert (again.status_code, "data-sends-itself" in again.text, "sent already" in again.text) == (200, False, True)
    send_again(holder.browser, again)
    assert is_off(holder)


def test_a_proof_counts_where_it_was_made(holder: Holder) -> None:
    """Somebody with a stolen session sends its owner the link: the proof does not reach the stolen session's browser."""
    thief = Holder(holder.running, holder.login)
    thief.browser.cookies = {host: dict(jar) for host, jar in holder.browser.cookies.items()}
    root = "of a sign-in elsewhere"
    change_sessions(holder, f"root = '{root}'")
    switch_off(thief)
    token = request_of(thief)
    victim = Holder(holder.running, holder.login, secret=holder.secret)
    victim.sign_in()
    victim.browser.post(victim.at("/sign-in/factor"), {"code": victim.code()})
    victim.grow_stale()
    page = confirm(victim, token, victim.code())
    assert (page.status_code, "made in another browser" in page.text) == (410, True)
    switch_off(thief)
    assert urlsplit(thief.browser.url).path == "/confirm"
    assert not is_off(holder)


def test_a_code_of_somebody_else_proves_nothing(holder: Holder, staff: Running) -> None:
    staff.user("mallory-step@acme.test", PASSWORD, "acme", "owner")
    mallory = Holder(staff, "mallory-step@acme.test")
    mallory.sign_in()
    mallory.add_app()
    mallory.grow_stale()
    switch_off(holder)
    assert confirm(mallory, request_of(holder), mallory.code()).status_code == 401
    switch_off(mallory)
    code_of_mallory = mallory.browser.send(
        "POST", mallory.at("/confirm"), f"request={request_of(mallory)}&code={mallory.code()}",
        {"Sec-Fetch-Site": "same-origin"},
    ).headers["Location"]  # fmt: skip
    stolen = code_of_mallory.partition("code=")[2]
    page = holder.browser.get(holder.browser.at("acme", f"/console/proven?request={request_of(holder)}&code={stolen}"))
    assert page.status_code == 410
    assert not is_off(holder)


def test_unknown_and_expired_requests(holder: Holder) -> None:
    assert holder.browser.get(holder.at("/confirm?request=unknown")).status_code == 404
    assert confirm(holder, "unknown", holder.code()).status_code == 404
    switch_off(holder)
    token = request_of(holder)
    db.write(lambda: db.execute("UPDATE step_up SET expires_at = created_at"))  # a day later, other sessions have ended as well
    assert confirm(holder, token, holder.code()).status_code == 404


def test_without_the_scope_nothing_is_asked(staff: Running) -> None:
    staff.user("viewer-step@acme.test", PASSWORD, "acme", "viewer")
    person = Holder(staff, "viewer-step@acme.test")
    person.sign_in()
    person.add_app()
    person.grow_stale()
    assert switch_off(person).status_code == 403


def test_accounts_without_a_factor_are_not_asked(staff: Running) -> None:
    staff.user("plain-step@acme.test", PASSWORD, "acme", "owner")
    person = Holder(staff, "plain-step@acme.test")
    person.sign_in()
    person.grow_stale()
    assert switch_off(person, "plain").status_code == 200
    assert is_off(person, "plain")


def test_a_form_that_was_kept_at_sign_out_waits_as_well(holder: Holder) -> None:
    change_sessions(holder, "expires_at = 1")
    page = switch_off(holder, "kept")
    assert page.status_code == 401
    holder.sign_in()
    holder.browser.post(holder.at("/sign-in/factor"), {"code": holder.code()})
    holder.grow_stale()
    send_again(holder.browser, page)
    page = confirm(holder, request_of(holder), holder.code())
    send_again(holder.browser, page)
    assert is_off(holder, "kept")


SESSION_FORMS = ("/console/account/sessions/end", "/console/account/sessions/end-all", "/console/account/sessions/{id}/end")


def sign_ins_of(login: str) -> int:
    sql = "SELECT COUNT(DISTINCT root) FROM session WHERE kind = 'session' AND user_id = (SELECT id FROM person WHERE login = ?)"
    return int(db.rows(sql, (login,))[0][0])


@pytest.mark.parametrize("path", SESSION_FORMS)
def test_ending_sessions_asks_for_the_password_again(staff: Running, path: str) -> None:
    """Also without a second factor, and without `step_up_password`."""
    login = f"ends-sessions-{SESSION_FORMS.index(path)}@acme.test"
    staff.user(login, PASSWORD, "acme", "viewer")
    person, elsewhere = Holder(staff, login), Holder(staff, login)
    person.sign_in()
    elsewhere.sign_in()
    account = person.browser.get(person.browser.at("acme", "/console/account")).text
    ids = re.findall(r"/console/account/sessions/([0-9a-f]{32})/end", account)
    person.grow_stale()
    person.browser.post(person.browser.at("acme", path.format(id=ids[0])), {})
    token = request_of(person)
    assert sign_ins_of(login) == 2
    wrong = person.browser.post(person.at("/confirm"), {"request": token, "password": "not my password at all"})
    assert (wrong.status_code, sign_ins_of(login)) == (401, 2)
    page = person.browser.post(person.at("/confirm"), {"request": token, "password": PASSWORD})
    send_again(person.browser, page)
    assert sign_ins_of(login) == (0 if path.endswith("end-all") else 1)
    assert not elsewhere.is_signed_in()


def test_ending_sessions_asks_for_the_second_factor_of_who_has_one(holder: Holder) -> None:
    holder.browser.post(holder.browser.at("acme", SESSION_FORMS[0]), {})
    token = request_of(holder)
    by_password = holder.browser.post(holder.at("/confirm"), {"request": token, "password": PASSWORD})
    assert by_password.status_code == 401
    page = confirm(holder, token, holder.code())
    assert send_again(holder.browser, page).status_code == 200


def test_other_forms_ask_nobody_without_a_factor(staff: Running) -> None:
    staff.user("no-factor-no-question@acme.test", PASSWORD, "acme", "owner")
    person = Holder(staff, "no-factor-no-question@acme.test")
    person.sign_in()
    person.grow_stale()
    assert switch_off(person).status_code == 200
    assert is_off(person)
