"""A provider removes somebody at one server while they are signed in at another."""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import httpx
import pytest

from appliance.testing.running import Running
from tests.cluster.several import Process, Several, several
from tests.console.browser import Browser
from tests.store.cluster import Cluster

LOGIN, PASSWORD = "leaver@acme.test", "correct horse battery"
PROVIDER = {
    "id": "corp", "issuer": "https://id.corp.test", "client_id": "gos", "scim": True, "link_by": "email_verified",
    "roles": [{"group": "ops", "tenant": "acme", "role": "builder"}],
}  # fmt: skip
SCHEMAS = ("urn:ietf:params:scim:schemas:core:2.0:User", "urn:ietf:params:scim:api:messages:2.0:PatchOp")


@pytest.fixture
def group(tmp_path: Path, cluster: Cluster) -> Iterator[Several]:
    sign_in = {"providers": [PROVIDER]}
    with several(tmp_path, cluster.emptied(), sign_in=sign_in, server={"tls": "off"}) as group:
        yield group


def gos(group: Several, *arguments: str, stdin: str = "") -> str:
    command = [sys.executable, "-m", "appliance", "--data", str(group.folder), *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=True).stdout


def browser_of(process: Process) -> Browser:
    config = SimpleNamespace(port_suffix=f":{process.port}", server=SimpleNamespace(port=process.port))
    return Browser(cast(Running, SimpleNamespace(config=config)))


def issue_key(browser: Browser) -> str:
    """A key that whoever is signed in issues in the console."""
    form = {"name": "theirs", "environment": "live", "days": "30", "addresses": "", "scopes": "logs.read", "requests": "600"}
    page = browser.post(browser.at("acme", "/console/keys/new"), form)
    text = re.search(r'data-testid="new-key"[^>]*>([^<]+)<', page.text)
    assert text, page.text
    return text[1]


def status_of(process: Process, key: str) -> int:
    """What the server answers to a request with the key."""
    headers = {"Host": f"acme.localhost:{process.port}", "X-API-Key": key}
    return httpx.get(f"http://127.0.0.1:{process.port}/api/v1/logs/audit", headers=headers, trust_env=False).status_code


def is_signed_out(browser: Browser, console: str) -> bool:
    browser.get(console)
    return "/sign-in" in browser.url


def wait_at_most_a_second(is_so: Callable[[], bool]) -> None:
    ends = time.monotonic() + 1.0
    while not is_so():
        assert time.monotonic() < ends, "it took more than a second"


def test_a_leaver_is_signed_out_at_every_server_within_a_second(group: Several) -> None:
    there, here = (group.start("serve", "--no-workers") for _ in range(2))
    member = ("--tenant", "acme", "--role", "owner")
    gos(group, "user", "add", LOGIN, *member, "--password-stdin", "--lasting", stdin=PASSWORD)
    token = gos(group, "scim", "token", "corp", "--quiet").strip()
    browser = browser_of(there)
    assert "Sign out" in browser.sign_in(LOGIN, PASSWORD, "acme").text
    console = browser.at("acme", "/console/about")
    assert browser.get(console).status_code == 200
    key = issue_key(browser)
    headers = {"Host": f"localhost:{here.port}", "Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{here.port}/scim/v2", headers=headers, trust_env=False, timeout=30) as scim:
        added = scim.post("/Users", json={"schemas": [SCHEMAS[0]], "userName": LOGIN, "active": True})
        assert added.status_code == 201, added.text
        path = f"/Users/{added.json()['id']}"
        assert (browser.get(console).status_code, browser.url) == (200, console)
        assert status_of(there, key) == 200
        change = {"schemas": [SCHEMAS[1]], "Operations": [{"op": "Replace", "path": "active", "value": "False"}]}
        assert scim.patch(path, json=change).json()["active"] is False
        wait_at_most_a_second(lambda: is_signed_out(browser, console) and status_of(there, key) == 401)
        change["Operations"] = [{"op": "Replace", "path": "active", "value": "True"}]
        assert scim.patch(path, json=change).json()["active"] is True
        again = browser_of(there)
        assert "Sign out" in again.sign_in(LOGIN, PASSWORD, "acme").text
        assert scim.delete(path).status_code == 204
        wait_at_most_a_second(lambda: is_signed_out(again, console) and status_of(there, key) == 401)
        listed = gos(group, "scim", "list")
        assert token[-4:] in listed
        assert token not in listed
        gos(group, "scim", "revoke", listed.splitlines()[1].split()[0])
        wait_at_most_a_second(lambda: scim.get("/Users").status_code == 401)
