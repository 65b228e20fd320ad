"""Signing in to an app on a custom domain behind a TLS-terminating proxy, as browsers do."""

from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from aiosmtpd.controller import Controller

from appliance.connectors.testing import free_port
from appliance.testing.running import Running, make_config, start
from tests.sites.test_access import FORM, PAGE, open_app
from tests.sites.test_domains import claim
from tests.sites.test_sign_in import ANN, EMAIL, Mailbox
from tests.webapps.identity_provider import SECRET, IdentityProvider
from tests.webapps.name_server import NameServer

LOGIN, WORD = "mia@firma.example", "correct horse battery"


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory, name_server: NameServer) -> Iterator[Running]:
    """An appliance behind a proxy on this machine, with public port 443."""
    config = make_config(
        tmp_path_factory.mktemp("proxied"), server__trusted_proxies=["127.0.0.0/8"], server__public_port=443,
        egress__allow=["127.0.0.0/8"], domains__resolvers=[name_server.address],
    )  # fmt: skip
    live = start(config)
    live.tenant("acme")
    yield live
    live.stop()


@pytest.fixture(scope="module")
def owner(proxied: Running) -> Iterator[httpx.Client]:
    with proxied.api("acme") as client:
        yield client


class Browser:
    """Keeps cookies as a browser does: each for the host alone that set it, over HTTPS, none that names a domain."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self.cookies: dict[str, dict[str, str]] = {}

    def go(self, url: str, form: dict[str, str] | None = None) -> httpx.Response:
        parts = urlsplit(url)
        assert (parts.scheme, parts.port) == ("https", None), url
        jar = self.cookies.setdefault(parts.netloc, {})
        headers = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "192.0.2.7", **(PAGE if form is None else FORM)}
        if jar:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in jar.items())
        with self._running.client("localhost", headers) as client:
            client.headers["Host"] = parts.netloc
            path = parts._replace(scheme="", netloc="").geturl()
            answer = client.get(path) if form is None else client.post(path, data=form)
        for each in answer.headers.get_list("set-cookie"):
            pair, *attributes = [part.strip() for part in each.split(";")]
            assert {"Secure", "HttpOnly", "Path=/"} <= set(attributes), each
            assert not any(attribute.lower().startswith("domain") for attribute in attributes), each
            name, _, value = pair.partition("=")
            assert name.startswith("__Host-"), each
            jar[name] = value
            if not value:
                del jar[name]
        return answer

    def follow(self, url: str) -> tuple[str, httpx.Response]:
        """Follow redirects within the appliance; returns the last URL and its response."""
        for _ in range(10):
            answer = self.go(url)
            if not answer.is_redirect:
                return url, answer
            url = str(httpx.URL(url).join(answer.headers["location"]))
            if urlsplit(url).scheme != "https":
                return url, answer
        raise AssertionError(f"it goes round in circles at {url}")


def shop(proxied: Running, owner: httpx.Client, app: str, access: object, **more: object) -> str:
    """Create an app with this access on its own domain, with a redirect from `www.`; returns the domain."""
    open_app(owner, app, access)
    claim(proxied, owner, app, f"{app}.test", redirect_from="www", **more)
    return f"{app}.test"


def who(browser: Browser, host: str) -> object:
    return browser.go(f"https://{host}/_gos/visit").json()["data"]["email"]


def test_a_code_by_email(proxied: Running, owner: httpx.Client) -> None:
    host, post, port = shop(proxied, owner, "mailed", EMAIL), Mailbox(), free_port()
    controller = Controller(post, hostname="127.0.0.1", port=port)
    controller.start()
    settings = {"smtp_host": "127.0.0.1", "smtp_port": port, "smtp_tls": "off", "from": "shop@firma.example"}
    owner.post("/api/v1/integrations", json={"slug": "letters", "connector": "email", "settings": settings}).raise_for_status()
    browser = Browser(proxied)
    at, form = browser.follow(f"https://www.{host}/report?year=2026")
    assert (at, form.status_code) == (f"https://{host}/_gos/sign-in?to=%2Freport%3Fyear%3D2026", 200)
    browser.go(at, {"email": ANN, "to": "/report?year=2026"})
    done = browser.go(f"https://{host}/_gos/code", {"code": post.code(0)})
    controller.stop()
    assert host in post.emails[0][1]
    assert (done.status_code, done.headers["location"]) == (303, "/report?year=2026")
    assert (who(browser, host), list(browser.cookies)) == (ANN, [f"www.{host}", host])
    assert browser.follow(f"https://www.{host}/report?year=2026")[1].text == "<h1>Report</h1>"
    assert browser.follow("https://mailed--acme.content.localhost/report")[0].startswith("https://mailed--acme.")  # not known there


def test_an_account_of_a_provider(proxied: Running, owner: httpx.Client) -> None:
    owner.put("/api/v1/secrets/CLIENT", json={"value": SECRET}).raise_for_status()
    provider = IdentityProvider()
    host, browser = shop(proxied, owner, "provided", provider.access(), primary=True), Browser(proxied)
    for url in (f"https://www.{host}/report?year=2026", "https://provided--acme.content.localhost/report?year=2026"):
        browser.cookies.clear()
        away, _ = browser.follow(url)
        assert away.startswith(provider.issuer)
        back = provider.sign_in(away)
        assert parse_qs(urlsplit(away).query)["redirect_uri"] == [f"https://{host}/_gos/oidc"]
        done = browser.go(back)
        assert (done.status_code, done.headers["location"]) == (303, "/report?year=2026")
        assert who(browser, host) == ANN
    provider.close()


def test_a_member(proxied: Running, owner: httpx.Client) -> None:
    proxied.user(LOGIN, WORD, "acme", "viewer")
    host, browser = shop(proxied, owner, "manned", "members"), Browser(proxied)
    at, form = browser.follow(f"https://www.{host}/report?year=2026")
    assert (urlsplit(at).netloc, form.status_code) == ("localhost", 200)
    signed_in = browser.go(at, {"login": LOGIN, "password": WORD})
    query = parse_qs(urlsplit(signed_in.headers["location"]).query)
    onward = f"https://localhost/visit?host={query['host'][0]}&state={query['state'][0]}"
    at, report = browser.follow(onward)
    assert (at, report.text) == (f"https://{host}/report?year=2026", "<h1>Report</h1>")
    assert who(browser, host) == LOGIN
