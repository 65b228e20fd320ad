"""Custom domains over HTTP: redirects and responses, in whatever spelling the Host header has."""

import asyncio
import json
from collections.abc import Iterator, MutableMapping
from typing import Any

import httpx
import pytest

from appliance.sites.webapps.domains import CertificatePermission
from appliance.testing.running import Running, make_config
from appliance.web import Receive, Scope, Send, answer
from tests.sites.signing import Authority
from tests.sites.test_webapps import deploy, new_app
from tests.webapps.name_server import NameServer

PAGE = b"<h1>At home</h1>"


def claim(running: Running, acme: httpx.Client, app: str, host: str, **more: object) -> None:
    """A domain that the operator has approved."""
    acme.post(f"/api/v1/webapps/{app}/domains", json={"host": host, **more}).raise_for_status()
    running.services.webapps.domains.approve_domain(running.tenant("acme"), host)


@pytest.fixture(scope="module")
def home(running: Running, acme: httpx.Client) -> Iterator[str]:
    """A host that serves an app, with a redirect from `www.`."""
    new_app(acme, "own-home")
    deploy(acme, "own-home", {"index.html": PAGE})
    claim(running, acme, "own-home", "home.test", redirect_from="www")
    yield "home.test"
    acme.delete("/api/v1/webapps/own-home?force=true").raise_for_status()


def ask(running: Running, host: str, path: str = "/", method: str = "GET") -> httpx.Response:
    with running.client("localhost") as client:
        client.headers["Host"] = host
        return client.request(method, f"http://127.0.0.1:{running.config.server.port}{path}")


def test_a_domain_serves_its_app_and_nothing_of_the_console(running: Running, home: str) -> None:
    for host in (home, "HOME.Test", "home.test.", f"home.test:{running.config.server.port}", "home.test.:1"):
        assert ask(running, host).content == PAGE, host
    assert ask(running, home, "/api/v1/webapps").status_code == 404
    assert ask(running, home, "/console/").status_code == 404


def test_unknown_names_are_misdirected(running: Running, home: str) -> None:
    for host in ("other.test", "a.home.test", "home.test.evil.test", "xhome.test", "home_test", "home.test:x", "home..test"):
        assert ask(running, host).status_code == 421, host


def test_the_other_name_of_a_pair_redirects(running: Running, home: str) -> None:
    answer = ask(running, "www.home.test", "//evil.test/%2e%2e/a%20b?x=1&y=%0d%0aX:1")
    suffix = running.config.port_suffix
    assert answer.status_code == 301
    assert answer.headers["location"] == f"http://home.test{suffix}//evil.test/%2e%2e/a%20b?x=1&y=%0d%0aX:1"
    assert ask(running, "www.home.test", method="POST").status_code == 308
    assert ask(running, "www.home.test", "/.well-known/acme-challenge/token").status_code == 404


def test_the_apps_own_host_redirects_to_its_primary_domain(running: Running, acme: httpx.Client, home: str) -> None:
    own, path = "own-home--acme.content.localhost", f"/api/v1/webapps/own-home/domains/{home}"
    assert ask(running, own).content == PAGE
    acme.patch(path, json={"primary": True}).raise_for_status()
    answer = ask(running, own, "/a?b=c")
    assert (answer.status_code, answer.headers["location"]) == (302, f"http://home.test{running.config.port_suffix}/a?b=c")
    check = [{"path": "/", "status": 200}]
    version = deploy(acme, "own-home", {"index.html": PAGE, "app.yaml": json.dumps({"smoke": check}).encode()})
    published = acme.get("/api/v1/webapps/own-home").json()["data"]["published_version"]
    assert published == version  # its checks, which ask the app's own host, are not sent away
    acme.patch(path, json={"primary": False}).raise_for_status()
    assert ask(running, own).content == PAGE


def test_a_released_domain_is_misdirected_at_once(running: Running, acme: httpx.Client, home: str) -> None:
    claim(running, acme, "own-home", "gone.test")
    assert ask(running, "gone.test").content == PAGE
    acme.delete("/api/v1/webapps/own-home/domains/gone.test").raise_for_status()
    assert ask(running, "gone.test").status_code == 421


def permitted(running: Running, name: str, headers: dict[str, str] | None = None, host: str = "localhost") -> int:
    with running.client(host, headers) as client:
        return client.get("/domains/permitted", params={"domain": name}).status_code


