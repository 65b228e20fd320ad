"""Custom domains: normalization of host names, claims, ownership and release."""

from collections.abc import Iterator
from functools import partial

import pytest

from appliance.connectors.egress import Egress
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import AlreadyExists, Conflict, NotFound, ValidationFailed
from appliance.core.events import hub
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.tenants import service as tenants
from appliance.webapps.domains import checking, name_ownership
from appliance.webapps.domains import service as domain_service
from appliance.webapps.domains.host_table import CustomHost
from appliance.webapps.domains.lookups import Lookups
from appliance.webapps.domains.models import DomainRow
from appliance.webapps.domains.probing import Prober
from appliance.webapps.domains.service import Domains, DomainSettings, NewDomain, list_certifiable_hosts, save_certificate_status
from appliance.webapps.service import NewApp, WebApps

DAY = 86_400_000
WRITTEN = (
    ("Shop.Example.COM", "shop.example.com"), (" shop.example.com. ", "shop.example.com"), ("bücher.de", "xn--bcher-kva.de"),
    ("BÜCHER.de", "xn--bcher-kva.de"), ("xn--bcher-kva.de", "xn--bcher-kva.de"), ("shop\u3002example\uff0ecom", "shop.example.com"),
    ("\uff53\uff48\uff4f\uff50.example.com", "shop.example.com"), ("faß.de", "xn--fa-hia.de"),
    ("p\u0430ypal.com", "xn--pypal-4ve.com"),
    ("a.b.co.uk", "a.b.co.uk"), ("me.github.io", "me.github.io"),
)  # fmt: skip
RESERVED = (
    "", ".", "shop", "localhost", "x.localhost", "*.example.com", "https://shop.example.com", "shop.example.com:443",
    "shop.example.com/x", "a@b.example.com", "127.0.0.1", "0x7f.1", "1.2.3.4.", "[::1]", "::1", "co.uk", "com", "github.io",
    "gos.example", "x.gos.example", "X.Apps.Example", "apps.example", "shop--acme.apps.example", "-a.example.com",
    "a_b.example.com", "a..example.com", "x" * 64 + ".com", ".".join(["a" * 60] * 4) + ".com", "sh op.example.com",
    "x\0.example.com", "xn--a.com", "\u202e.com", "a.invalid", "a.onion", "1.in-addr.arpa",
)  # fmt: skip
SETTINGS = DomainSettings("gos.example", "apps.example", ("192.0.2.10",))


def make_domains(settings: DomainSettings) -> Domains:
    """Domains whose name server these tests do not use."""
    return Domains(settings, Prober(settings, Lookups(["127.0.0.1:9"]), Egress()))


@pytest.fixture
def domains(webapps: WebApps, globex: TenantScope) -> Iterator[Domains]:
    """With the app `shop` of acme and of globex."""
    webapps.create_app(globex, NewApp("shop"))
    instance = make_domains(SETTINGS)
    ends = [
        hub.subscribe(tenants.TenantDeleted, lambda event: domain_service.forget_tenant(event.scope)), instance.table.watch()
    ]  # fmt: skip
    yield instance
    for end in ends:
        end()


def add_verified_domain(domains: Domains, scope: TenantScope, host: str, **more: object) -> None:
    """A domain that is proven."""
    domains.claim_domain(scope, "shop", NewDomain(host, **more))  # type: ignore[arg-type]
    domains.approve_domain(scope, host)


def test_a_host_is_normalized(domains: Domains, acme: TenantScope) -> None:
    for text, host in WRITTEN:
        assert domains.claim_domain(acme, "shop", NewDomain(text)).host == host
        assert domains.get_domain(acme, "shop", text).host == host
        with pytest.raises(AlreadyExists):
            domains.claim_domain(acme, "shop", NewDomain(host))
        domains.release_domain(acme, "shop", text)


def test_reserved_names_cannot_be_claimed(domains: Domains, acme: TenantScope) -> None:
    for host in RESERVED:
        with pytest.raises(ValidationFailed) as refused:
            domains.claim_domain(acme, "shop", NewDomain(host))
        assert refused.value.details[0].pointer == "/host", host


