"""Sign-in on the base host, sessions on the tenants' hosts, and the redirects between them."""

import re
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from appliance.console.frame import saved_forms
from appliance.core.database import db
from appliance.tenants import people
from appliance.testing.running import Running
from tests.console.browser import Browser
from tests.console.conftest import PASSWORD

SESSION = "__Host-gos"
FOREIGN_TARGETS = [
    *("//evil.test/", "https://evil.test/", "/console/..//evil", "/console/\\evil", "/api/v1/", "javascript:1"),
    *("/console/\u20ac", "/console/\r\nX: 1"),
]


@pytest.fixture
def browser(staff: Running) -> Browser:
    return Browser(staff)


def send_request(running: Running, host: str, path: str, method: str = "GET", **headers: str) -> httpx.Response:
    with running.client(host, headers) as client:
        return client.request(method, path)


def test_sign_in_leads_to_the_requested_page(browser: Browser) -> None:
    browser.get(browser.at("acme", "/console/executions?state=failed"))
    assert urlsplit(browser.url).path == "/sign-in"
    page = browser.post(browser.url, {"login": " Owner@acme.test ", "password": PASSWORD})
    assert page.status_code == 200
    assert browser.url == browser.at("acme", "/console/executions?state=failed")
    assert set(browser.cookies[urlsplit(browser.url).netloc]) == {SESSION}


def test_sign_in_after_an_expired_session_leads_back(staff: Running) -> None:
    browser = Browser(staff)
    user_id = staff.user("away@acme.test", PASSWORD, "acme", "viewer")
    browser.sign_in("away@acme.test", PASSWORD, "acme")
    db.write(lambda: db.execute("UPDATE session SET expires_at = 1 WHERE user_id = ?", (user_id,)))
    browser.get(browser.at("acme", "/console/logs?q=late&level=error"))
    assert urlsplit(browser.url).path == "/sign-in"
    browser.post(browser.url, {"login": "away@acme.test", "password": PASSWORD})
    assert browser.url == browser.at("acme", "/console/logs?q=late&level=error")


def submit_after_expiry(staff: Running, form: dict[str, str | list[str]]) -> tuple[Browser, httpx.Response]:
    """Submits a form of a builder whose session has expired; returns the browser, signed in again, and the page."""
    browser = Browser(staff)
    login = f"late-{form['id']}@acme.test"
    user_id = staff.user(login, PASSWORD, "acme", "builder")
    browser.sign_in(login, PASSWORD, "acme")
    db.write(lambda: db.execute("UPDATE session SET expires_at = 1 WHERE user_id = ?", (user_id,)))
    page = browser.post(browser.at("acme", "/console/processes/-/new?from=menu"), form)
    browser.sign_in(login, PASSWORD, "acme")
    return browser, page


def saved_form_in(page: httpx.Response) -> dict[str, str | list[str]]:
    (value,) = re.findall(r'type="hidden" name="kept-form" value="([\w=-]+)"', page.text)
    return {"kept-form": value}


def test_a_form_sent_without_a_session_is_saved_and_resubmitted(staff: Running) -> None:
    name = 'Late & "quoted" <b>'
    browser, page = submit_after_expiry(staff, {"id": "kept-form", "template": "decision", "name": name})
    assert page.status_code == 401
    assert "<strong>Nothing was saved or done.</strong> What" in page.text
    assert 'action="/console/processes/-/new?from=menu"' in page.text
    assert "quoted" not in page.text
    with staff.api("acme") as api:
        assert api.get("/api/v1/processes/kept-form").status_code == 404
        assert browser.post(browser.at("acme", "/console/processes/-/new"), saved_form_in(page)).status_code == 200
        assert api.get("/api/v1/processes/kept-form").json()["data"]["name"] == name
        api.delete("/api/v1/processes/kept-form").raise_for_status()


