"""Certificates by ACME: issued, renewed, and loaded without a restart; failures are explained and retries limited."""

import ssl
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from appliance.connectors.testing import free_port
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.sites.front.tls import ServerConfig, build_server_config
from appliance.sites.front.transport import Transport
from appliance.tenants import service as tenants
from appliance.testing.running import make_config
from appliance.web import answer
from appliance.webapps.certificates import Authority, Certificates, Issuer, Registration, Worker
from appliance.webapps.certificates.issuing import CertificateRequest, CertificateStatus
from appliance.webapps.certificates.models import OrderRow
from appliance.webapps.certificates.order_processor import OrderProcessor
from appliance.webapps.certificates.schedule import DAY, HOUR, MOST_TRIES
from tests.sites.acme_server import AcmeServer, Problem, acme_server
from tests.sites.live_server import fingerprint, peer, serving
from tests.store.opening import open_migrated

HOST = "shop.example.com"
ACME = TenantScope("acme", "key:acme")


@dataclass
class HostList:
    """Hosts that need certificates, and the status reported for each."""

    hosts: list[CertificateRequest] = field(default_factory=list)
    statuses: dict[str, CertificateStatus] = field(default_factory=dict)

    def list_requests(self) -> list[CertificateRequest]:
        return self.hosts

    def report_status(self, request: CertificateRequest, status: CertificateStatus) -> None:
        self.statuses[request.host] = status


class World:
    """An appliance's listeners, its orders, and an authority that connects to them."""

    def __init__(self, authority: AcmeServer, certificates: Certificates, server: ServerConfig) -> None:
        self.authority, self.certificates, self.server = authority, certificates, server
        self.domains = HostList([CertificateRequest(HOST, "acme", (HOST,))])
        self.port = int(server.bind[0].rpartition(":")[2])

    def issuer(self, instance: str = "wrk_1", **more: Any) -> Issuer:
        """A process that works on the orders; all others are dead."""
        ordering = OrderProcessor(Authority(f"{self.authority.url}/directory", **more), self.certificates)
        return Issuer(self.certificates, self.domains, Worker(instance, lambda name: name == instance), ordering)

    def run_rounds(self, issuer: Issuer, count: int = 6) -> CertificateStatus:
        """Run `count` rounds without the pauses between them."""
        for _ in range(count):
            issuer.run_round()
            db.write(lambda: db.execute("UPDATE certificate_order SET due_at = 0 WHERE order_url IS NOT NULL"))
        return self.domains.statuses[HOST]

    def order(self) -> OrderRow:
        row: OrderRow = OrderRow.get(OrderRow.host == HOST)
        return row

    def advance(self, ms: int) -> None:
        """Move the times of the order back, as if `ms` had passed since the last attempt."""
        row = self.order()
        tries = [at - ms for at in row.tries]
        mine = OrderRow.host == HOST
        db.write(lambda: OrderRow.update(due_at=row.due_at - ms, tries=tries).where(mine).execute())


@pytest.fixture(scope="module")
def listening(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Certificates, ServerConfig]]:
    folder = tmp_path_factory.mktemp("acme")
    open_migrated(f"sqlite:///{folder}/gos.db")
    for name in ("acme", "globex"):
        tenants.create_tenant(name, name)
    certificates = Certificates(Sealer(b"k" * 32))
    config: Config = make_config(folder, server__tls="internal", tls__http_port=free_port())
    server = build_server_config(config, certificates)
    withdraw = certificates.on_change(server.reload)
    with serving(server, Transport(refuse_unknown, config, server)):
        yield certificates, server
    withdraw()
    db.close_database()


async def refuse_unknown(scope: Any, receive: Any, send: Any) -> None:
    """The front: only requests to a host that it does not know reach it from the plain listener."""
    assert dict(scope["headers"])[b"host"] == b"unknown.example.com", scope["path"]
    await answer(send, 421, b"", [])


@pytest.fixture
def world(listening: tuple[Certificates, ServerConfig]) -> Iterator[World]:
    for table in ("certificate", "certificate_order", "acme_account", "acme_challenge"):
        db.write(lambda table=table: db.execute(f"DELETE FROM {table}"))  # type: ignore[misc]  # noqa: S608
    listening[1].reload()
    with acme_server() as authority:
        authority.port = int(listening[1].insecure_bind[0].rpartition(":")[2])
        yield World(authority, *listening)


