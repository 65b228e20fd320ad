"""What one of two servers does is known to the other: ends of executions, changes of what is cached, keys, schedules."""

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import httpx
import psycopg
import pytest

from appliance.app.store import open_store
from appliance.connectors.testing import free_port
from appliance.core.config import load_config
from appliance.core.database import db
from appliance.solutions import write_zip
from appliance.tenants import people
from appliance.tenants import service as tenants
from appliance.tenants.sign_in import sessions
from tests.chaos.launcher import launch
from tests.forking import Forked
from tests.processes.world import wait_until
from tests.store.cluster import Cluster
from tests.store.two_servers import SECONDS, TwoServers, two_servers

EXECUTE = "/api/v1/processes/{}/execute"
RULE = [{"id": "one", "rule": {"expression": "= 1"}}]
Clients = tuple[httpx.Client, httpx.Client]


@pytest.fixture(scope="module")
def servers(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoServers]:
    """Two servers that learn of each other's commits by notices alone: the polls behind them are an hour apart."""
    with two_servers(
        tmp_path_factory.mktemp("data"), cluster.make_database(), "polls", egress={"allow": ["127.0.0.0/8"]}
    ) as servers:
        yield servers


@pytest.fixture(scope="module")
def clients(servers: TwoServers) -> Iterator[Clients]:
    with ExitStack() as stack:
        here, there = (stack.enter_context(servers.client(number)) for number in range(2))
        yield here, there


def publish(client: httpx.Client, process: str, steps: list[dict[str, Any]], **more: Any) -> None:
    definition = {"id": process, "steps": steps, **more}
    client.put(f"/api/v1/processes/{process}", json=definition).raise_for_status()
    client.post(f"/api/v1/processes/{process}/publish", json={}).raise_for_status()


def test_a_caller_that_waits_is_answered_when_the_other_server_finishes(clients: Clients) -> None:
    here, there = clients
    publish(here, "ask", [{"id": "pause", "wait": {"event": "go"}}, {"id": "said", "rule": {"expression": "= steps.pause"}}])
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(here.post, EXECUTE.format("ask"), json={}, params={"wait": 50})
        path = "/api/v1/processes/ask/executions"
        wait_until(lambda: [row["status"] for row in there.get(path).json()["data"]] == ["waiting"])
        one = f"{path}/{there.get(path).json()['data'][0]['execution_id']}"
        (event,) = there.get(one).json()["data"]["waiting_for"]["waits"]
        there.post(f"{one}/resume", json={"token": event["token"], "input": "yes"}).raise_for_status()
        body = answer.result(SECONDS).json()["data"]  # long before its own wait is over
    assert (body["status"], body["output"]) == ("succeeded", "yes"), body


def test_a_stream_of_one_server_ends_with_an_execution_that_the_other_finishes(clients: Clients) -> None:
    here, there = clients
    publish(here, "follow", [{"id": "pause", "wait": {"event": "go"}}])
    path = f"/api/v1/processes/follow/executions/{here.post(EXECUTE.format('follow'), json={}).json()['data']['execution_id']}"
    wait_until(lambda: bool(there.get(path).json()["data"]["status"] == "waiting"))
    (event,) = there.get(path).json()["data"]["waiting_for"]["waits"]
    kinds = []
    with here.stream("GET", f"{path}/events") as stream:
        for line in stream.iter_lines():
            if line.startswith("event:"):
                kinds.append(line.removeprefix("event:").strip())
                if kinds[-1] == "waiting":
                    there.post(f"{path}/resume", json={"token": event["token"], "input": 1}).raise_for_status()
    assert kinds[-1] == "succeeded", kinds


# -- caches


def test_a_key_that_one_server_revokes_is_refused_by_the_other(servers: TwoServers, clients: Clients) -> None:
    here, _ = clients
    issued = here.post("/api/v1/keys", json={"name": "short", "scopes": ["processflow.read"]})
    key = issued.raise_for_status().json()["data"]
    with servers.client(1, **{"X-API-Key": key["key"]}) as other:
        assert other.get("/api/v1/processes").status_code == 200
        here.delete(f"/api/v1/keys/{key['id']}").raise_for_status()
        wait_until(lambda: other.get("/api/v1/processes").status_code == 401)


