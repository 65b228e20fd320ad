"""Two changes of WebApps, their versions and domains end as if one had followed the other."""

import hashlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from appliance.blobs import Blobs, LocalPlaces
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.tenants import ALL_SCOPES
from appliance.tenants import service as tenants
from appliance.webapps.domains.service import Domains, NewDomain, save_certificate_status
from appliance.webapps.publishing.publisher import Publisher
from appliance.webapps.records import FileSpec, NewVersion
from appliance.webapps.service import BLOB_TABLES, Limits, NewApp, WebApps
from tests.store.cluster import Cluster
from tests.store.interleaving import Pair, check_pair, without_exclusive_writes
from tests.store.opening import open_migrated
from tests.webapps.smoke_checks import CHECKS, Visitor, make_version
from tests.webapps.test_domains import SETTINGS, make_domains

PAGE = b"<h1>shop</h1>"
numbers = itertools.count(1)


@dataclass
class Shop:
    """Each pair of verbs has two tenants of its own, each with the WebApp `shop`."""

    blobs: Blobs
    apps: WebApps
    domains: Domains
    scope: TenantScope
    other: TenantScope
    host: str

    def version(self) -> int:
        return make_version(self.apps, self.blobs, self.scope, ())

    def published(self) -> int | None:
        return self.apps.get_app(self.scope, "shop").published_version

    def versions(self) -> list[Any]:
        sql = "SELECT number, state, published_at IS NULL FROM webapp_version WHERE tenant_id = ? ORDER BY 1"
        return db.rows(sql, (self.scope.tenant_id,))

    def upload(self, content: bytes, number: int) -> None:
        receiver = self.blobs.receiver()
        receiver.write(content)
        self.apps.put_content(self.scope, "shop", number, hashlib.sha256(content).hexdigest(), receiver.finish())

    def domain_rows(self) -> list[Any]:
        owners = db.rows("SELECT tenant_id, name FROM domain_name WHERE host = ? ORDER BY 2", (self.host,))
        names = [(tenant == self.scope.tenant_id, name.removesuffix(self.host)) for tenant, name in owners]
        sql = "SELECT tenant_id = ?, state, is_primary, verified_at IS NULL FROM domain WHERE host LIKE ? ORDER BY 1, 2, 3"
        return [names, db.rows(sql, (self.scope.tenant_id, f"%{self.host}"))]


@pytest.fixture(scope="module")
def make(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Shop]]:
    open_migrated(cluster.emptied())
    blobs = Blobs(LocalPlaces(tmp_path_factory.mktemp("blobs")), BLOB_TABLES)
    apps = WebApps(blobs, Limits(100, 1 << 20, 1 << 18))
    domains = make_domains(SETTINGS)

    def make_shop() -> Shop:
        return Shop(blobs, apps, domains, open_tenant(apps), open_tenant(apps), f"shop{next(numbers)}.example.com")

    yield make_shop
    db.close_database()


def open_tenant(apps: WebApps) -> TenantScope:
    name = f"t{next(numbers)}"
    tenants.create_tenant(name, name)
    scope = TenantScope(name, "key:test", ALL_SCOPES)
    apps.create_app(scope, NewApp("shop"))
    return scope


def two_apps_of_one_name(of: Shop) -> Pair:
    return Pair.of((partial(of.apps.create_app, of.scope, NewApp("blog")),) * 2)


def two_new_versions(of: Shop) -> Pair:
    return Pair(of.version, of.version, of.versions)


def new_version(of: Shop) -> int:
    files = {"index.html": FileSpec(hashlib.sha256(PAGE).hexdigest(), len(PAGE))}
    return of.apps.create_version(of.scope, "shop", NewVersion(files)).number


def a_version_is_finished_twice(of: Shop) -> Pair:
    number = new_version(of)
    of.upload(PAGE, number)
    return Pair.of((partial(of.apps.finalize_version, of.scope, "shop", number),) * 2, of.versions)


def a_version_is_finished_while_its_app_is_made_again(of: Shop) -> Pair:
    """The new app's version of the same number misses a content."""
    number = new_version(of)
    of.upload(PAGE, number)

    def make_again() -> None:
        of.apps.delete_app(of.scope, "shop")
        of.apps.create_app(of.scope, NewApp("shop"))
        of.apps.create_version(of.scope, "shop", NewVersion({"index.html": FileSpec("0" * 64, 13)}))

    return Pair(
        lambda: of.apps.finalize_version(of.scope, "shop", number), make_again, of.versions, may_refuse=("NotFound", "Conflict")
    )


def a_content_is_sent_twice(of: Shop) -> Pair:
    number = new_version(of)
    return Pair.of((partial(of.upload, PAGE, number),) * 2, lambda: of.apps.get_version(of.scope, "shop", number).required)


def two_versions_are_published(of: Shop) -> Pair:
    one, two = of.version(), of.version()
    return Pair.of(
        (partial(of.apps.publish_version, of.scope, "shop", each, if_current=0) for each in (one, two)),
        lambda: (of.published(), of.versions()),
    )


def a_version_is_published_and_the_one_before_restored(of: Shop) -> Pair:
    for number in (of.version(), of.version()):
        of.apps.publish_version(of.scope, "shop", number)
    three = of.version()
    return Pair(
        lambda: of.apps.publish_version(of.scope, "shop", three), lambda: of.apps.roll_back(of.scope, "shop"), of.published
    )