def leaf_fingerprint(chain: str) -> str:
    return fingerprint(ssl.PEM_cert_to_DER_cert(chain[: chain.index("-----END")] + "-----END CERTIFICATE-----\n"))


def test_a_certificate_is_issued_and_served_without_a_restart(world: World) -> None:
    before = peer(world.port, HOST)[0]
    status = world.run_rounds(world.issuer())
    (order,) = world.authority.orders
    assert peer(world.port, HOST) == (leaf_fingerprint(order.chain), "h2")
    assert before != leaf_fingerprint(order.chain)
    certificate = world.certificates.get(ACME, HOST)
    assert (status.state, status.error, status.not_after) == ("active", None, certificate.facts.not_after)
    assert (certificate.origin, certificate.facts.names, certificate.facts.issuer) == ("acme", (HOST,), "Loopback authority")
    assert db.rows("SELECT count(*) FROM acme_challenge")[0][0] == 0
    assert world.order().order_url is None


def test_it_is_renewed_at_two_thirds_of_its_life_by_the_same_account(world: World) -> None:
    issuer = world.issuer()
    world.run_rounds(issuer)
    certificate = world.certificates.get(ACME, HOST)
    life = certificate.facts.not_after - certificate.facts.not_before
    assert certificate.facts.not_before + life * 0.6 < world.order().due_at <= certificate.facts.not_before + life * 2 // 3
    world.run_rounds(issuer)
    assert len(world.authority.orders) == 1, "nothing is asked before that time"
    world.advance(62 * DAY)
    world.run_rounds(issuer)
    assert len(world.authority.orders) == 2
    assert len(world.authority.accounts) == 1
    assert peer(world.port, HOST)[0] == leaf_fingerprint(world.authority.orders[1].chain)


@pytest.mark.parametrize("resource", ["account", "order", "challenge", "finalize", "certificate"])
def test_a_rejected_nonce_is_retried(world: World, resource: str) -> None:
    world.authority.failures[resource].append(Problem(400, "badNonce", "too old"))
    assert world.run_rounds(world.issuer()).state == "active"


@pytest.mark.parametrize("resource", ["authz", "finalize", "certificate"])
def test_a_failing_authority_is_retried(world: World, resource: str) -> None:
    world.authority.failures[resource] += [Problem(500, "serverInternal", "try again"), Problem(503, "about:blank", "maintenance")]
    assert world.run_rounds(world.issuer(), 12).state in ("active", "failed")
    assert len(world.authority.orders) == 1


def test_a_slow_authority_is_waited_for(world: World) -> None:
    world.authority.pause = 5
    issuer = world.issuer()
    assert world.run_rounds(issuer, 5).state == "pending"
    assert world.run_rounds(issuer, 8).state == "active"
    assert world.authority.seen.count("finalize") == 1


def test_the_authoritys_error_is_shown(world: World) -> None:
    world.authority.port = free_port()  # nobody listens where it asks
    status = world.run_rounds(world.issuer())
    assert status.state == "failed"
    assert status.error is not None
    assert "urn:ietf:params:acme:error:connection" in status.error
    assert HOST in status.error
    assert status.next_try is not None
    assert status.next_try > clock.now_ms()


def test_a_rate_limit_of_the_authority_is_respected(world: World) -> None:
    world.authority.failures["order"].append(Problem(429, "rateLimited", "too many certificates", {"Retry-After": "90000"}))
    status = world.run_rounds(world.issuer())
    assert status.error == "too many certificates (urn:ietf:params:acme:error:rateLimited)"
    assert status.next_try is not None
    assert status.next_try >= clock.now_ms() + 24 * HOUR
    assert world.authority.seen.count("order") == 1


def test_at_most_five_orders_a_day(world: World) -> None:
    issuer = world.issuer()
    world.authority.port = free_port()
    for _ in range(7):
        world.run_rounds(issuer, 3)
        due_at = world.order().due_at
        db.write(lambda: OrderRow.update(due_at=0).where(OrderRow.host == HOST).execute())
    assert len(world.authority.orders) == MOST_TRIES
    assert due_at > clock.now_ms() + 20 * HOUR


def test_removing_and_adding_a_domain_does_not_raise_the_limit(world: World) -> None:
    issuer = world.issuer()
    for _ in range(7):
        world.run_rounds(issuer, 1)
        hosts, world.domains.hosts = world.domains.hosts, []
        issuer.run_round()
        world.domains.hosts = hosts
    assert len(world.authority.orders) <= MOST_TRIES


