"""nginx and Caddy with their files in packaging/cluster, in front of two `gos serve --no-workers`: no sticky sessions needed."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest

from tests.cluster.conftest import BASE, CONTENT, DOMAIN, Behind
from tests.cluster.several import publish
from tests.cluster.test_roles import WAITING
from tests.sites.test_webapps import deploy, new_app

PASSWORD = "correct horse battery"
NAVIGATION = {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}
ROUNDS = 6  # of requests in turn to both servers


def gos(behind: Behind, *arguments: str, stdin: str = "") -> str:
    command = [sys.executable, "-m", "appliance", "--data", str(behind.group.folder), *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=True).stdout


def test_people_sign_in_and_stay_signed_in_on_both_servers(behind: Behind) -> None:
    member = ("--tenant", "acme", "--role", "owner")
    gos(behind, "user", "add", "ada@acme.test", *member, "--password-stdin", "--lasting", stdin=PASSWORD)
    with behind.proxy.client(BASE) as browser:
        console = f"https://acme.{BASE}:{behind.proxy.port}/console/"
        page = browser.get(console, headers=NAVIGATION, follow_redirects=True)
        form = urlencode({"login": "ada@acme.test", "password": PASSWORD})
        submission = {"Sec-Fetch-Site": "same-origin", "Content-Type": "application/x-www-form-urlencoded"}
        home = browser.post(page.url, content=form, headers=submission, follow_redirects=True)
        assert str(home.url).startswith(console)
        for _ in range(ROUNDS):
            assert "ada@acme.test" in browser.get(f"{console}about", headers=NAVIGATION).raise_for_status().text


def test_executions_are_accepted_and_answered_by_either_server(behind: Behind) -> None:
    with behind.api() as client:
        publish(client, WAITING)
        for _ in range(ROUNDS):
            answer = client.post("/api/v1/processes/waiting/execute?wait=30", json={})
            assert (answer.http_version, answer.status_code, answer.json()["data"]["status"]) == ("HTTP/2", 200, "succeeded")
    for server in behind.servers:
        with behind.group.client(server) as direct:
            assert 'area="api",status="200"' in direct.get("/metrics", headers={"Host": BASE}).text


def test_events_arrive_at_once(behind: Behind) -> None:
    with behind.api() as client, client.stream("GET", "/api/v1/datapool/marks/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        with behind.api() as other:
            other.post("/api/v1/datapool/marks/entities", json={"run": "seen", "what": "event"}).raise_for_status()
        assert any(line.startswith("data:") for line in stream.iter_lines())


def test_webapps_are_served_on_their_host_and_on_a_custom_domain(behind: Behind) -> None:
    with behind.api() as client:
        new_app(client, "shop")
        deploy(client, "shop", {"index.html": b"<h1>Open</h1>"})
        client.post("/api/v1/webapps/shop/domains", json={"host": DOMAIN}).raise_for_status()
    gos(behind, "domain", "approve", DOMAIN, "--tenant", "acme")
    for _ in range(ROUNDS):
        with behind.proxy.client(DOMAIN) as visitor:
            assert visitor.get("/").text == "<h1>Open</h1>"
            assert visitor.get("/console/").status_code == 404
    with behind.proxy.client(f"shop--acme.{CONTENT}") as visitor:
        answer = visitor.get("/", follow_redirects=False)
        assert answer.status_code in (200, 301, 308)
        assert answer.status_code == 200 or answer.headers["location"].startswith(f"https://{DOMAIN}:{behind.proxy.port}/")


@pytest.mark.parametrize("version", ["http1.1", "http2"])
def test_fifty_megabytes_arrive_whole_and_are_read_from_the_other_server(
    behind: Behind, version: str, tmp_path: Path
) -> None:
    content, authority, host = tmp_path / "content", tmp_path / "ca.pem", f"acme.{BASE}:{behind.proxy.port}"
    content.write_bytes(hashlib.sha256(b"content").digest() * (50 << 15))
    authority.write_text(behind.proxy.authority)
    command: list[str | Path] = [
        "curl", "--silent", "--show-error", "--fail", f"--{version}", "--cacert", authority, "--resolve", f"{host}:127.0.0.1",
        "--header", f"X-API-Key: {behind.group.key}", "--header", "Content-Type: application/octet-stream",
        "--upload-file", content, "--request", "POST", "--max-time", "120", "--write-out", "\n%{http_version}",
        f"https://{host}/api/v1/documents?name=large-{version}.bin",
    ]  # fmt: skip
    answer, spoken = subprocess.run(command, capture_output=True, text=True, check=True).stdout.rsplit("\n", 1)
    assert f"http{spoken}" == version
    document = json.loads(answer)["data"]["id"]
    for server in behind.servers:
        with behind.group.client(server) as direct:
            received = direct.get(f"/api/v1/documents/{document}/content").content
            assert hashlib.sha256(received).digest() == hashlib.sha256(content.read_bytes()).digest()


def test_a_body_beyond_the_limit_is_refused_by_the_appliance(behind: Behind) -> None:
    with behind.api() as client:
        large = b'"' + b"x" * (2 << 20) + b'"'
        answer = client.post("/api/v1/datapool/marks/entities", content=large, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "payload_too_large")


def test_large_heads_pass_and_larger_ones_are_refused(behind: Behind) -> None:
    with behind.api(http2=False) as client:
        assert client.get("/api/v1/processes", headers={"X-Large": "x" * 20_000}).status_code == 200
        assert client.get("/api/v1/processes", headers={"X-Large": "x" * 40_000}).status_code in (400, 431)


@pytest.mark.parametrize("claimed", ["X-Forwarded-For", "Forwarded", "X-Real-IP"])
def test_the_appliance_sees_the_address_of_the_client_and_not_what_it_claims(behind: Behind, claimed: str) -> None:
    near, far = "127.0.0.77", "127.0.0.78"
    with behind.api() as client:
        spec = {"name": f"near {claimed}", "scopes": ["processflow.read"], "allowed_ips": [f"{near}/32"]}
        key = client.post("/api/v1/keys", json=spec).raise_for_status().json()["data"]["key"]
    for address, status in ((near, 200), (far, 403)):
        with behind.proxy.client(f"acme.{BASE}", address=address, headers={"X-API-Key": key}) as client:
            answer = client.get("/api/v1/processes", headers={claimed: near if claimed != "Forwarded" else f"for={near}"})
            assert answer.status_code == status
            if status == 403:
                assert f"cannot be used from {far}" in answer.json()["error"]["message"]


def test_a_claimed_host_is_dropped(behind: Behind) -> None:
    with behind.proxy.client("unknown.test") as client, pytest.raises(httpx.ConnectError):
        client.get("/")  # no certificate for it
    with behind.api() as client:
        assert client.get("/api/v1/processes", headers={"X-Forwarded-Host": "unknown.test"}).status_code == 200


def test_plain_http_is_redirected(behind: Behind) -> None:
    url = f"http://127.0.0.1:{behind.proxy.http_port}/console/?a=b"
    answer = httpx.get(url, headers={"Host": f"acme.{BASE}"}, trust_env=False)
    assert (answer.status_code, answer.headers["location"]) == (308, f"https://acme.{BASE}/console/?a=b")