@pytest.fixture
def integration(servers: TwoServers, clients: Clients) -> str:
    """The slug of an integration that reads an address of the first server."""
    settings = {"base_url": f"http://127.0.0.1:{servers.ports[0]}"}
    body = {"slug": "self", "connector": "http", "settings": settings}
    assert clients[0].post("/api/v1/integrations", json=body).status_code in (201, 409)
    return "self"


def call(client: httpx.Client, integration: str) -> httpx.Response:
    body = {"action": "get", "input": {"url": "/readyz"}}
    return client.post(f"/api/v1/integrations/{integration}/execute", json=body)


def refusal(client: httpx.Client, integration: str) -> str:
    """The code of the error that a call is refused with; empty if it succeeds."""
    response = call(client, integration)
    return "" if response.is_success else str(response.json()["error"]["code"])


def test_a_kill_switch_of_one_server_stops_calls_of_the_other_at_once(clients: Clients, integration: str) -> None:
    here, there = clients
    assert refusal(there, integration) == ""
    here.put("/api/v1/kill-switches", json={"integration": integration, "off": True}).raise_for_status()
    assert refusal(there, integration) == "policy_denied"
    here.put("/api/v1/kill-switches", json={"integration": integration, "off": False}).raise_for_status()
    assert refusal(there, integration) == ""


def test_a_policy_that_one_server_activates_decides_on_the_other_at_once(clients: Clients, integration: str) -> None:
    here, there = clients
    assert refusal(there, integration) == ""
    policy = {"mode": "enforce", "rules": [{"id": "no", "effect": "deny", "integrations": [integration], "reason": "Not now."}]}
    here.put("/api/v1/policies/none", json=policy).raise_for_status()
    here.post("/api/v1/policies/none/activate", json={}).raise_for_status()
    assert refusal(there, integration) == "policy_denied"
    here.post("/api/v1/policies/none/deactivate", json={}).raise_for_status()
    assert refusal(there, integration) == ""


def test_changed_settings_of_an_integration_are_used_by_the_other_server_at_once(clients: Clients, integration: str) -> None:
    here, there = clients
    assert refusal(there, integration) == ""
    path, unused = f"/api/v1/integrations/{integration}", f"http://127.0.0.1:{free_port()}"
    before = here.get(path).json()["data"]["settings"]
    here.patch(path, json={"settings": {"base_url": unused}}).raise_for_status()
    assert refusal(there, integration) == "connector_failed"
    here.patch(path, json={"settings": before}).raise_for_status()
    assert refusal(there, integration) == ""


def test_a_process_that_one_server_publishes_is_executed_by_the_other_at_once(clients: Clients) -> None:
    here, there = clients
    for number in (1, 2):
        publish(here, "changing", [{"id": "one", "rule": {"expression": f"= {number}"}}])
        done = there.post(EXECUTE.format("changing"), json={}, params={"wait": 30}).json()["data"]
        assert done["output"] == number, done


def test_a_session_that_ends_on_one_server_has_ended_on_the_other(servers: TwoServers) -> None:
    config = load_config(servers.folder / "config.yaml", environment={}, flags={"storage.data": str(servers.folder)})
    sealer = open_store(config)
    person = people.create_user("ada@acme.test", "a password of ada's own")
    people.add_member(tenants.system_scope("acme"), "ada@acme.test", "owner")
    cookie = f"__Host-gos={sessions.create_session(sealer, person.id, 'acme', lifetime_ms=3_600_000)}"
    db.close_database()
    browser = {"Cookie": cookie, "Sec-Fetch-Site": "same-origin", "X-API-Key": ""}
    with servers.client(0, **browser) as first, servers.client(1, **browser) as second:
        assert (first.get("/console/").status_code, second.get("/console/").status_code) == (200, 200)
        assert first.post("/console/sign-out", data={"x": ""}).status_code == 303
        assert second.get("/console/").status_code == 303


def deploy(api: httpx.Client, page: bytes) -> None:
    assert api.post("/api/v1/webapps", json={"id": "shop"}).status_code in (201, 409)
    path = "/api/v1/webapps/shop/versions"
    sent = api.post(path, content=write_zip({"index.html": page}), headers={"Content-Type": "application/zip"}).raise_for_status()
    api.post(f"{path}/{sent.json()['data']['version']}/publish", json={}).raise_for_status()


