"""Changes to a claim while it is probed, and domains verified before their DNS points here."""

from collections.abc import Callable, Iterator

import pytest

from appliance.connectors.egress import Egress
from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import Conflict, RateLimited
from appliance.core.scope import TenantScope
from appliance.webapps.certificates.service import Certificates
from appliance.webapps.domains.lookups import Lookups
from appliance.webapps.domains.probing import Prober
from appliance.webapps.domains.records import Domain
from appliance.webapps.domains.service import Domains, DomainSettings, NewDomain, save_certificate_status
from appliance.webapps.service import NewApp, WebApps
from tests.sites.signing import Authority
from tests.webapps.name_server import NameServer, running_name_server

OURS, OTHER = "127.0.0.1", "127.9.9.9"
DAY = 86_400_000
SETTINGS = DomainSettings("gos.example", "apps.example", (OURS,), certificates=True)
HOST = "www.corp.example"


@pytest.fixture
def dns() -> Iterator[NameServer]:
    with running_name_server() as server:
        yield server


def domains_with(dns: NameServer) -> Domains:
    return Domains(SETTINGS, Prober(SETTINGS, Lookups([dns.address]), Egress()))


@pytest.fixture
def domains(webapps: WebApps, dns: NameServer) -> Iterator[Domains]:
    instance = domains_with(dns)
    end = instance.table.watch()
    yield instance
    end()


def event_names(host: str = HOST) -> list[str]:
    return [action for (action,) in db.rows("SELECT action FROM audit_entry WHERE subject = ? ORDER BY seq", (host,))]


def during_a_probe(monkeypatch: pytest.MonkeyPatch, domains: Domains, action: Callable[[], object]) -> None:
    """Run something after the next probe has read everything and before its result is written."""
    outside = domains.checker._outside
    probe = outside.probe

    def slow(*args: object, **more: object) -> object:
        monkeypatch.setattr(outside, "probe", probe)
        seen = probe(*args, **more)  # type: ignore[arg-type]
        action()
        return seen

    monkeypatch.setattr(outside, "probe", slow)


def claim(domains: Domains, scope: TenantScope, dns: NameServer, **more: object) -> Domain:
    """With its TXT record in place."""
    claimed = domains.claim_domain(scope, "shop", NewDomain(HOST, **more))  # type: ignore[arg-type]
    dns.set(claimed.records[0].name, "TXT", f'"{claimed.records[0].expected[0]}"')
    return claimed