def a_version_is_published_and_the_app_deleted(of: Shop) -> Pair:
    one = of.version()
    return Pair(
        lambda: of.apps.publish_version(of.scope, "shop", one), lambda: of.apps.delete_app(of.scope, "shop"), of.versions
    )


def an_app_is_unpublished_and_deleted(of: Shop) -> Pair:
    of.apps.publish_version(of.scope, "shop", of.version())
    return Pair(lambda: of.apps.unpublish_app(of.scope, "shop"), lambda: of.apps.delete_app(of.scope, "shop"), of.versions)


def a_version_is_added_and_the_app_deleted(of: Shop) -> Pair:
    return Pair(of.version, lambda: of.apps.delete_app(of.scope, "shop", force=True), of.versions)


def an_app_gets_a_name_and_a_description(of: Shop) -> Pair:
    def read() -> Any:
        app = of.apps.get_app(of.scope, "shop")
        return app.name, app.description

    return Pair(
        lambda: of.apps.change_app(of.scope, "shop", "Shop", None), lambda: of.apps.change_app(of.scope, "shop", None, "Buy"), read
    )


def checks_of_two_versions_begin(of: Shop) -> Pair:
    """Only one version of an app is checked at a time."""
    publisher = Publisher(of.apps, "wrk_one", lambda _: True)
    publisher.stop()  # it records that they have begun, and leaves the checks to others
    publisher.set_probe(Visitor())
    versions = [make_version(of.apps, of.blobs, of.scope, CHECKS) for _ in range(2)]
    sql = "SELECT count(*) FROM webapp_publication WHERE tenant_id = ?"
    return Pair.of(
        (partial(publisher.publish_version, of.scope, "shop", number) for number in versions),
        lambda: db.rows(sql, (of.scope.tenant_id,)),
    )


def two_claims_of_a_domain(of: Shop) -> Pair:
    return Pair.of((partial(of.domains.claim_domain, of.scope, "shop", NewDomain(of.host)),) * 2, of.domain_rows)


def claims_of_a_domain_and_its_partner(of: Shop) -> Pair:
    return Pair(
        lambda: of.domains.claim_domain(of.scope, "shop", NewDomain(of.host, redirect_from="www")),
        lambda: of.domains.claim_domain(of.scope, "shop", NewDomain(f"www.{of.host}")),
        of.domain_rows,
    )


def two_tenants_prove_a_domain(of: Shop) -> Pair:
    for scope in (of.scope, of.other):
        of.domains.claim_domain(scope, "shop", NewDomain(of.host))
    return Pair.of((partial(of.domains.approve_domain, scope, of.host) for scope in (of.scope, of.other)), of.domain_rows)


def a_domain_is_released_and_claimed_by_another(of: Shop) -> Pair:
    of.domains.claim_domain(of.scope, "shop", NewDomain(of.host))
    of.domains.approve_domain(of.scope, of.host)
    return Pair(
        lambda: of.domains.release_domain(of.scope, "shop", of.host),
        lambda: of.domains.claim_domain(of.other, "shop", NewDomain(of.host)),
        of.domain_rows,
    )


def a_domain_is_proven_and_its_app_deleted(of: Shop) -> Pair:
    of.domains.claim_domain(of.scope, "shop", NewDomain(of.host))
    return Pair(
        lambda: of.domains.approve_domain(of.scope, of.host), lambda: of.apps.delete_app(of.scope, "shop"), of.domain_rows
    )


def a_domain_gets_a_certificate_and_is_released(of: Shop) -> Pair:
    of.domains.claim_domain(of.scope, "shop", NewDomain(of.host))
    of.domains.approve_domain(of.scope, of.host)
    return Pair(
        lambda: save_certificate_status(of.scope, of.host, "active", not_after=4_000_000_000_000),
        lambda: of.domains.release_domain(of.scope, "shop", of.host),
        of.domain_rows,
    )


def two_primary_domains(of: Shop) -> Pair:
    hosts = [of.host, f"second-{of.host}"]
    for host in hosts:
        of.domains.claim_domain(of.scope, "shop", NewDomain(host))
    return Pair.of((partial(of.domains.change_domain, of.scope, "shop", host, primary=True) for host in hosts), of.domain_rows)


PAIRS: dict[str, Callable[[Shop], Pair]] = {
    each.__name__: each
    for each in (
        two_apps_of_one_name, two_new_versions, a_version_is_finished_twice, a_version_is_finished_while_its_app_is_made_again,
        a_content_is_sent_twice, two_versions_are_published, a_version_is_published_and_the_one_before_restored,
        a_version_is_published_and_the_app_deleted, an_app_is_unpublished_and_deleted, a_version_is_added_and_the_app_deleted,
        an_app_gets_a_name_and_a_description, checks_of_two_versions_begin, two_claims_of_a_domain,
        claims_of_a_domain_and_its_partner, two_tenants_prove_a_domain, a_domain_is_released_and_claimed_by_another,
        a_domain_is_proven_and_its_app_deleted, a_domain_gets_a_certificate_and_is_released, two_primary_domains,
    )
}  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS)
def test_both_orders(make: Callable[[], Shop], pair: str, request: pytest.FixtureRequest) -> None:
    assert check_pair(lambda: PAIRS[pair](make()), reads=request.config.option.all) >= 4


def test_without_exclusive_writes_two_versions_are_published(make: Callable[[], Shop]) -> None:
    with without_exclusive_writes(), pytest.raises(AssertionError, match="was halted before"):
        check_pair(lambda: two_versions_are_published(make()))