def test_a_retry_after_a_failure_succeeds(world: World) -> None:
    port, world.authority.port = world.authority.port, free_port()
    issuer = world.issuer()
    assert world.run_rounds(issuer).state == "failed"
    world.authority.port = port
    world.advance(2 * HOUR)
    assert world.run_rounds(issuer) == CertificateStatus("active", None, None, world.certificates.get(ACME, HOST).facts.not_after)


def test_a_failed_renewal_keeps_the_certificate_and_is_reported(world: World) -> None:
    issuer = world.issuer()
    world.run_rounds(issuer)
    world.authority.port = free_port()
    world.advance(62 * DAY)
    status = world.run_rounds(issuer)
    assert status.state == "active"
    assert status.error is not None
    assert peer(world.port, HOST)[0] == leaf_fingerprint(world.authority.orders[0].chain)


def test_an_unreachable_authority_is_reported_and_not_hammered(world: World) -> None:
    source = OrderProcessor(Authority(f"http://127.0.0.1:{free_port()}/directory"), world.certificates)
    issuer = Issuer(world.certificates, world.domains, Worker("wrk_1", lambda _: False), source)
    status = world.run_rounds(issuer)
    assert (status.state, status.error) == ("failed", "the authority could not be reached: connection refused (unreachable)")
    assert len(world.order().tries) == 1


def test_a_certificate_for_another_key_is_rejected(world: World) -> None:
    issuer = world.issuer()
    world.authority.pause = 6
    world.run_rounds(issuer, 4)
    assert world.authority.orders[0].status == "processing"
    world.authority.orders[0].chain = world.authority.signer.pair(HOST)[0]
    status = world.run_rounds(issuer)
    assert status.error is not None
    assert "bad_certificate" in status.error
    assert world.certificates.find(ACME, HOST) is None


def test_names_are_validated_with_the_dns_hook(world: World, tmp_path: Path) -> None:
    records = tmp_path / "records"
    records.mkdir()
    world.authority.records = records
    script = tmp_path / "hook"
    script.write_text(f'#!/bin/sh\ncase "$1" in add) echo "$3" >>"{records}/$2";; remove) rm -f "{records}/$2";; esac\n')
    script.chmod(stat.S_IRWXU)
    names = ("gos.example.com", "*.gos.example.com")
    world.domains.hosts = [CertificateRequest("gos.example.com", None, names)]
    issuer = world.issuer(dns_hook=(str(script),), hook_seconds=60)
    for _ in range(8):
        issuer.run_round()
        db.write(lambda: db.execute("UPDATE certificate_order SET due_at = 0 WHERE order_url IS NOT NULL"))
    assert world.domains.statuses["gos.example.com"].state == "active"
    served = leaf_fingerprint(world.authority.orders[0].chain)
    assert [peer(world.port, name)[0] for name in ("gos.example.com", "demo.gos.example.com")] == [served, served]
    assert list(records.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "message"),
    [(("/bin/sh", "-c", "echo no such zone; exit 3"), "no such zone"), (("/nowhere/hook",), "could not be started")],
)
def test_a_failing_hook_is_reported(world: World, command: tuple[str, ...], message: str) -> None:
    status = world.run_rounds(world.issuer(dns_hook=command, hook_seconds=60))
    assert status.error is not None
    assert message in status.error
    assert "dns_hook_failed" in status.error


def test_a_hanging_hook_is_killed(world: World) -> None:
    status = world.run_rounds(world.issuer(dns_hook=("/bin/sh", "-c", "sleep 600 & sleep 600"), hook_seconds=0.2), 3)
    assert status.error is not None
    assert "did not finish within 0.2 s" in status.error


def test_an_external_account_binding_is_used(world: World) -> None:
    world.authority.eab = ("kid-1", b"0123456789abcdef")
    assert "externalAccountRequired" in (world.run_rounds(world.issuer()).error or "")
    world.advance(2 * HOUR)
    registration = Registration("ops@example.com", "kid-1", "MDEyMzQ1Njc4OWFiY2RlZg")
    assert world.run_rounds(world.issuer(registration=registration)).state == "active"