def test_a_proxy_can_get_certificates_for_existing_names(running: Running, home: str) -> None:
    app = "own-home--acme.content.localhost"
    for name in (home, "HOME.test", "www.home.test", app, f"v1-{app}", "acme.localhost", "localhost"):
        assert permitted(running, name) == 200, name
    for name in (
        "other.test",
        "a.home.test",
        "no-app--acme.content.localhost",
        f"v99-{app}",
        "v1-no-app--acme.content.localhost",
        "nobody.localhost",
        "",
        "*.home.test",
        "home.test:1/x",
    ):
        assert permitted(running, name) == 404, name


def test_other_callers_do_not_learn_which_names_exist(running: Running, home: str) -> None:
    for header in ("X-Forwarded-For", "Forwarded"):
        assert permitted(running, home, {header: "203.0.113.9"}) == 404
    assert permitted(running, home, host="acme.localhost") == 404
    with running.client("localhost") as client:
        assert client.post(f"/domains/permitted?domain={home}").status_code == 404


def test_forwarded_requests_are_not_from_the_proxy_itself(running: Running, home: str) -> None:
    far, near = "203.0.113.9", "203.0.113.0/24"
    seen = [
        request_from(running, far), request_from(running, far, trusted=near), request_from(running, "::1"),
        request_from(running, None), request_from(running, "127.0.0.1", base="gos.example"),
        request_from(running, far, trusted=near, host=b"127.0.0.1"), request_from(running, "127.0.0.1", host=b"gos.example"),
    ]  # fmt: skip
    assert seen == [404, 200, 200, 404, 200, 200, 404]


def request_from(
    running: Running, address: str | None, *, trusted: str = "", base: str = "localhost", host: bytes = b"localhost"
) -> int:
    """The status that a proxy at this address gets from an appliance with these settings."""
    networks = [trusted] if trusted else []
    config = make_config(running.config.data, server__trusted_proxies=networks, domains__base=base)
    permission = CertificatePermission(nothing_here, config, running.services.webapps.apps, running.services.threads)
    scope = {
        "type": "http", "path": "/domains/permitted", "query_string": b"domain=home.test", "method": "GET",
        "headers": [(b"Host", host)], "client": (address, 1) if address else None,
    }  # fmt: skip
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    asyncio.run(permission(scope, receive, send))
    return int(sent[0]["status"])


async def nothing_here(scope: Scope, receive: Receive, send: Send) -> None:
    await answer(send, 404, b"", [])


def test_a_claim_permits_no_certificate(acme: httpx.Client, globex: httpx.Client, home: str, running: Running) -> None:
    new_app(globex, "claimer")
    globex.post("/api/v1/webapps/claimer/domains", json={"host": "claimed.test"}).raise_for_status()
    chain, key = Authority().pair("claimed.test", home)
    answers = [
        globex.put(f"/api/v1/webapps/claimer/domains/{host}/certificate", json={"certificate": chain, "private_key": key})
        for host in ("claimed.test", home)
    ]
    globex.delete("/api/v1/webapps/claimer").raise_for_status()
    assert [(answer.status_code, answer.json()["error"]["code"]) for answer in answers] == [(409, "conflict"), (404, "not_found")]
    assert running.services.webapps.certificates.find(running.tenant("globex"), "claimed.test") is None
    assert acme.get(f"/api/v1/webapps/own-home/domains/{home}/certificate").status_code == 404


def test_a_domain_is_verified_through_the_api(
    running: Running, acme: httpx.Client, globex: httpx.Client, name_server: NameServer, home: str
) -> None:
    path, host = "/api/v1/webapps/own-home/domains", "proven.test"
    domain = acme.post(path, json={"host": "Proven.Test"}).json()["data"]
    proof = domain["records"][0]
    assert (domain["state"], proof["type"], proof["finding"]) == ("pending_dns", "TXT", "unchecked")
    waiting = acme.post(f"{path}/{host}/verify").raise_for_status().json()["data"]
    assert (waiting["state"], waiting["records"][0]["finding"], waiting["last_error"] is None) == ("pending_dns", "missing", False)
    assert ask(running, host).status_code == 421
    name_server.set(proof["name"], "TXT", f'"{proof["expected"][0]}"')
    name_server.set(host, "CNAME", "own-home--acme.content.localhost.")
    name_server.set("own-home--acme.content.localhost", "A", "127.0.0.1")
    active = acme.post(f"{path}/{host}/verify").raise_for_status().json()["data"]
    assert (active["state"], active.get("last_error")) == ("active", None)
    assert ask(running, host).content == PAGE
    new_app(globex, "taker")
    refused = globex.post("/api/v1/webapps/taker/domains", json={"host": host})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "already_exists")
    assert "own-home" not in refused.text
    assert "acme" not in refused.text
    assert globex.post(f"/api/v1/webapps/taker/domains/{host}/verify").status_code == 404
    globex.delete("/api/v1/webapps/taker").raise_for_status()
