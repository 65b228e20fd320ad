"""Sign-in by a header of a trusted proxy: who may send it, whose session it is, and that nobody else ever sees it."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx
import pytest

from appliance.sites.front import Front
from appliance.tenants import people
from appliance.testing.running import Running

LOCAL = "a local password here"
PROXY, STRANGER = "127.0.0.2", "127.0.0.3"
NAVIGATE = {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}
Headers = Sequence[tuple[str, str]]


@pytest.fixture(scope="module")
def live(start_appliance: Callable[..., Running], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    roles = [{"group": "ops", "tenant": "acme", "role": "operator"}, {"group": "bosses", "tenant": "acme", "role": "owner"}]
    running = start_appliance(
        tmp_path_factory.mktemp("header"), console__provision="off", server__trusted_proxies=["127.0.0.2/32", "127.0.0.4/32"],
        console__administrators=["chief@corp.test"], sign_in__trusted_headers=[{
            "id": "proxy", "name": "Corp", "header": "Remote-User", "groups_header": "Remote-Groups", "proxies": ["127.0.0.2/32"],
            "roles": roles, "logout_url": "https://id.corp.test/logout", "login_header": "Remote-Email",
        }],
    )  # fmt: skip
    running.tenant("acme")
    running.user("owner@acme.test", LOCAL, "acme", "owner")
    yield running
    running.stop()


class Visitor:
    """A browser behind a proxy, which sends headers with each of its requests; cookies belong to hosts."""

    def __init__(self, running: Running, address: str = PROXY) -> None:
        self._running, self._address = running, address
        self.cookies: dict[str, dict[str, str]] = {}
        self.port = running.config.server.port
        self.always: Headers = ()
        self.url = ""

    def at(self, host: str, path: str) -> str:
        return f"http://{f'{host}.' if host else ''}localhost{self._running.config.port_suffix}{path}"

    def send(self, method: str, url: str, headers: Headers = (), form: dict[str, str] | None = None) -> httpx.Response:
        """One request; redirects are not followed."""
        parts = urlsplit(url)
        jar = self.cookies.setdefault(parts.netloc, {})
        own = [*NAVIGATE.items(), ("Host", parts.netloc), *self.always, *headers]
        own += [("Cookie", "; ".join(f"{name}={value}" for name, value in jar.items()))] if jar else []
        transport = httpx.HTTPTransport(local_address=self._address)
        with httpx.Client(transport=transport, timeout=90, trust_env=False) as client:
            target = f"http://127.0.0.1:{self.port}{parts.path}{f'?{parts.query}' if parts.query else ''}"
            if form is not None:
                own = [("Sec-Fetch-Site", "same-origin"), *own[2:]]
            response = client.request(method, target, headers=own, data=form)
        for line in response.headers.get_list("set-cookie"):
            name, _, value = line.partition(";")[0].partition("=")
            jar.pop(name, None)
            jar |= {name: value} if value else {}
        return response

    def go(self, url: str, headers: Headers = (), method: str = "GET", form: dict[str, str] | None = None) -> httpx.Response:
        """Follow redirects; each request has the headers."""
        for _ in range(10):
            response = self.send(method, url, headers, form)
            self.url = url
            if response.status_code != 303:
                return response
            method, url, form = "GET", urljoin(url, response.headers["location"]), None
        raise AssertionError(f"redirects without an end, the last to {url}")


def sent(user: str, groups: str = "ops", email: str = "") -> Headers:
    return [("Remote-User", user), ("Remote-Groups", groups), ("Remote-Email", email or f"{user.lower()}@corp.test")]


def roles_of(login: str) -> dict[str, str]:
    return {tenant.id: role for tenant, role in people.tenants_of(people.find_user(login).id)}


def is_inside(visitor: Visitor, headers: Headers = ()) -> bool:
    url = visitor.at("acme", "/console/")
    return visitor.go(url, headers).status_code == 200 and visitor.url == url


# -- who may send it


def test_the_proxy_signs_somebody_in_with_the_roles_of_their_groups(live: Running) -> None:
    visitor = Visitor(live)
    page = visitor.go(visitor.at("acme", "/console/executions"), sent("ann", "staff, ops"))
    assert (page.status_code, urlsplit(visitor.url).path) == (200, "/console/executions")
    assert roles_of("ann@corp.test") == {"acme": "operator"}
    Visitor(live).go(visitor.at("", "/"), sent("ANN", "bosses", "married@corp.test"))
    assert roles_of("ann@corp.test") == {"acme": "owner"}
    assert people.find_user("ann@corp.test").password_hash == ""


@pytest.mark.parametrize("headers", [
    (), (("X-Forwarded-For", PROXY),),
    (("X-Forwarded-For", f"{PROXY}, {PROXY}"), ("X-Real-IP", PROXY), ("Forwarded", f"for={PROXY}")),
])  # fmt: skip
@pytest.mark.parametrize("address", [STRANGER, "127.0.0.4"])
def test_nobody_else_signs_in_with_the_header(live: Running, address: str, headers: Headers) -> None:
    """Neither a client, nor another proxy whose X-Forwarded-For is trusted, says whose connection it is."""
    visitor = Visitor(live, address)
    page = visitor.go(visitor.at("", "/"), [*sent("mallory", "bosses"), *headers])
    assert (page.status_code, urlsplit(visitor.url).path, 'name="password"' in page.text) == (200, "/sign-in", True)
    assert not is_inside(visitor, sent("mallory", "bosses"))


def test_without_the_header_there_is_the_ordinary_sign_in(live: Running) -> None:
    for headers in ((), [("Remote-User", "")], [("Remote-Groups", "bosses")]):
        visitor = Visitor(live)
        page = visitor.go(visitor.at("", "/sign-in"), headers)
        assert (page.status_code, 'name="password"' in page.text) == (200, True)
    home = visitor.go(visitor.url, method="POST", form={"login": "owner@acme.test", "password": LOCAL})
    assert home.status_code == 200
    assert is_inside(visitor)


@pytest.mark.parametrize("twice", [[("Remote-User", "bob")], [("remote-user", "ann")], [("Remote-Groups", "bosses")]])
def test_a_header_that_comes_twice_signs_nobody_in(live: Running, twice: Headers) -> None:
    visitor = Visitor(live)
    page = visitor.go(visitor.at("", "/sign-in"), [*sent("ann"), *twice])
    assert (page.status_code, "Corp has sent several logins" in page.text) == (400, True)
    assert not is_inside(visitor)


# -- what it is good for


def test_the_header_is_no_key_and_reaches_nothing_behind_the_front(live: Running) -> None:
    visitor = Visitor(live)
    for path in ("/api/v1/processes", "/mcp"):
        response = visitor.send("GET", visitor.at("acme", path), sent("ann", "bosses"))
        assert response.status_code in (401, 405), path
    assert visitor.send("GET", visitor.at("shop--acme.content", "/"), sent("ann")).status_code in (404, 421)


@pytest.mark.parametrize("address", [PROXY, STRANGER])
def test_the_front_takes_the_headers_out_of_every_request(
    live: Running, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    passed: list[str] = []
    visitor, route = Visitor(live, address), Front._route

    async def note(front: Front, scope: Any, headers: dict[bytes, bytes], *others: Any) -> None:
        passed.extend(name.decode().lower() for name in (*headers, *(name for name, _ in scope["headers"])))
        await route(front, scope, headers, *others)

    monkeypatch.setattr(Front, "_route", note)
    for host, path in (("", "/sign-in"), ("acme", "/api/v1/processes"), ("acme", "/hooks/none"), ("shop--acme.content", "/")):
        passed.clear()
        visitor.send("GET", visitor.at(host, path), [*sent("ann"), ("REMOTE-USER", "bob"), ("X-Other", "stays")])
        assert "x-other" in passed
        assert not [name for name in passed if name.startswith("remote-")], path


# -- whose session it is


def test_another_login_ends_the_session_on_every_host(live: Running) -> None:
    visitor = Visitor(live)
    visitor.go(visitor.at("acme", "/console/"), sent("ann"))
    assert is_inside(visitor, sent("ann"))
    assert is_inside(visitor), "a page that the proxy does not protect"
    token = dict(visitor.cookies[urlsplit(visitor.at("acme", "/")).netloc])
    page = visitor.go(visitor.at("acme", "/console/account"), sent("bea"))
    assert (page.status_code, "bea@corp.test" in page.text) == (200, True)
    assert roles_of("bea@corp.test") == {"acme": "operator"}
    stale = Visitor(live)
    stale.cookies[urlsplit(stale.at("acme", "/")).netloc] = token
    assert not is_inside(stale), "the session of ann has ended"


def test_a_session_with_a_password_is_not_the_proxys(live: Running) -> None:
    visitor = Visitor(live)
    visitor.go(visitor.at("", "/sign-in?local=1"), sent("ann"), method="POST", form={"login": "owner@acme.test", "password": LOCAL})
    assert is_inside(visitor, sent("ann"))
    assert "owner@acme.test" in visitor.go(visitor.at("acme", "/console/account"), sent("ann")).text


def test_signing_out_says_that_the_proxy_signs_in_again(live: Running) -> None:
    visitor = Visitor(live)
    visitor.go(visitor.at("acme", "/console/"), sent("ann"))
    page = visitor.go(visitor.at("acme", "/console/sign-out"), sent("ann"), method="POST", form={})
    assert (page.status_code, urlsplit(visitor.url).path) == (200, "/signed-out")
    assert "Corp still knows you as <strong>ann</strong>" in page.text
    assert 'href="https://id.corp.test/logout"' in page.text
    assert visitor.send("GET", visitor.at("", "/"), sent("ann")).headers["location"] == "/sign-in"
    assert visitor.send("GET", visitor.at("", "/signed-out")).headers["location"] == "/sign-in"


# -- whom it lets in


def test_accounts_that_exist_are_not_taken_over(live: Running) -> None:
    for user, email, words in (
        ("owner", "owner@acme.test", "There is already an account owner@acme.test"),
        ("chief", "chief@corp.test", "administrator of this appliance"), ("odd", "not a login", "The header Remote-Email of Corp"),
    ):  # fmt: skip
        page = Visitor(live).go(Visitor(live).at("", "/sign-in"), sent(user, "bosses", email))
        assert (page.status_code, words in page.text) == (403, True), user
        assert "/sign-in?local=1" in page.text


def test_whoever_has_no_group_is_refused_and_signed_out(live: Running) -> None:
    visitor = Visitor(live)
    visitor.go(visitor.at("acme", "/console/"), sent("cat"))
    page = Visitor(live).go(visitor.at("", "/sign-in"), sent("cat", "staff"))
    assert (page.status_code, "Your groups at the provider give you no role here" in page.text) == (403, True)
    assert not is_inside(visitor)


def test_forms_of_other_sites_are_refused_as_ever(live: Running) -> None:
    visitor = Visitor(live)
    visitor.go(visitor.at("acme", "/console/"), sent("ann"))
    foreign = [*sent("ann"), ("Sec-Fetch-Site", "cross-site")]
    assert visitor.send("POST", visitor.at("acme", "/console/sign-out"), foreign).status_code == 403
    assert is_inside(visitor)