def test_the_authority_can_suggest_an_earlier_renewal(world: World) -> None:
    issuer = world.issuer()
    world.authority.window = {"start": "2020-01-01T00:00:00Z", "end": "2020-01-02T00:00:00Z"}
    world.run_rounds(issuer)
    assert len(world.authority.orders) == 1
    issuer.ask_renewals()
    issuer.ask_renewals()
    assert world.authority.seen.count("renewal") == 1
    world.run_rounds(issuer)
    assert len(world.authority.orders) == 2


def test_an_uploaded_certificate_is_kept_until_it_expires(world: World) -> None:
    issuer = world.issuer()
    world.certificates.upload(ACME, HOST, world.authority.signer.pair(HOST))
    assert world.run_rounds(issuer).state == "active"
    assert world.authority.orders == []
    db.write(lambda: db.execute("UPDATE certificate SET not_after = 1"))
    assert world.run_rounds(issuer).state == "active"
    assert world.certificates.get(ACME, HOST).origin == "acme"


def test_a_host_that_goes_to_another_tenant_gets_another_certificate(world: World) -> None:
    issuer = world.issuer()
    world.run_rounds(issuer)
    world.domains.hosts = [CertificateRequest(HOST, "globex", (HOST,))]
    assert world.run_rounds(issuer).state == "active"
    assert world.certificates.find(ACME, HOST) is None
    assert peer(world.port, HOST)[0] == leaf_fingerprint(world.authority.orders[1].chain)


class Crash(BaseException):
    """The simulated crash of a process."""


@pytest.mark.parametrize("point", range(17))
def test_a_process_can_crash_at_every_write(world: World, point: int, monkeypatch: pytest.MonkeyPatch) -> None:
    left = point
    write = db.write

    def dying(fn: Any) -> Any:
        nonlocal left
        left -= 1
        if left == -1:
            raise Crash
        return write(fn)

    first = world.issuer("wrk_first")
    with monkeypatch.context() as patch:
        patch.setattr(db, "write", dying)
        try:
            for _ in range(8):
                first.run_round()
                write(lambda: db.execute("UPDATE certificate_order SET due_at = 0 WHERE order_url IS NOT NULL"))
        except Crash:
            pass
    write(lambda: db.execute("UPDATE certificate_order SET due_at = 0 WHERE owner IS NOT NULL"))
    assert world.run_rounds(world.issuer("wrk_second")).state == "active"
    assert len(world.authority.orders) <= 2
    assert len(world.authority.accounts) == 1
    assert peer(world.port, HOST)[0] == leaf_fingerprint(world.authority.orders[-1].chain)


def test_an_order_of_a_live_process_is_not_claimed(world: World) -> None:
    first = world.issuer("wrk_first")
    first.run_round()
    db.write(lambda: db.execute("UPDATE certificate_order SET owner = 'wrk_first', due_at = 0"))
    source = OrderProcessor(Authority(f"{world.authority.url}/directory"), world.certificates)
    second = Issuer(world.certificates, world.domains, Worker("wrk_second", lambda _: True), source)
    world.run_rounds(second)
    assert world.certificates.find(ACME, HOST) is None


def test_the_plain_listener_answers_challenges_and_redirects_browsers(world: World) -> None:
    write = "INSERT INTO acme_challenge (token, host, order_host, answer) VALUES (?, ?, ?, ?)"
    db.write(lambda: db.execute(write, ("t" * 20, HOST, HOST, "t.key")))
    with httpx.Client(base_url=f"http://127.0.0.1:{world.authority.port}", trust_env=False, timeout=30) as client:
        path = "/.well-known/acme-challenge/"
        assert client.get(f"{path}{'t' * 20}", headers={"Host": HOST}).text == "t.key"
        for host, token in (("other.example.com", "t" * 20), (HOST, "u" * 20), (HOST, "..%2f..%2fetc%2fpasswd"), (HOST, "")):
            assert client.get(f"{path}{token}", headers={"Host": host}).status_code == 404
        moved = client.get("/a%20b?c=d", headers={"Host": "localhost"})
        assert (moved.status_code, moved.headers["location"]) == (308, f"https://localhost:{world.port}/a%20b?c=d")
        assert client.get("/", headers={"Host": "unknown.example.com"}).status_code == 421
        assert client.post("/", headers={"Host": "localhost"}).status_code == 400
        assert client.get("/", headers={"Host": "localhost", "X-API-Key": "secret"}).status_code == 400
