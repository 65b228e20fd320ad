"""Probing of domains: what verifies one, how DNS answers are handled, and how the state changes over time."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from appliance.connectors.egress import Egress
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ConfigInvalid
from appliance.core.scope import TenantScope
from appliance.webapps.domains import checking, lookups, probing
from appliance.webapps.domains.lookups import Lookups
from appliance.webapps.domains.probing import Prober
from appliance.webapps.domains.service import Domain, Domains, DomainSettings, NewDomain
from appliance.webapps.service import NewApp, WebApps
from tests.webapps.name_server import NameServer, running_name_server

HOUR, DAY = 3_600_000, 86_400_000
OURS, OTHER = "127.0.0.1", "127.9.9.9"
SETTINGS = DomainSettings("gos.example", "apps.example", (OURS, "2001:db8::/48"))


@pytest.fixture(scope="module")
def dns() -> Iterator[NameServer]:
    with running_name_server() as server:
        yield server


class World:
    """The domains of a tenant's app `shop`, seen through a name server of the test's."""

    def __init__(self, dns: NameServer, scope: TenantScope) -> None:
        self.dns, self.scope = dns, scope
        self.ends: list[Callable[[], None]] = []
        self.domains = self.make()

    def make(self, *, allow: Sequence[str] = ("127.0.0.0/8",), http_port: int = 80, settings: DomainSettings = SETTINGS) -> Domains:
        self.domains = Domains(settings, Prober(settings, Lookups([self.dns.address]), Egress.of(allow), http_port))
        self.ends.append(self.domains.table.watch())
        return self.domains

    def claim(self, host: str, **more: object) -> Domain:
        return self.domains.claim_domain(self.scope, "shop", NewDomain(host, **more))  # type: ignore[arg-type]

    def verify(self, host: str) -> Domain:
        return self.domains.verify_domain(self.scope, "shop", host)

    def prove(self, host: str, **more: object) -> Domain:
        """A domain whose TXT record is there."""
        proof = self.claim(host, **more).records[0]
        self.dns.set(proof.name, "TXT", f'"{proof.expected[0]}"')
        return self.verify(host)

    def codes(self, host: str) -> list[str]:
        return [action for (action,) in db.rows("SELECT action FROM audit_entry WHERE subject = ? ORDER BY seq", (host,))]


@pytest.fixture
def world(
    webapps: WebApps, dns: NameServer, acme: TenantScope, globex: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    monkeypatch.setattr(lookups, "SECONDS", 30.0)  # a busy machine proves nothing about the product
    monkeypatch.setattr(probing, "HTTP_SECONDS", 30.0)
    webapps.create_app(globex, NewApp("shop"))
    dns.records.clear()
    dns.behaviour.clear()
    instance = World(dns, acme)
    yield instance
    for end in instance.ends:
        end()


def test_a_txt_record_verifies_a_domain_that_then_has_to_point_here(world: World) -> None:
    proof = world.claim("shop.corp.example").records[0]
    seen = world.verify("shop.corp.example")
    assert (seen.state, seen.records[0].finding) == ("pending_dns", "missing")
    assert "_gos-challenge.shop.corp.example does not exist" in str(seen.error) or "no TXT record yet" in str(seen.error)
    world.dns.set(proof.name, "TXT", '"gos-challenge=of somebody else"', '"v=spf1 -all"')
    seen = world.verify("shop.corp.example")
    assert (seen.state, seen.records[0].finding) == ("pending_dns", "wrong")
    assert "v=spf1 -all" in seen.records[0].observed
    half = len(proof.expected[0]) // 2
    world.dns.set(proof.name, "TXT", '"v=spf1 -all"', f'"{proof.expected[0][:half]}" "{proof.expected[0][half:]}"')
    seen = world.verify("shop.corp.example")
    assert (seen.state, seen.leads_here) == ("verified", False)
    assert world.domains.table.find("shop.corp.example") is not None
    world.dns.set("shop.corp.example", "A", OTHER)
    seen = world.verify("shop.corp.example")
    assert (seen.state, seen.records[1].finding, seen.records[1].observed) == ("verified", "wrong", (OTHER,))
    assert OTHER in str(seen.error)
    world.dns.set("shop.corp.example", "A", OURS)
    world.dns.set("shop.corp.example", "AAAA", "2001:db8::7")
    seen = world.verify("shop.corp.example")
    assert (seen.state, seen.leads_here, seen.error) == ("active", True, None)
    assert {record.finding for record in seen.records} == {"ok"}


def test_a_cname_to_us_points_here_whatever_its_address(world: World) -> None:
    world.dns.set("shop.corp.example", "CNAME", "cdn.corp.example.")
    world.dns.set("cdn.corp.example", "CNAME", "shop--acme.apps.example.")
    world.dns.set("shop--acme.apps.example", "A", OTHER)
    seen = world.prove("shop.corp.example")
    assert (seen.state, seen.leads_here) == ("active", True)
    assert seen.records[1].observed == ("cdn.corp.example", "shop--acme.apps.example", OTHER)


def test_without_public_addresses_it_is_unknown_where_a_name_points(world: World) -> None:
    world.make(settings=DomainSettings("gos.example", "apps.example", certificates=True))
    world.dns.set("corp.example", "A", OTHER)
    seen = world.prove("corp.example")
    assert (seen.state, seen.leads_here, seen.records[1].finding) == ("cert_pending", None, "unchecked")


def test_false_dns_answers_prove_nothing_and_do_no_harm(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "SECONDS", 1.0)  # nonsense is passed over, in case an answer comes after it
    world.claim("shop.corp.example")
    proof = world.domains.get_domain(world.scope, "shop", "shop.corp.example").records[0]
    seen = {}
    for behaviour in ("servfail", "nonsense", "refused"):
        world.dns.behaviour = {proof.name: behaviour, "shop.corp.example": behaviour}
        domain = world.verify("shop.corp.example")
        seen[behaviour] = (domain.state, domain.records[0].finding, domain.records[1].finding)
    assert set(seen.values()) == {("pending_dns", "unknown", "unknown")}
    monkeypatch.setattr(lookups, "SECONDS", 30.0)
    world.dns.behaviour = {}
    world.dns.set("shop.corp.example", "CNAME", "a.corp.example.")
    world.dns.set("a.corp.example", "CNAME", "shop.corp.example.")
    world.dns.set(proof.name, "CNAME", f"{proof.name}.")
    domain = world.verify("shop.corp.example")
    assert (domain.state, domain.records[0].finding, domain.records[1].finding) == ("pending_dns", "missing", "missing")
    assert "loop" in domain.records[1].advice
    world.dns.clear("shop.corp.example")
    for number in range(25):
        world.dns.set(f"h{number}.corp.example", "CNAME", f"h{number + 1}.corp.example.")
    world.dns.set("h25.corp.example", "A", OURS)
    for first in (0, 15):  # more than the library follows, more than we do
        world.dns.set("shop.corp.example", "CNAME", f"h{first}.corp.example.")
        assert "too long" in world.verify("shop.corp.example").records[1].advice
    world.dns.set("shop.corp.example", "CNAME", "h20.corp.example.")
    assert world.verify("shop.corp.example").records[1].finding == "ok"


def test_a_huge_answer_is_read_over_tcp_and_shortened(world: World) -> None:
    proof = world.claim("shop.corp.example").records[0]
    noise = [f'"{number:04d}{"x" * 240}" "{"y" * 250}"' for number in range(100)]
    world.dns.set(proof.name, "TXT", *noise)
    domain = world.verify("shop.corp.example")
    assert domain.records[0].finding == "wrong"
    assert len(domain.records[0].observed) <= 5
    assert max(map(len, domain.records[0].observed)) <= lookups.LONGEST_VALUE
    world.dns.set(proof.name, "TXT", f'"{proof.expected[0]}"', *noise[:40])
    assert world.verify("shop.corp.example").records[0].finding == "ok"


def test_a_silent_name_server_costs_no_more_than_the_deadline(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "SECONDS", 0.3)
    world.dns.behaviour["shop.corp.example"] = "silence"
    lookup = Lookups([world.dns.address]).addresses("shop.corp.example")
    assert (lookup.values, lookup.is_temporary) == ((), True)
    assert "in time" in lookup.error


def test_an_invalid_name_server_setting_is_refused() -> None:
    for entry in ("ns.example", "127.0.0.1:x", "127.0.0.1:0", ""):
        with pytest.raises(ConfigInvalid):
            Lookups([entry])
    assert Lookups(["9.9.9.9", "[2620:fe::fe]:53", "2620:fe::fe"])._servers == [
        ("9.9.9.9", 53), ("2620:fe::fe", 53), ("2620:fe::fe", 53),
    ]  # fmt: skip


@pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)
def test_two_tenants_cannot_use_each_others_proof(world: World, globex: TenantScope) -> None:
    theirs = world.domains.claim_domain(globex, "shop", NewDomain("corp.example")).records[0]
    assert world.prove("corp.example").state == "verified"
    world.dns.set(theirs.name, "TXT", f'"{theirs.expected[0]}"')
    seen = world.domains.verify_domain(globex, "shop", "corp.example")
    assert (seen.state, "not available" in str(seen.error)) == ("pending_dns", True)
    owner = world.domains.table.find("corp.example")
    assert owner is not None
    assert owner.tenant == "acme"


def test_an_old_record_does_not_prove_a_new_claim(world: World) -> None:
    world.prove("corp.example")
    world.domains.release_domain(world.scope, "shop", "corp.example")
    world.claim("corp.example")
    assert world.verify("corp.example").state == "pending_dns"


def test_a_claim_by_operator_waits_for_approval(world: World) -> None:
    world.claim("corp.example", method="operator")
    world.dns.set("corp.example", "A", OURS)
    seen = world.verify("corp.example")
    assert (seen.state, "operator" in str(seen.error)) == ("pending_dns", True)
    world.domains.approve_domain(world.scope, "corp.example")
    assert world.verify("corp.example").state == "active"


# -- proof by a file


@contextmanager
def web_server(answers: dict[tuple[str, str], tuple[int, str, str]]) -> Iterator[int]:
    """Status, Location and body by Host and path."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.headers["Host"].partition(":")[0]
            status, location, body = answers.get((name, self.path), (404, "", "nothing"))
            self.send_response(status)
            if location:
                self.send_header("Location", location)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *args: object) -> None:
            """Silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def test_a_file_verifies_a_domain_only_if_every_name_serves_it(world: World) -> None:
    answers: dict[tuple[str, str], tuple[int, str, str]] = {}
    with web_server(answers) as port:
        world.make(http_port=port)
        for name in ("corp.example", "www.corp.example", "evil.example"):
            world.dns.set(name, "A", OURS)
        proof = world.claim("corp.example", method="http", redirect_from="www").records[0]
        path = proof.name.removeprefix("http://corp.example")
        assert path.startswith("/.well-known/gos-challenge/")
        value = proof.expected[0]
        answers["corp.example", path] = (200, "", value + "\n")
        assert world.verify("corp.example").state == "pending_dns"  # www. has none
        answers["www.corp.example", path] = (302, f"http://evil.example:{port}{path}", "")
        answers["evil.example", path] = (200, "", value)
        seen = world.verify("corp.example")
        assert (seen.state, seen.records[0].finding) == ("pending_dns", "wrong")
        answers["www.corp.example", path] = (200, "", "x" * 9000)
        assert world.verify("corp.example").state == "pending_dns"
        answers["www.corp.example", path] = (302, "/moved", "")
        answers["www.corp.example", "/moved"] = (200, "", value)
        assert world.verify("corp.example").state == "active"
    assert world.verify("corp.example").state == "active"  # the file is gone, it leads here


def test_a_name_with_an_internal_address_is_not_contacted(world: World) -> None:
    responses: dict[tuple[str, str], tuple[int, str, str]] = {}
    with web_server(responses) as port:
        world.make(http_port=port, allow=())
        for inside in (OURS, "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1"):
            world.dns.records.clear()
            world.dns.set("rebind.example", "AAAA" if ":" in inside else "A", inside)
            host = "rebind.example"
            proof = world.claim(host, method="http").records[0]
            responses[host, proof.name.removeprefix(f"http://{host}")] = (200, "", proof.expected[0])
            seen = world.verify(host)
            assert (seen.state, seen.records[0].finding) == ("pending_dns", "missing"), inside
            assert "outside the public internet" in seen.records[0].advice
            world.domains.release_domain(world.scope, "shop", host)


# -- over time


class Time:
    """The clock, moved on by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = clock.now_ms()
        monkeypatch.setattr(clock, "now_ms", lambda: self.now)


