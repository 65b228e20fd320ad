"""Limits hold for two servers together, within the bounds that docs/cluster.md states."""

from collections import Counter
from collections.abc import Iterator

import httpx
import pytest

from tests.processes.world import wait_until
from tests.store.cluster import Cluster
from tests.store.two_servers import TwoServers, two_servers


@pytest.fixture(scope="module")
def servers(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoServers]:
    with two_servers(tmp_path_factory.mktemp("data"), cluster.make_database(), egress={"allow": ["127.0.0.0/8"]}) as servers:
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
