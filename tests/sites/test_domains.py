"""Custom domains on the wire: what a request to them gets, however its Host is written."""

from collections.abc import Iterator

import httpx
import pytest

from appliance.testing.running import Running
from tests.sites.test_webapps import deploy, new_app

PAGE = b"<h1>At home</h1>"


def claim(running: Running, acme: httpx.Client, app: str, host: str, **more: object) -> None:
    """A domain that the operator has approved."""
    acme.post(f"/api/v1/webapps/{app}/domains", json={"host": host, **more}).raise_for_status()
    running.services.domains.approve_domain(running.tenant("acme"), host)


@pytest.fixture(scope="module")
def home(running: Running, acme: httpx.Client) -> Iterator[str]:
    """A host that serves an app, `www.` before it redirecting."""
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


def test_any_other_name_is_misdirected(running: Running, home: str) -> None:
    for host in ("other.test", "a.home.test", "home.test.evil.test", "xhome.test", "home_test", "home.test:x", "home..test"):
        assert ask(running, host).status_code == 421, host


def test_the_other_of_a_pair_leads_to_the_canonical_one(running: Running, home: str) -> None:
    answer = ask(running, "www.home.test", "//evil.test/%2e%2e/a%20b?x=1&y=%0d%0aX:1")
    suffix = running.config.port_suffix
    assert answer.status_code == 301
    assert answer.headers["location"] == f"http://home.test{suffix}//evil.test/%2e%2e/a%20b?x=1&y=%0d%0aX:1"
    assert ask(running, "www.home.test", method="POST").status_code == 308
    assert ask(running, "www.home.test", "/.well-known/acme-challenge/token").status_code == 404


def test_the_apps_own_host_leads_to_its_primary_domain(running: Running, acme: httpx.Client, home: str) -> None:
    own, path = "own-home--acme.content.localhost", f"/api/v1/webapps/own-home/domains/{home}"
    assert ask(running, own).content == PAGE
    acme.patch(path, json={"primary": True}).raise_for_status()
    answer = ask(running, own, "/a?b=c")
    assert (answer.status_code, answer.headers["location"]) == (302, f"http://home.test{running.config.port_suffix}/a?b=c")
    acme.patch(path, json={"primary": False}).raise_for_status()
    assert ask(running, own).content == PAGE


def test_a_released_domain_is_misdirected_at_once(running: Running, acme: httpx.Client, home: str) -> None:
    claim(running, acme, "own-home", "gone.test")
    assert ask(running, "gone.test").content == PAGE
    acme.delete("/api/v1/webapps/own-home/domains/gone.test").raise_for_status()
    assert ask(running, "gone.test").status_code == 421