def test_a_check_of_one_claim_does_not_verify_another(
    domains: Domains, acme: TenantScope, dns: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim(domains, acme, dns)

    def claim_more() -> None:
        domains.release_domain(acme, "shop", HOST)
        domains.claim_domain(acme, "shop", NewDomain(HOST, redirect_from="apex"))
        assert domains_with(dns).verify_domain(acme, "shop", HOST).state == "pending_dns"

    during_a_probe(monkeypatch, domains, claim_more)
    assert domains.verify_domain(acme, "shop", HOST).state == "pending_dns"
    assert domains.table.find("corp.example") is None
    assert "domain.verify" not in event_names()


def test_a_check_started_before_approval_does_not_overwrite_it(
    domains: Domains, acme: TenantScope, dns: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for method in ("txt", "operator"):
        domains.claim_domain(acme, "shop", NewDomain(HOST, method=method))
        during_a_probe(monkeypatch, domains, lambda: domains.approve_domain(acme, HOST))
        assert domains.verify_domain(acme, "shop", HOST).failing_since is None
        assert "domain.failing" not in event_names()
        domains.release_domain(acme, "shop", HOST)


def pass_days(domains: Domains, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    for _ in range(count):
        now = clock.now_ms() + DAY
        monkeypatch.setattr(clock, "now_ms", lambda now=now: now)
        domains.checker.check_due()


@pytest.mark.parametrize("state", ["active", "pending"])
def test_a_domain_that_does_not_point_here_waits_despite_its_certificate(
    domains: Domains, acme: TenantScope, dns: NameServer, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    dns.set(HOST, "A", OTHER)
    claim(domains, acme, dns, primary=True)
    assert domains.verify_domain(acme, "shop", HOST).state == "verified"
    save_certificate_status(acme, HOST, state, not_after=clock.now_ms() + 90 * DAY)  # type: ignore[arg-type]
    pass_days(domains, monkeypatch, 9)
    waiting = domains.get_domain(acme, "shop", HOST)
    assert (waiting.state, waiting.failing_since, domains.table.primary_of("acme", "shop")) == ("verified", None, None)
    assert "domain.failing" not in event_names()
    dns.set(HOST, "A", OURS)
    assert domains.verify_domain(acme, "shop", HOST).state == {"active": "active", "pending": "cert_pending"}[state]


def test_an_approved_domain_waits_until_it_points_here(
    domains: Domains, acme: TenantScope, dns: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    dns.set(HOST, "A", OTHER)
    domains.claim_domain(acme, "shop", NewDomain(HOST))
    domains.approve_domain(acme, HOST)
    save_certificate_status(acme, HOST, "active", not_after=clock.now_ms() + 90 * DAY)
    pass_days(domains, monkeypatch, 9)
    assert domains.get_domain(acme, "shop", HOST).state == "verified"
    assert "domain.failing" not in event_names()
    dns.set(HOST, "A", OURS)
    assert domains.verify_domain(acme, "shop", HOST).state == "active"
    dns.set(HOST, "A", OTHER)  # it has led here once: now it is lost
    pass_days(domains, monkeypatch, 1)
    assert domains.get_domain(acme, "shop", HOST).failing_since is not None


def test_a_released_domain_leaves_no_certificate_behind(
    domains: Domains, acme: TenantScope, dns: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (HOST, "corp.example"):
        dns.set(name, "A", OURS)
    claim(domains, acme, dns, redirect_from="apex")
    domains.verify_domain(acme, "shop", HOST)
    certificates = Certificates(Sealer(b"k" * 32))
    certificates.upload(acme, HOST, Authority().pair(HOST, "corp.example"), also=["corp.example"])
    certificates.upload(acme, "other.example", Authority().pair("other.example"))
    dns.clear(HOST)
    pass_days(domains, monkeypatch, 9)
    assert "domain.disable" in event_names()
    assert list(certificates.load_changed({})[0]) == ["other.example"]


def test_one_tenant_does_not_use_up_the_checks_of_others(
    domains: Domains, webapps: WebApps, acme: TenantScope, globex: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    webapps.create_app(globex, NewApp("shop"))
    for scope, host in ((acme, HOST), (acme, "more.example"), (globex, "globex.example")):
        domains.claim_domain(scope, "shop", NewDomain(host))
    seen: list[object] = []

    def probe_others() -> None:
        with pytest.raises(RateLimited):
            domains.verify_domain(acme, "shop", "more.example")
        seen.append(domains.verify_domain(globex, "shop", "globex.example").checked_at)

    during_a_probe(monkeypatch, domains, probe_others)
    seen.append(domains.verify_domain(acme, "shop", HOST).checked_at)
    seen.append(domains.verify_domain(acme, "shop", "more.example").checked_at)
    assert None not in seen
    assert len(seen) == 3


def test_a_tenant_has_at_most_fifty_unverified_claims(domains: Domains, webapps: WebApps, acme: TenantScope) -> None:
    for app in ("one", "two", "three"):
        webapps.create_app(acme, NewApp(app))
    for number in range(50):
        domains.claim_domain(acme, ("one", "two", "three")[number // 20], NewDomain(f"d{number}.corp.example"))
    with pytest.raises(Conflict, match="50 unverified domains"):
        domains.claim_domain(acme, "three", NewDomain("d50.corp.example"))
    domains.approve_domain(acme, "d0.corp.example")
    domains.claim_domain(acme, "three", NewDomain("d50.corp.example"))
