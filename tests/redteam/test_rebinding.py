"""DNS rebinding, both ways: names that lead our requests inside, and names that lead a browser's requests to us."""

import time
from collections.abc import Iterator

import pytest

from appliance.connectors.contract import ConnectorError, HttpRequest
from appliance.connectors.egress import Egress, EgressClient
from appliance.connectors.network.addresses import parse_allow
from appliance.connectors.testing import LoopbackServer, free_port
from appliance.testing.running import Running
from tests.redteam.attempts import Attempts, attempts

# What a name server may answer for a name of the attacker's.
ANSWERS = [
    ["127.0.0.1"], ["127.1"], ["0"], ["0.0.0.0"], ["::1"], ["::"], ["::ffff:127.0.0.1"], ["::127.0.0.1"], ["64:ff9b::7f00:1"],
    ["2002:7f00:1::"], ["169.254.169.254"], ["100.100.100.200"], ["10.0.0.1"], ["172.16.0.1"], ["192.168.0.1"], ["fe80::1%lo"],
    ["fd00:ec2::254"], ["127.0.0.2"], ["localhost"], ["not an address"], [""], [],
]  # fmt: skip
GOOD = "127.0.0.3"
NAMES = [
    "ERP.internal.evil.example", "erp.internal.evil.example", "x.erp.internal", "xerp.internal", "erp-internal", "erp.internal%2e",
    "\u0435rp.internal",
]  # fmt: skip
HOSTS = [
    "evil.example", "localhost.evil.example", "acme.localhost.evil.example", "evil-localhost", "localhost:1@evil.example",
    "acme.localhost@evil.example", "evil.example#acme.localhost", "evil.example/acme.localhost", "0.0.0.0", "0", "2130706433",
    "127.1", "[::ffff:127.0.0.1]", "127.0.0.1.nip.io", "acme.127.0.0.1", "shop--acme.content.localhost.evil.example",
    "acme.localhost,evil.example", "acme..localhost", ".localhost",
]  # fmt: skip
PATHS = ["/", "/metrics", "/console/", "/api/v1/tenant", "/mcp", "/hooks/x"]


@pytest.fixture
def inside() -> Iterator[LoopbackServer]:
    """What must not be reached, on 127.0.0.1."""
    server = LoopbackServer("127.0.0.1", free_port())
    yield server
    server.close()


@pytest.fixture
def outside(inside: LoopbackServer) -> Iterator[LoopbackServer]:
    """What may be reached, on another address and the same port."""
    server = LoopbackServer(GOOD, inside.port)
    yield server
    server.close()


def _egress_attempts(table: Attempts, inside: LoopbackServer, outside: LoopbackServer) -> None:
    port = inside.port
    rules = parse_allow([f"{GOOD}/32"])

    def send(egress: Egress, host: str, times: int = 1) -> object:
        client = EgressClient(egress)
        try:
            seen = [client.send(HttpRequest("GET", f"http://{host}:{port}/"), time.monotonic() + 5).content for _ in range(times)]
        finally:
            client.close()
        return seen

    for answer in ANSWERS:
        egress = Egress(rules, resolver=lambda _host, _port, answer=answer: list(answer))  # type: ignore[misc]
        table.refused(f"the name leads to {answer}", lambda egress=egress: send(egress, "evil.example"), ConnectorError)  # type: ignore[misc]
        table.refused(f"dialled: {answer}", lambda egress=egress: egress.dial("evil.example", port, 5), ConnectorError)  # type: ignore[misc]
    outside.answer("/", body=b"good", Connection="close")
    turning = iter([[GOOD], ["127.0.0.1"]])
    egress = Egress(rules, resolver=lambda _host, _port: next(turning))
    table.refused("the name turns between two requests", lambda: send(egress, "evil.example", 2), ConnectorError)
    mixed = Egress(rules, resolver=lambda _host, _port: ["127.0.0.1", GOOD, "::1"])
    table.check("good and bad together lead to the good", send(mixed, "evil.example") == [b"good"])
    outside.answer("/", status=302, Location=f"http://evil.example:{port}/next", Connection="close")
    hops = iter([[GOOD], ["127.0.0.1"]])
    egress = Egress(rules, resolver=lambda _host, _port: next(hops))
    table.refused("the name turns before a redirect is followed", lambda: send(egress, "evil.example"), ConnectorError)
    by_name = Egress(parse_allow([f"erp.internal:{port}"]), resolver=lambda _host, _port: ["127.0.0.1"])
    for name in NAMES:
        table.refused(f"like the allowed name: {name}", lambda name=name: send(by_name, name), ConnectorError)  # type: ignore[misc]
    other = Egress(parse_allow([f"erp.internal:{port + 1}"]), resolver=lambda _host, _port: ["127.0.0.1"])
    table.refused("the allowed name on another port", lambda: send(other, "erp.internal"), ConnectorError)
    table.check("nothing inside was asked", inside.received == [], inside.received)


def test_no_name_leads_inside_and_no_foreign_name_is_served(
    running: Running, inside: LoopbackServer, outside: LoopbackServer
) -> None:
    with attempts(least=100) as table:
        _egress_attempts(table, inside, outside)
        for host in HOSTS:
            with running.client("acme.localhost", {"X-API-Key": running.key("acme")}) as client:
                for path in PATHS:
                    answer = client.get(
                        path, headers={"Host": host, "X-Forwarded-Host": "acme.localhost", "Forwarded": "host=acme.localhost"}
                    )
                    table.check(f"Host {host}, {path}", answer.status_code in (400, 421), answer.text)
        with running.client("acme.localhost") as client:
            table.check("control: the right name is served", client.get("/api/v1/tenant").status_code == 401)