def test_neither_name_of_a_pair_can_be_reserved(domains: Domains, acme: TenantScope) -> None:
    for host, redirect in (("www.co.uk", "apex"), ("www.gos.example.com", "www"), ("shop.example.com", "apex")):
        with pytest.raises(ValidationFailed):
            domains.claim_domain(acme, "shop", NewDomain(host, redirect_from=redirect))  # type: ignore[arg-type]
    with pytest.raises(ValidationFailed):
        make_domains(DomainSettings("www.corp.example", "apps.example")).claim_domain(
            acme, "shop", NewDomain("corp.example", redirect_from="www")
        )


def test_a_claim_lists_the_expected_records(domains: Domains, acme: TenantScope) -> None:
    domain = domains.claim_domain(acme, "shop", NewDomain("www.corp.example", redirect_from="apex"))
    proof, address, redirect = domain.records
    assert (domain.state, domain.next_check_at is not None) == ("pending_dns", True)
    assert (proof.type, proof.name) == ("TXT", "_gos-challenge.corp.example")
    assert proof.expected[0].startswith("gos-challenge=")
    assert (address.type, address.name, address.expected) == ("CNAME", "www.corp.example", ("shop--acme.apps.example",))
    assert (redirect.type, redirect.name, redirect.expected) == ("A", "corp.example", ("192.0.2.10",))
    again = domains.claim_domain(acme, "shop", NewDomain("other.example"))
    assert again.records[0].expected != proof.expected
    page = domains.list_domains(acme, "shop", PageRequest())
    assert [domain.host for domain in page.items] == ["other.example", "www.corp.example"]


def test_a_claim_alone_blocks_nobody_and_serves_nothing(domains: Domains, acme: TenantScope, globex: TenantScope) -> None:
    ours = domains.claim_domain(acme, "shop", NewDomain("shop.corp.example"))
    theirs = domains.claim_domain(globex, "shop", NewDomain("shop.corp.example"))
    assert ours.records[0].expected != theirs.records[0].expected
    assert domains.table.find("shop.corp.example") is None
    domains.approve_domain(globex, "shop.corp.example")
    assert domains.table.find("shop.corp.example") == CustomHost("globex", "shop", "shop.corp.example")
    with pytest.raises(AlreadyExists):
        domains.approve_domain(acme, "shop.corp.example")
    assert domains.get_domain(acme, "shop", "shop.corp.example").state == "pending_dns"


def test_a_held_name_is_refused_without_naming_its_holder(domains: Domains, acme: TenantScope, globex: TenantScope) -> None:
    add_verified_domain(domains, acme, "corp.example", redirect_from="www")
    answers = set()
    for claim in (NewDomain("corp.example"), NewDomain("www.corp.example"), NewDomain("CORP.example", redirect_from="www")):
        with pytest.raises(AlreadyExists) as refused:
            domains.claim_domain(globex, "shop", claim)
        answers.add(refused.value.message)
    domains.release_domain(acme, "shop", "corp.example")
    with pytest.raises(AlreadyExists) as refused:
        domains.claim_domain(globex, "shop", NewDomain("corp.example"))
    answers.add(refused.value.message)
    assert answers == {name_ownership.NOT_AVAILABLE}


@pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)
def test_a_released_name_is_reserved_and_then_needs_a_new_record(
    domains: Domains, acme: TenantScope, globex: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_verified_domain(domains, acme, "corp.example")
    domains.release_domain(acme, "shop", "corp.example")
    assert domains.table.find("corp.example") is None
    now = clock.now_ms()
    for days, expected in ((29, AlreadyExists), (31, ValidationFailed)):
        monkeypatch.setattr(clock, "now_ms", lambda days=days: now + days * DAY)
        with pytest.raises(expected):
            domains.claim_domain(globex, "shop", NewDomain("corp.example", method="http"))
    assert domains.claim_domain(globex, "shop", NewDomain("corp.example")).method == "txt"
    assert domains.claim_domain(acme, "shop", NewDomain("corp.example", method="http")).state == "pending_dns"


def test_a_proof_from_before_another_tenants_release_does_not_count(
    domains: Domains, acme: TenantScope, globex: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    domains.claim_domain(globex, "shop", NewDomain("corp.example"))
    domains.claim_domain(globex, "shop", NewDomain("other.example", method="http"))
    for host in ("corp.example", "other.example"):
        add_verified_domain(domains, acme, host)
        domains.release_domain(acme, "shop", host)
    now = clock.now_ms()
    monkeypatch.setattr(clock, "now_ms", lambda: now + 31 * DAY)
    for host in ("corp.example", "other.example"):
        row = globex.get(DomainRow, host=host)
        with pytest.raises(AlreadyExists, match="claim it again"):
            db.write(partial(checking.mark_verified, globex, row))
    domains.release_domain(globex, "shop", "corp.example")
    domains.claim_domain(globex, "shop", NewDomain("corp.example"))
    row = globex.get(DomainRow, host="corp.example")
    db.write(lambda: checking.mark_verified(globex, row))
    assert domains.table.find("corp.example") == CustomHost("globex", "shop", "corp.example")


def test_the_releasing_tenant_can_reclaim_at_once_and_the_operator_can_lift(
    domains: Domains, acme: TenantScope, globex: TenantScope
) -> None:
    add_verified_domain(domains, acme, "corp.example")
    domains.release_domain(acme, "shop", "corp.example")
    add_verified_domain(domains, acme, "corp.example")
    assert db.rows("SELECT count(*) FROM domain_tombstone") == [(0,)]
    domains.release_domain(acme, "shop", "corp.example")
    assert db.write(lambda: name_ownership.remove_tombstone("corp.example"))
    add_verified_domain(domains, globex, "corp.example")


@pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)
def test_deleting_an_app_or_tenant_releases_its_domains(
    webapps: WebApps, domains: Domains, acme: TenantScope, globex: TenantScope
) -> None:
    add_verified_domain(domains, acme, "corp.example", redirect_from="www")
    webapps.delete_app(acme, "shop")
    assert domains.table.find("corp.example") is None
    add_verified_domain(domains, globex, "globex.example")
    tenants.delete_tenant("globex")
    assert domains.table.find("globex.example") is None
    assert sorted(db.rows("SELECT name, released_by FROM domain_tombstone")) == [
        ("corp.example", "acme"), ("globex.example", ""), ("www.corp.example", "acme"),
    ]  # fmt: skip
    tenants.create_tenant("globex", "globex")
    webapps.create_app(globex, NewApp("shop"))
    with pytest.raises(AlreadyExists):
        domains.claim_domain(globex, "shop", NewDomain("globex.example"))


def test_a_name_held_by_another_domain_is_not_taken_from_it(domains: Domains, acme: TenantScope) -> None:
    """As if two processes proved both at once: each read before the other wrote."""
    add_verified_domain(domains, acme, "www.corp.example")
    domains.claim_domain(acme, "shop", NewDomain("corp.example"))
    late = acme.get(DomainRow, host="corp.example")
    late.redirect_from = "www"

    def take() -> None:
        with db.savepoint():
            name_ownership.acquire(acme, late)

    with pytest.raises(AlreadyExists):
        db.write(take)
    assert domains.table.find("www.corp.example") == CustomHost("acme", "shop", "www.corp.example")
    assert domains.table.find("corp.example") is None


def test_a_claim_of_another_tenant_is_not_visible(domains: Domains, acme: TenantScope, globex: TenantScope) -> None:
    domains.claim_domain(acme, "shop", NewDomain("shop.corp.example"))
    for ask in (
        lambda: domains.get_domain(globex, "shop", "shop.corp.example"),
        lambda: domains.release_domain(globex, "shop", "shop.corp.example"),
        lambda: domains.change_domain(globex, "shop", "shop.corp.example", primary=True),
        lambda: domains.approve_domain(globex, "shop.corp.example"),
        lambda: domains.claim_domain(globex, "nothing", NewDomain("x.corp.example")),
        lambda: domains.get_domain(acme, "shop", "no host"),
    ):
        with pytest.raises(NotFound):
            ask()


def test_an_app_has_at_most_twenty_domains(domains: Domains, acme: TenantScope) -> None:
    for number in range(20):
        domains.claim_domain(acme, "shop", NewDomain(f"d{number}.corp.example"))
    with pytest.raises(Conflict):
        domains.claim_domain(acme, "shop", NewDomain("d20.corp.example"))


def test_one_domain_is_primary_while_it_is_active(domains: Domains, acme: TenantScope) -> None:
    add_verified_domain(domains, acme, "one.example", primary=True)
    assert domains.table.primary_of("acme", "shop") == "one.example"
    add_verified_domain(domains, acme, "two.example", primary=True)
    assert domains.table.primary_of("acme", "shop") == "two.example"
    assert not domains.get_domain(acme, "shop", "one.example").primary
    domains.change_domain(acme, "shop", "two.example", primary=False)
    assert domains.table.primary_of("acme", "shop") is None


def test_a_table_notices_changes_by_another_process(
    domains: Domains, acme: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_domains(SETTINGS).table  # watches nothing, as in another process
    assert other.find("corp.example") is None
    add_verified_domain(domains, acme, "corp.example")
    now = clock.monotonic()
    monkeypatch.setattr(clock, "monotonic", lambda: now + 1.0)
    assert other.find("corp.example") == CustomHost("acme", "shop", "corp.example")


def test_every_held_name_needs_a_certificate(webapps: WebApps, acme: TenantScope) -> None:
    domains = make_domains(DomainSettings("gos.example", "apps.example", certificates=True))
    domains.claim_domain(acme, "shop", NewDomain("later.example"))
    add_verified_domain(domains, acme, "corp.example", redirect_from="www")
    hosts = list_certifiable_hosts()
    assert [(each.tenant, each.app, each.host, each.leads_here) for each in hosts] == [
        ("acme", "shop", "corp.example", None), ("acme", "shop", "www.corp.example", None),
    ]  # fmt: skip
    assert domains.get_domain(acme, "shop", "corp.example").state == "cert_pending"


def test_the_state_follows_the_certificate(webapps: WebApps, acme: TenantScope, globex: TenantScope) -> None:
    domains = make_domains(DomainSettings("gos.example", "apps.example", certificates=True))
    add_verified_domain(domains, acme, "corp.example", redirect_from="www")

    def report(state: str, error: str | None = None, not_after: int | None = None, host: str = "corp.example") -> object:
        assert save_certificate_status(acme, host, state, error, not_after=not_after)  # type: ignore[arg-type]
        domain = domains.get_domain(acme, "shop", "corp.example")
        assert domain.certificate is not None
        return domain.state, domain.certificate.error

    assert report("failed", "the CA could not connect") == ("failed", "the CA could not connect")
    assert report("pending") == ("cert_pending", None)
    assert report("active", not_after=clock.now_ms() + DAY) == ("active", None)
    assert report("failed", "rate limited") == ("active", "rate limited")  # the old one still holds
    assert report("active", not_after=clock.now_ms() - 1) == ("active", None)
    assert report("failed", "expired") == ("failed", "expired")
    assert report("active", not_after=clock.now_ms() + DAY) == ("active", None)
    assert report("failed", "refused", host="www.corp.example") == ("active", "www.corp.example: refused")
    assert report("active", host="www.corp.example") == ("active", None)
    assert not save_certificate_status(globex, "corp.example", "active")
    assert not save_certificate_status(acme, "unknown.example", "active")


def test_every_step_is_in_the_audit_trail(domains: Domains, acme: TenantScope) -> None:
    add_verified_domain(domains, acme, "corp.example")
    domains.release_domain(acme, "shop", "corp.example")
    actions = [action for (action,) in db.rows("SELECT action FROM audit_entry WHERE subject = 'corp.example' ORDER BY seq")]
    assert actions == ["domain.claim", "domain.verify", "domain.release"]
