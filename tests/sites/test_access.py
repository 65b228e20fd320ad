"""The gate of apps over HTTP: passwords, members, e-mail codes, and visits that are not valid elsewhere."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import httpx
import pytest

from appliance.sites.sign_in.visiting import safe_target
from appliance.solutions import write_zip
from appliance.testing.running import Running

from .test_webapps import deploy, new_app

PASSWORD = "open sesame, please"
FILES = {
    "index.html": b"<h1>Inside</h1>", "assets/app.css": b"p{}", "report.html": b"<h1>Report</h1>", "404.html": b"<h1>Lost</h1>",
    "_headers": b"/report.html\n  Cache-Control: public, max-age=600, s-maxage=900\n",
}  # fmt: skip
PAGE = {"Sec-Fetch-Mode": "navigate", "Accept": "text/html"}
FORM = {"Sec-Fetch-Site": "same-origin", **PAGE}


def open_app(acme: httpx.Client, app: str, access: Any) -> None:
    """Deploy an app with this access; it has a public folder, so its settings are deployed too."""
    response = acme.get(f"/api/v1/webapps/{app}")
    if response.status_code == 404:
        new_app(acme, app)
    about = {"app.yaml": json.dumps({"access": access}).encode()}
    deploy(acme, app, about | {f"public/{path}": data for path, data in FILES.items()})


@pytest.fixture(scope="module")
def door(running: Running, acme: httpx.Client, globex: httpx.Client) -> str:
    """An app of acme with a password and one of globex with the same name and password."""
    access = {"password": {"secret": "DOOR"}, "paths": {"public": ["/assets/*"]}}
    for client in (acme, globex):
        client.put("/api/v1/secrets/DOOR", json={"value": PASSWORD}).raise_for_status()
        open_app(client, "door", access)
    open_app(acme, "other-door", access)
    return "door"


@pytest.fixture
def visitor(running: Running) -> Iterator[Callable[[str], httpx.Client]]:
    """Makes a browser that has never been here, on the host of an app."""
    clients: list[httpx.Client] = []

    def make(host: str) -> httpx.Client:
        clients.append(running.client(f"{host}.content.localhost"))
        return clients[-1]

    yield make
    for each in clients:
        each.close()


def send(browser: httpx.Client, path: str, fields: dict[str, str], **headers: str) -> httpx.Response:
    return browser.post(path, data=fields, headers={**FORM, **headers})


def enter(browser: httpx.Client, to: str = "/") -> httpx.Response:
    answer = send(browser, "/_gos/sign-in", {"password": PASSWORD, "to": to})
    browser.headers["Cookie"] = cookie_of(answer)
    return answer


def cookie_of(answer: httpx.Response) -> str:
    """The Cookie header that a browser would send: the client does not return `Secure` cookies over HTTP, even to localhost."""
    set_now = [each.partition(";")[0] for each in answer.headers.get_list("set-cookie")]
    return "; ".join(each for each in set_now if each.partition("=")[2])


def test_a_page_requires_sign_in_and_returns_there(door: str, visitor: Callable[[str], httpx.Client]) -> None:
    browser = visitor("door--acme")
    away = browser.get("/report?year=2026", headers=PAGE)
    assert (away.status_code, away.headers["location"]) == (303, "/_gos/sign-in?to=%2Freport%3Fyear%3D2026")
    page = browser.get(away.headers["location"], headers=PAGE)
    assert page.status_code == 200
    assert 'value="/report?year=2026"' in page.text
    assert "script" not in page.headers["content-security-policy"]
    assert not re.search(r"(src|href)=\"(https?:)?//", page.text)
    done = enter(browser, "/report?year=2026")
    assert (done.status_code, done.headers["location"]) == (303, "/report?year=2026")
    (cookie,) = [each for each in done.headers.get_list("set-cookie") if each.startswith("__Host-gos_visit=")]
    assert {"Secure", "HttpOnly", "SameSite=Lax", "Path=/"} <= set(cookie.split("; "))
    inside = browser.get("/report?year=2026", headers=PAGE)
    assert inside.content == FILES["report.html"]
    assert inside.headers["cache-control"] == "private, max-age=600"
    assert "cookie" in inside.headers["vary"]
    assert browser.get("/_gos/visit").json()["data"] == {"kind": "password", "id": "", "email": ""}


def test_a_script_gets_an_error_instead_of_a_redirect(door: str, visitor: Callable[[str], httpx.Client]) -> None:
    browser = visitor("door--acme")
    for answer in (browser.get("/data.json"), browser.post("/api/orders", json={}), browser.get("/_gos/visit")):
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "sign_in_required")


def test_public_paths_are_open_and_expose_nothing_else(door: str, visitor: Callable[[str], httpx.Client]) -> None:
    browser = visitor("door--acme")
    style = browser.get("/assets/app.css")
    assert (style.content, style.headers["cache-control"]) == (b"p{}", "public, max-age=0, must-revalidate")
    lost = browser.get("/assets/none.css")
    assert (lost.status_code, lost.content) == (404, b"not found")
    enter(browser)
    assert browser.get("/assets/none.css").content == FILES["404.html"]


def test_a_wrong_password_is_reported_and_then_delayed(
    acme: httpx.Client, door: str, visitor: Callable[[str], httpx.Client]
) -> None:
    open_app(acme, "knocked-door", {"password": {"secret": "DOOR"}})
    browser = visitor("knocked-door--acme")
    answers = [send(browser, "/_gos/sign-in", {"password": f"wrong {number}"}) for number in range(5)]
    while answers[-1].status_code == 401 and len(answers) < 20:  # the wait doubles, so that no slow machine outlasts it
        answers.append(send(browser, "/_gos/sign-in", {"password": "wrong again"}))
    assert [answer.status_code for answer in answers[:5]] == [401] * 5
    assert not any("set-cookie" in answer.headers for answer in answers)
    assert answers[-1].status_code == 429
    assert int(answers[-1].headers["retry-after"]) >= 1


def test_a_cross_site_form_is_refused(door: str, visitor: Callable[[str], httpx.Client]) -> None:
    browser = visitor("door--acme")
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}):
        assert send(browser, "/_gos/sign-in", {"password": PASSWORD}, **headers).status_code == 403
    bare = browser.post("/_gos/sign-in", data={"password": PASSWORD}, headers={"Origin": "http://evil.example"})
    assert bare.status_code == 403
    assert browser.post("/_gos/sign-in", data={"password": PASSWORD}).status_code == 403, "it does not say where from"
    own = f"http://{browser.headers['Host']}"
    assert browser.post("/_gos/sign-in", data={"password": PASSWORD}, headers={"Origin": own}).status_code == 303


def test_a_visit_is_not_valid_for_another_app(door: str, visitor: Callable[[str], httpx.Client], running: Running) -> None:
    browser = visitor("door--acme")
    enter(browser)
    cookie = browser.headers["Cookie"]
    assert browser.get("/", headers=PAGE).status_code == 200
    for host in ("door--globex", "other-door--acme"):
        elsewhere = visitor(host)
        assert elsewhere.get("/", headers={**PAGE, "Cookie": cookie}).status_code == 303
    token = cookie.partition("=")[2]
    with running.client("acme.localhost") as console:
        assert console.get("/console/", headers={"Cookie": f"__Host-gos={token}"}).status_code == 303


def test_a_planted_cookie_is_replaced(door: str, visitor: Callable[[str], httpx.Client]) -> None:
    browser = visitor("door--acme")
    planted = "__Host-gos_visit=planted-by-somebody"
    answer = send(browser, "/_gos/sign-in", {"password": PASSWORD}, Cookie=planted)
    first = cookie_of(answer)
    assert "planted" not in first
    second = cookie_of(send(browser, "/_gos/sign-in", {"password": PASSWORD}, Cookie=first))
    assert browser.get("/", headers={**PAGE, "Cookie": second}).status_code == 200
    for old in (planted, first):
        assert browser.get("/", headers={**PAGE, "Cookie": old}).status_code == 303


def test_sign_out_and_revocation_end_a_visit(acme: httpx.Client, door: str, visitor: Callable[[str], httpx.Client]) -> None:
    for cause in ("sign-out", "operator"):
        browser = visitor("other-door--acme")
        enter(browser)
        assert browser.get("/", headers=PAGE).status_code == 200
        if cause == "sign-out":
            assert browser.get("/_gos/sign-out", headers=PAGE).status_code == 200
            assert send(browser, "/_gos/sign-out", {}, **{"Sec-Fetch-Site": "cross-site"}).status_code == 403
            assert browser.get("/", headers=PAGE).status_code == 200
            assert send(browser, "/_gos/sign-out", {}).headers["location"] == "/_gos/signed-out"
        else:
            (visit,) = acme.get("/api/v1/webapps/other-door/visits").json()["data"]
            acme.delete(f"/api/v1/webapps/other-door/visits/{visit['id']}").raise_for_status()
        assert browser.get("/", headers=PAGE).status_code == 303


def test_publishing_with_other_access_ends_visits(acme: httpx.Client, door: str, visitor: Callable[[str], httpx.Client]) -> None:
    open_app(acme, "changing-door", {"password": {"secret": "DOOR"}})
    browser = visitor("changing-door--acme")
    enter(browser)
    open_app(acme, "changing-door", {"password": {"secret": "DOOR"}, "paths": {"public": ["/assets/*"]}})
    assert browser.get("/", headers=PAGE).status_code == 200
    open_app(acme, "changing-door", "members")
    assert browser.get("/", headers=PAGE).status_code == 303
    open_app(acme, "changing-door", "public")
    assert browser.get("/", headers=PAGE).status_code == 200
    assert browser.get("/_gos/sign-in", headers=PAGE).status_code == 404


def test_a_missing_password_secret_admits_nobody(acme: httpx.Client, visitor: Callable[[str], httpx.Client]) -> None:
    open_app(acme, "keyless", {"password": {"secret": "NOT_SET"}})
    browser = visitor("keyless--acme")
    answer = send(browser, "/_gos/sign-in", {"password": ""})
    assert answer.status_code == 503
    assert "NOT_SET" not in answer.text
    for _ in range(25):
        assert send(browser, "/_gos/sign-in", {"password": "x"}).status_code == 503
    acme.put("/api/v1/secrets/ANOTHER", json={"value": "x"}).raise_for_status()  # behind the lines in the writer's queue
    lines = acme.get("/api/v1/logs", params={"source": "webapp", "text": "sign in to the app keyless", "limit": 100}).json()["data"]
    assert len(lines) == 20


@pytest.mark.parametrize(
    "target",
    [
        "//evil.example", "https://evil.example", "/\\evil.example", "\\/evil.example", "/ /evil.example", "/\t/evil.example",
        "/\n/evil.example", "javascript:alert(1)", "evil.example", "/.//evil.example", "/a//evil.example", "///evil.example",
        "/_gos/sign-out", "/" + "a" * 3000, "/\u2028/evil", "http:/evil.example", "/%0d%0aSet-Cookie:x=y\r\n", "", "?x=//evil",
    ],
)  # fmt: skip
def test_targets_stay_on_the_host(target: str, door: str, visitor: Callable[[str], httpx.Client]) -> None:
    assert safe_target(target) == "/"
    assert safe_target("/report?next=//evil.example&a=%2F") == "/report?next=//evil.example&a=%2F"
    browser = visitor("door--acme")
    if "\r" not in target and "\n" not in target:
        page = browser.get(f"/_gos/sign-in?to={quote(target)}", headers=PAGE)
        assert 'name="to" value="/"' in page.text
        assert send(browser, "/_gos/sign-in", {"password": PASSWORD, "to": target}).headers["location"] == "/"


# -- members

LOGIN, OUTSIDER, WORD = "mia@visits.test", "eve@visits.test", "correct horse battery"


@pytest.fixture(scope="module")
def club(running: Running, acme: httpx.Client) -> str:
    open_app(acme, "club", {"members": {"roles": ["builder"]}})
    running.user(LOGIN, WORD, "acme", "builder")
    running.user(OUTSIDER, WORD, "globex", "builder")
    return "club"


@pytest.fixture(scope="module")
def base(running: Running, club: str) -> Iterator[httpx.Client]:
    """The base host, with Mia signed in."""
    with running.client("localhost") as client:
        client.headers["Cookie"] = cookie_of(send(client, "/sign-in", {"login": LOGIN, "password": WORD}))
        yield client


def start_sign_in(browser: httpx.Client, path: str = "/_gos/sign-in") -> tuple[str, str]:
    """Start a sign-in; returns the path on the base host, and the cookie of this browser."""
    away = browser.get(path, headers=PAGE)
    url = urlsplit(away.headers["location"])
    assert (away.status_code, url.hostname, url.path) == (303, "localhost", "/visit")
    return f"{url.path}?{url.query}", cookie_of(away)


def test_a_member_signs_in_through_the_base_host(
    running: Running, club: str, base: httpx.Client, visitor: Callable[[str], httpx.Client]
) -> None:
    browser = visitor("club--acme")
    path, cookie = start_sign_in(browser, "/_gos/sign-in?to=%2Freport")
    assert cookie.startswith("__Host-gos_ask=")
    back = base.get(path)
    url = urlsplit(back.headers["location"])
    here = f"club--acme.content.localhost{running.config.port_suffix}"
    assert (back.status_code, url.netloc, url.path) == (303, here, "/_gos/enter")
    stranger = visitor("club--acme").get(f"{url.path}?{url.query}", headers=PAGE)
    assert stranger.status_code == 400
    done = browser.get(f"{url.path}?{url.query}", headers={**PAGE, "Cookie": cookie})
    assert (done.status_code, done.headers["location"]) == (303, "/report")
    visit = cookie_of(done)
    assert browser.get("/_gos/visit", headers={"Cookie": visit}).json()["data"]["email"] == LOGIN
    again = browser.get(f"{url.path}?{url.query}", headers={**PAGE, "Cookie": cookie})
    assert again.status_code == 400  # the code is used


def test_a_code_is_valid_for_one_host_only(acme: httpx.Client, base: httpx.Client, visitor: Callable[[str], httpx.Client]) -> None:
    open_app(acme, "second-club", "members")
    browser, other = visitor("club--acme"), visitor("second-club--acme")
    path, cookie = start_sign_in(browser)
    url = urlsplit(base.get(path).headers["location"])
    _, other_cookie = start_sign_in(other)
    for jar in (cookie, other_cookie):
        answer = other.get(f"{url.path}?{url.query}", headers={**PAGE, "Cookie": jar})
        assert (answer.status_code, "set-cookie" in answer.headers) == (400, False)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "acme.localhost", "localhost", "", "club--nobody.content.localhost", "none--acme.content.localhost"],
)
def test_the_base_host_redirects_only_to_known_apps(base: httpx.Client, host: str) -> None:
    answer = base.get("/visit", params={"host": host, "state": "x"})
    assert answer.status_code == 404
    assert "location" not in answer.headers


def test_only_members_get_a_code_and_only_allowed_roles_a_visit(
    running: Running, acme: httpx.Client, club: str, base: httpx.Client, visitor: Callable[[str], httpx.Client]
) -> None:
    path, _ = start_sign_in(visitor("club--acme"))
    with running.client("localhost") as elsewhere:
        cookie = cookie_of(send(elsewhere, "/sign-in", {"login": OUTSIDER, "password": WORD}))
        assert elsewhere.get(path, headers={"Cookie": cookie}).status_code == 404
    open_app(acme, "owners-club", {"members": {"roles": ["owner"]}})
    browser = visitor("owners-club--acme")
    path, cookie = start_sign_in(browser)
    url = urlsplit(base.get(path).headers["location"])
    refused = browser.get(f"{url.path}?{url.query}", headers={**PAGE, "Cookie": cookie})
    assert refused.status_code == 403
    assert "set-cookie" not in refused.headers


def test_a_base_host_sign_in_continues_to_the_app(running: Running, club: str, visitor: Callable[[str], httpx.Client]) -> None:
    path, _ = start_sign_in(visitor("club--acme"))
    with running.client("localhost") as browser:
        form = browser.get(path)
        assert form.headers["location"].startswith("/sign-in?host=club--acme")
        page = browser.get(form.headers["location"])
        (action,) = re.findall(r'action="(/sign-in\?[^"]*)"', page.text)
        done = send(browser, action.replace("&amp;", "&"), {"login": LOGIN, "password": WORD})
        assert urlsplit(done.headers["location"]).path == "/visit/signed-in"
        between = browser.get(done.headers["location"], headers={"Cookie": cookie_of(done)})
        (onward,) = set(re.findall(r'href="(/visit\?[^"]*)"', between.text))
        assert parse_qs(urlsplit(onward.replace("&amp;", "&")).query) == parse_qs(urlsplit(path).query)


def test_an_archive_defines_its_access(acme: httpx.Client, door: str) -> None:
    version = acme.get("/api/v1/webapps/door/versions/1").json()["data"]
    assert version["access"] == {"password": {"secret": "DOOR"}, "paths": {"public": ["/assets/*"]}}
    archive = write_zip({"app.yaml": b"access: {members: {roles: [boss]}}", "public/index.html": b"x"})
    refused = acme.post("/api/v1/webapps/door/versions", content=archive, headers={"Content-Type": "application/zip"})
    assert refused.status_code == 422
    assert refused.json()["error"]["details"][0]["pointer"] == "/access/members/roles/0"
