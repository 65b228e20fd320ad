"""Limits hold for two servers together, within the bounds that docs/cluster.md states."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import psycopg
import pytest

from appliance.connectors.testing import Answer, LoopbackServer, Received
from tests.processes.world import wait_until
from tests.store.cluster import Cluster
from tests.store.two_servers import SECONDS, TwoServers, two_servers

LOOPBACK = {"allow": ["127.0.0.0/8"]}


@pytest.fixture(scope="module")
def servers(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoServers]:
    with two_servers(tmp_path_factory.mktemp("data"), cluster.make_database(), egress=LOOPBACK) as servers:
        yield servers


# -- passwords


def guess(browser: httpx.Client, login: str) -> int:
    form = {"login": login, "password": "a wrong password"}
    return browser.post("/sign-in", data=form, headers={"Sec-Fetch-Site": "same-origin"}).status_code


def test_guesses_at_one_password_are_delayed_after_five_on_whichever_server(servers: TwoServers) -> None:
    with servers.client(0, "localhost") as here, servers.client(1, "localhost") as there:
        admitted = 0
        for browser in (here, there) * 10:
            if guess(browser, "ada@acme.test") == 429:
                break
            admitted += 1
        assert 5 <= admitted < 9, "each further one takes a pause of its own, which doubles: nobody is that slow"


# -- rates


def issue(servers: TwoServers, requests: int) -> str:
    """A key that may make `requests` in ten minutes."""
    limit = {"requests": requests, "window_s": 600}
    with servers.client(0) as owner:
        response = owner.post("/api/v1/keys", json={"name": "few", "scopes": ["processflow.read"], "rate_limit": limit})
    return str(response.raise_for_status().json()["data"]["key"])


def remaining(servers: TwoServers, number: int) -> int:
    """How many requests a server grants a new key of a thousand."""
    with servers.client(number, **{"X-API-Key": issue(servers, 1000)}) as client:
        header = client.get("/api/v1/processes").raise_for_status().headers["RateLimit"]
    return int(header.partition(";r=")[2].partition(";")[0]) + 1


def test_a_rate_limit_holds_for_both_servers_together(servers: TwoServers) -> None:
    for number in range(2):
        wait_until(lambda number=number: remaining(servers, number) == 500)
    key = issue(servers, 10)
    answers: Counter[int] = Counter()
    for number in range(2):
        with servers.client(number, **{"X-API-Key": key}) as client:
            answers.update(client.get("/api/v1/processes").status_code for _ in range(15))
    assert answers == {200: 10, 429: 20}


# -- calls of an integration at once


class Foreign:
    """A foreign system that counts the calls that it gets at once, and answers none before `go_on` is set."""

    def __init__(self, most: int) -> None:
        self.most, self.highest, self.go_on = most, 0, threading.Event()
        self._calls, self._changed = 0, threading.Condition()

    def answer(self, _: Received) -> Answer:
        with self._changed:
            self._calls += 1
            self.highest = max(self.highest, self._calls)
            self._changed.notify_all()
        assert self.go_on.wait(SECONDS * 2)
        with self._changed:
            self._calls -= 1
        return Answer(200, {"Content-Type": "application/json"}, b"{}")

    def wait_until_full(self) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._calls >= self.most, SECONDS)


@contextmanager
def integration(servers: TwoServers, slug: str, foreign: Foreign) -> Iterator[Callable[[httpx.Client], httpx.Response]]:
    """An integration whose `concurrency` is what the foreign system takes; yields what calls it."""
    with ExitStack() as stack:
        server = LoopbackServer()
        stack.callback(server.close)
        server.answers["/"] = foreign.answer
        body = {"slug": slug, "connector": "http", "settings": {"base_url": server.url}, "concurrency": foreign.most}
        with servers.client(0) as owner:
            owner.post("/api/v1/integrations", json=body).raise_for_status()
        yield lambda client: client.post(
            f"/api/v1/integrations/{slug}/execute", json={"action": "get", "input": {"url": "/"}}
        )


def test_calls_of_an_integration_at_once_are_limited_over_both_servers(servers: TwoServers) -> None:
    foreign = Foreign(2)
    with integration(servers, "pair", foreign) as call, ExitStack() as stack:
        clients = [stack.enter_context(servers.client(number)) for number in (0, 1) * 4]
        rows = stack.enter_context(psycopg.connect(servers.database, autocommit=True))
        threads = stack.enter_context(ThreadPoolExecutor(len(clients)))
        stack.callback(foreign.go_on.set)
        calls = [threads.submit(call, client) for client in clients]
        counted = "SELECT SUM(granted), COUNT(*) FROM integration_slot"
        wait_until(lambda: rows.execute(counted).fetchone() == (2, 8))
        foreign.wait_until_full()
        assert foreign.highest == 2
        foreign.go_on.set()
        answers = [each.result(SECONDS) for each in calls]
        assert {answer.status_code for answer in answers} == {200}, [answer.text for answer in answers]
        assert foreign.highest == 2
        assert rows.execute(counted).fetchone() == (None, 0)


# -- one that is killed


def test_what_a_killed_server_had_comes_back(cluster: Cluster, tmp_path: Path) -> None:
    with two_servers(tmp_path, cluster.make_database(), egress=LOOPBACK) as servers, ExitStack() as stack:
        wait_until(lambda: remaining(servers, 0) == 500)
        foreign = Foreign(2)
        call = stack.enter_context(integration(servers, "slow", foreign))
        here, there = (stack.enter_context(servers.client(number)) for number in range(2))
        threads = stack.enter_context(ThreadPoolExecutor(2))
        stack.callback(foreign.go_on.set)
        lost: list[Future[httpx.Response]] = [threads.submit(call, there) for _ in range(2)]
        foreign.wait_until_full()
        servers.kill(1)
        foreign.go_on.set()
        answer = call(here)
        assert answer.status_code == 200, answer.text
        assert all(isinstance(each.exception(SECONDS), httpx.HTTPError) for each in lost)
        wait_until(lambda: remaining(servers, 0) == 1000)