def test_a_saved_form_is_bound_to_its_page_and_expires(staff: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    browser, page = submit_after_expiry(staff, {"id": "kept-long", "template": "decision", "name": "Late"})
    elsewhere = browser.post(browser.at("acme", "/console/secrets"), saved_form_in(page))
    assert (elsewhere.status_code, "This saved form has expired" in elsewhere.text) == (403, True)
    forged = browser.post(browser.at("acme", "/console/processes/-/new"), {"kept-form": "AAAA"})
    assert (forged.status_code, "This saved form has expired" in forged.text) == (403, True)
    monkeypatch.setattr(saved_forms, "LIFETIME_MS", -1)
    browser, page = submit_after_expiry(staff, {"id": "kept-old", "template": "decision", "name": "Late"})
    old = browser.post(browser.at("acme", "/console/processes/-/new"), saved_form_in(page))
    assert (old.status_code, "This saved form has expired" in old.text) == (403, True)


def test_a_saved_form_is_preserved_while_signed_out(staff: Running) -> None:
    browser, page = submit_after_expiry(staff, {"id": "kept-twice", "template": "decision", "name": "Twice"})
    browser.cookies.clear()
    assert saved_form_in(browser.post(browser.at("acme", "/console/processes/-/new"), saved_form_in(page))) == saved_form_in(page)


def test_a_saved_form_can_only_be_sent_by_its_author(staff: Running, signed_in: Callable[[str], Browser]) -> None:
    browser, page = submit_after_expiry(staff, {"id": "kept-own", "template": "decision", "name": "Mine alone"})
    address = browser.at("acme", "/console/processes/-/new")
    refused = signed_in("owner@acme.test").post(address, saved_form_in(page))
    assert (refused.status_code, "Mine alone" in refused.text) == (403, False)
    assert "You are signed in as <strong>owner@acme.test</strong>, but someone else wrote what this page keeps" in refused.text
    with staff.api("acme") as api:
        assert api.get("/api/v1/processes/kept-own").status_code == 404
        assert browser.post(address, saved_form_in(refused)).status_code == 200, "it stays saved for its author"
        assert api.get("/api/v1/processes/kept-own").json()["data"]["name"] == "Mine alone"
        api.delete("/api/v1/processes/kept-own").raise_for_status()


def test_a_form_without_a_known_author_is_not_saved(staff: Running) -> None:
    """After a sign-out the browser has no cookie, and a forged cookie identifies no one."""
    browser, _ = submit_after_expiry(staff, {"id": "kept-none", "template": "decision", "name": "None"})
    host = next(host for host in browser.cookies if host.startswith("acme."))
    secret, user_id, seal = browser.cookies[host][SESSION].split(".")
    for cookies in ({}, {SESSION: f"{secret}.usr_other.{seal}"}, {SESSION: f"{secret}.{user_id}."}, {SESSION: "x"}):
        browser.cookies[host] = cookies
        page = browser.post(browser.at("acme", "/console/processes/-/new"), {"id": "kept-none", "name": "None"})
        assert (page.status_code, "kept-form" in page.text) == (401, False)
        assert "its author is unknown" in page.text


def test_files_sent_without_a_session_have_to_be_chosen_again(browser: Browser) -> None:
    page = browser.upload(browser.at("acme", "/console/documents/-/upload"), ("words.txt", b"words"))
    assert page.status_code == 401
    assert "you need to choose them again" in page.text
    assert "<form" not in page.text


def test_forms_of_other_sites_are_not_saved(browser: Browser) -> None:
    page = browser.post(browser.at("acme", "/console/processes/-/new"), {"name": "kept"}, **{"Sec-Fetch-Site": "cross-site"})
    assert (page.status_code, "kept" in page.text) == (403, False)


def test_signing_out_twice_is_harmless(browser: Browser) -> None:
    browser.post(browser.at("acme", "/console/sign-out"), {})
    assert urlsplit(browser.url).path == "/sign-in"


def test_the_session_cookie_has_every_protective_attribute(staff: Running) -> None:
    browser = Browser(staff)
    browser.sign_in("viewer@acme.test", PASSWORD, "acme")
    lines = [line for line in browser.set_cookies if line.startswith(f"{SESSION}=")]
    assert len(lines) == 2
    for line in lines:
        assert {"Secure", "HttpOnly", "SameSite=Lax", "Path=/"} <= {part.strip() for part in line.split(";")}
        assert "domain" not in line.lower()
    assert len({line.split(";")[0] for line in lines}) == 2


@pytest.mark.parametrize(("login", "password"), [("owner@acme.test", "wrong"), ("nobody@acme.test", PASSWORD), ("", "")])
def test_a_wrong_login_and_a_wrong_password_look_alike(browser: Browser, login: str, password: str) -> None:
    page = browser.post(browser.at("", "/sign-in"), {"login": login, "password": password})
    assert page.status_code == 401
    assert "The login or the password is wrong." in page.text
    assert not browser.cookies.get(urlsplit(browser.url).netloc)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_form_of_another_site_cannot_sign_in(browser: Browser, site: str) -> None:
    form = {"login": "owner@acme.test", "password": PASSWORD}
    assert browser.post(browser.at("", "/sign-in"), form, **{"Sec-Fetch-Site": site}).status_code == 403
    assert not browser.cookies.get(urlsplit(browser.url).netloc)


def code_for(browser: Browser, tenant: str) -> str:
    """The address with the one-time code that the base host redirects to; the redirect is not followed."""
    answer = browser.send("GET", browser.at("", f"/hand-over?tenant={tenant}&state=s&to=/console/"), None, {})
    return str(answer.headers["Location"])


def test_a_code_works_once_and_only_in_the_same_browser(staff: Running) -> None:
    attacker, victim = Browser(staff), Browser(staff)
    attacker.sign_in("owner@acme.test", PASSWORD, "acme")
    victim.get(code_for(attacker, "acme"))
    assert urlsplit(victim.url).path == "/sign-in", "a link with somebody else's code must not sign the victim in as them"
    mine = Browser(staff)
    mine.get(mine.at("acme", "/console/"))
    host = urlsplit(mine.at("acme", "/")).netloc
    state = mine.cookies[host]["__Host-gos-enter"]
    link = code_for(attacker, "acme").replace("state=s", f"state={state}")
    first = mine.send("GET", link, None, {})
    assert SESSION in first.headers["set-cookie"]
    mine.cookies[host] = {"__Host-gos-enter": state}
    again = mine.send("GET", link, None, {})
    assert SESSION not in [line.split("=")[0] for line in again.headers.get_list("set-cookie")]


def test_a_code_is_valid_for_one_tenant(staff: Running) -> None:
    browser = Browser(staff)
    browser.sign_in("owner@acme.test", PASSWORD, "acme")
    code = parse_qs(urlsplit(code_for(browser, "acme")).query)["code"][0]
    other = Browser(staff)
    other.get(other.at("globex", "/console/"))
    state = next(iter(other.cookies[urlsplit(other.at("globex", "/")).netloc].values()))
    other.get(other.at("globex", f"/console/enter?code={code}&state={state}"))
    assert urlsplit(other.url).path == "/sign-in"


def test_a_foreign_tenant_and_an_unknown_one_look_alike(browser: Browser) -> None:
    browser.sign_in("owner@acme.test", PASSWORD, "acme")
    pages = []
    for tenant in ("globex", "nowhere"):
        page = browser.get(browser.at("", f"/hand-over?tenant={tenant}&state=s&to=/console/"))
        pages.append((page.status_code, page.text.replace(tenant, "…")))
    assert pages[0] == pages[1]
    assert pages[0][0] == 404


def test_a_session_is_valid_for_one_tenant(browser: Browser) -> None:
    browser.sign_in("owner@acme.test", PASSWORD, "acme")
    token = browser.cookies[urlsplit(browser.url).netloc][SESSION]
    answer = send_request(browser.running, "globex.localhost", "/console/processes", Cookie=f"{SESSION}={token}")
    assert answer.status_code == 303
    assert urlsplit(answer.headers["Location"]).path == "/hand-over"


@pytest.mark.parametrize("target", FOREIGN_TARGETS)
def test_sign_in_leads_to_no_other_site(browser: Browser, target: str) -> None:
    browser.get(browser.at("acme", "/console/"))
    url = httpx.URL(browser.url).copy_merge_params({"to": target})
    browser.post(str(url), {"login": "viewer@acme.test", "password": PASSWORD})
    assert browser.url == browser.at("acme", "/console/")


def test_signing_out_ends_both_sessions(browser: Browser) -> None:
    browser.sign_in("owner@acme.test", PASSWORD, "acme")
    cookies = {host: dict(jar) for host, jar in browser.cookies.items()}
    browser.post(browser.at("acme", "/console/sign-out"), {})
    assert urlsplit(browser.url).path == "/sign-in"
    browser.cookies = cookies
    browser.get(browser.at("acme", "/console/processes"))
    assert urlsplit(browser.url).path == "/sign-in", "the tokens themselves are invalid, not only the cookies"


def test_a_link_cannot_sign_out(browser: Browser) -> None:
    browser.sign_in("owner@acme.test", PASSWORD, "acme")
    browser.get(browser.at("", "/sign-out?tenant=acme&code=guess"))
    assert browser.get(browser.at("acme", "/console/processes")).status_code == 200
    assert urlsplit(browser.url).path == "/console/processes"


def test_losing_the_membership_ends_the_session(staff: Running) -> None:
    user_id = staff.user("leaver@acme.test", PASSWORD, "acme", "operator")
    browser = Browser(staff)
    assert browser.sign_in("leaver@acme.test", PASSWORD, "acme").status_code == 200
    people.remove_member(staff.tenant("acme"), user_id)
    assert browser.get(browser.at("acme", "/console/processes")).status_code == 404


def test_a_person_without_a_tenant_gets_a_sandbox_with_the_example(browser: Browser) -> None:
    page = browser.post(browser.at("", "/sign-in"), {"login": "guest@console.test", "password": PASSWORD})
    assert page.status_code == 200
    host = str(urlsplit(browser.url).hostname)
    assert host.startswith("sandbox-guest")
    assert "Order intake" in page.text
    browser.get(browser.at("", "/"))
    assert urlsplit(browser.url).hostname == host, "a second visit creates no second sandbox"


def test_several_tenants_are_a_choice(staff: Running) -> None:
    staff.user("both@console.test", PASSWORD, "acme", "viewer")
    people.add_member(staff.tenant("globex"), "both@console.test", "builder")
    browser = Browser(staff)
    page = browser.post(browser.at("", "/sign-in"), {"login": "both@console.test", "password": PASSWORD})
    assert urlsplit(browser.url).path == "/"
    assert browser.at("acme", "/console/") in page.text
    assert browser.at("globex", "/console/") in page.text


def test_an_ip_address_redirects_to_the_host_with_cookies(staff: Running) -> None:
    page = send_request(staff, "127.0.0.1", "/sign-in")
    assert page.headers["Location"] == f"http://localhost{staff.config.port_suffix}/sign-in"


@pytest.mark.parametrize("path", ["/", "/sign-in", "/hand-over", "/sign-out"])
def test_pages_of_the_base_host_are_not_served_by_tenants(staff: Running, path: str) -> None:
    answer = send_request(staff, "acme.localhost", path)
    expected = (303, "/console/") if path == "/" else (404, None)
    assert (answer.status_code, answer.headers.get("Location")) == expected