def test_what_one_server_publishes_both_serve(servers: TwoServers, clients: Clients) -> None:
    here, _ = clients
    with servers.client(1, "shop--acme.content.localhost") as visitor:
        for page in (b"one", b"two"):
            deploy(here, page)
            wait_until(lambda page=page: visitor.get("/").content == page)
        here.post("/api/v1/webapps/shop/unpublish").raise_for_status()
        wait_until(lambda: visitor.get("/").status_code == 404)


def test_a_domain_that_another_process_approves_and_one_server_releases_is_known_to_both(
    servers: TwoServers, clients: Clients
) -> None:
    here, there = clients
    deploy(here, b"at home")
    with servers.client(0, "shop.example.com") as first, servers.client(1, "shop.example.com") as second:
        here.post("/api/v1/webapps/shop/domains", json={"host": "shop.example.com"}).raise_for_status()
        assert {first.get("/").status_code, second.get("/").status_code} == {421}
        words = ["--data", str(servers.folder), "domain", "approve", "shop.example.com", "--tenant", "acme"]
        assert Forked(launch, "none", words, log=servers.folder / "approve.log").wait(SECONDS * 2) == 0
        for visitor in (first, second):
            wait_until(lambda visitor=visitor: visitor.get("/").content == b"at home")
        there.delete("/api/v1/webapps/shop/domains/shop.example.com").raise_for_status()
        wait_until(lambda: first.get("/").status_code == 421)


# -- once, whichever server is asked


def race(servers: TwoServers, clients: Clients, process: str, count: int) -> None:
    """Send each of `count` keys to both servers at the same instant, and again for as long as the first is in flight."""
    both = threading.Barrier(2)

    def send(client: httpx.Client) -> list[str]:
        ids = []
        for number in range(count):
            both.wait(SECONDS)
            while True:
                answer = client.post(EXECUTE.format(process), json={}, headers={"Idempotency-Key": f"{process}-{number}"})
                if answer.status_code != 409:
                    break
                assert answer.json()["error"]["code"] == "idempotency_in_flight"
            ids.append(str(answer.raise_for_status().json()["data"]["execution_id"]))
        return ids

    publish(clients[0], process, RULE)
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(send, clients)
    assert first == second
    assert len(set(first)) == count
    with psycopg.connect(servers.database) as server:
        assert server.execute("SELECT count(*) FROM execution WHERE process_id = %s", (process,)).fetchone() == (count,)


def test_a_key_sent_to_both_servers_at_once_is_done_once(servers: TwoServers, clients: Clients) -> None:
    race(servers, clients, "once", 100)


@pytest.mark.chaos
def test_five_hundred_keys_sent_to_both_servers_at_once_are_done_once(servers: TwoServers, clients: Clients) -> None:
    race(servers, clients, "five-hundred", 500)


def test_a_schedule_that_is_due_in_both_servers_starts_one_execution(servers: TwoServers, clients: Clients) -> None:
    """Their tickers look at the same instants, as they follow the machine's clock."""
    names = [f"yearly-{number}" for number in range(20)]
    for name in names:
        publish(clients[0], name, RULE, triggers=[{"schedule": {"cron": "0 0 1 1 *", "timezone": "UTC"}}])
    with psycopg.connect(servers.database, autocommit=True) as server:
        due = int(datetime(datetime.now(UTC).year, 1, 1, tzinfo=UTC).timestamp() * 1000)
        server.execute("UPDATE trigger_state SET next_due = %s WHERE process_id LIKE 'yearly-%%'", (due,))

        def started() -> Counter[str]:
            rows = server.execute("SELECT process_id FROM execution WHERE process_id LIKE 'yearly-%'").fetchall()
            return Counter(row[0] for row in rows)

        wait_until(lambda: set(started()) == set(names))
        open_firings = "SELECT count(*) FROM trigger_state WHERE process_id LIKE 'yearly-%%' AND next_due <= %s"
        wait_until(lambda: server.execute(open_firings, (due,)).fetchone() == (0,))
        assert started() == Counter(names)