def test_a_lost_domain_alerts_once_and_is_released_after_seven_days(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(monkeypatch)
    world.dns.set("corp.example", "A", OURS)
    proof = world.prove("corp.example", primary=True).records[0]
    assert world.domains.table.primary_of("acme", "shop") == "corp.example"
    world.dns.clear("corp.example")
    time.now += 6 * HOUR
    assert world.domains.checker.check_due() == 1
    seen = world.domains.get_domain(world.scope, "shop", "corp.example")
    assert (seen.state, seen.failing_since) == ("active", time.now)
    assert world.domains.table.primary_of("acme", "shop") is None
    world.dns.set("corp.example", "A", OURS)
    time.now += 6 * HOUR
    world.domains.checker.check_due()
    assert world.domains.get_domain(world.scope, "shop", "corp.example").failing_since is None
    assert world.codes("corp.example")[-2:] == ["domain.failing", "domain.recover"]
    world.dns.clear(proof.name)  # now the proof goes
    for _ in range(40):
        time.now += 6 * HOUR
        world.domains.checker.check_due()
    seen = world.domains.get_domain(world.scope, "shop", "corp.example")
    assert (seen.state, seen.next_check_at, "7 days" in str(seen.error)) == ("failed", None, True)
    assert world.domains.table.find("corp.example") is None
    assert world.codes("corp.example")[-2:] == ["domain.failing", "domain.disable"]
    assert db.rows("SELECT name, released_by FROM domain_tombstone") == [("corp.example", "acme")]
    world.dns.set(proof.name, "TXT", f'"{proof.expected[0]}"')
    assert world.verify("corp.example").state == "active"


def test_a_clock_that_was_years_ahead_does_not_stop_the_checks(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(monkeypatch)
    world.dns.set("corp.example", "A", OURS)
    world.prove("corp.example")
    for days in (5 * 365, -5 * 365):
        time.now += days * DAY
        assert world.domains.checker.check_due() == 1
    seen = world.domains.get_domain(world.scope, "shop", "corp.example")
    assert (seen.state, seen.next_check_at) == ("active", time.now + 6 * HOUR)


def test_unresponsive_name_servers_do_not_release_a_domain(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(monkeypatch)
    world.dns.set("corp.example", "A", OURS)
    proof = world.prove("corp.example").records[0]
    world.dns.behaviour = {"corp.example": "servfail", proof.name: "servfail"}
    for _ in range(40):
        time.now += 6 * HOUR
        world.domains.checker.check_due()
    seen = world.domains.get_domain(world.scope, "shop", "corp.example")
    assert (seen.state, seen.leads_here) == ("active", True)
    assert world.codes("corp.example").count("domain.failing") == 1
    world.dns.behaviour = {}
    time.now += 6 * HOUR
    world.domains.checker.check_due()
    assert world.domains.get_domain(world.scope, "shop", "corp.example").failing_since is None


def test_an_unverified_claim_is_checked_less_often_and_expires(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = Time(monkeypatch)
    world.claim("corp.example")
    waits = []
    while (seen := world.domains.get_domain(world.scope, "shop", "corp.example")).next_check_at is not None:
        assert world.domains.checker.check_due() == 0
        waits.append(seen.next_check_at - time.now)
        time.now = seen.next_check_at
        assert world.domains.checker.check_due() == 1
        if len(waits) == 10:
            time.now += 30 * DAY
            assert world.domains.checker.check_due() == 1
    assert [wait // 60_000 for wait in waits[1:8]] == [1, 2, 4, 8, 16, 32, 60]
    assert (seen.state, "30 days" in str(seen.error)) == ("failed", True)


@pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)
def test_only_one_process_checks_and_a_late_result_is_dropped(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(monkeypatch)
    world.claim("corp.example")
    time.now += 60_000
    second = Domains(SETTINGS, Prober(SETTINGS, Lookups([world.dns.address]), Egress()))
    first = world.domains.checker
    during: list[int] = []
    probe = first._outside.probe

    def slow(*args: object, **more: object) -> object:
        """While this process probes, another one finds nothing due, and a person requests a check."""
        during.append(second.checker.check_due())
        proof = world.domains.get_domain(world.scope, "shop", "corp.example").records[0]
        seen = probe(*args, **more)  # type: ignore[arg-type]
        world.dns.set(proof.name, "TXT", f'"{proof.expected[0]}"')
        second.verify_domain(world.scope, "shop", "corp.example")
        return seen

    monkeypatch.setattr(first._outside, "probe", slow)
    assert first.check_due() == 0
    assert during == [0]
    assert world.domains.get_domain(world.scope, "shop", "corp.example").state == "verified"


def test_a_check_of_a_crashed_process_is_repeated_by_another(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(monkeypatch)
    world.claim("corp.example")
    time.now += 60_000

    def die(*args: object, **more: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(world.domains.checker._outside, "probe", die)
    with pytest.raises(KeyboardInterrupt):
        world.domains.checker.check_due()
    world.make()
    assert world.domains.checker.check_due() == 0
    time.now += checking.LEASE_MS
    assert world.domains.checker.check_due() == 1
