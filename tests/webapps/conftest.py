"""The WebApps of two tenants."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.blobs import Blobs, LocalPlaces
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.tenants import ALL_SCOPES
from appliance.tenants import service as tenants
from appliance.webapps.publishing.publisher import Publisher
from appliance.webapps.service import BLOB_TABLES, Limits, NewApp, WebApps
from tests.store.opening import open_migrated
from tests.webapps.smoke_checks import Visitor, make_version


@pytest.fixture
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """SQLite, unless a test asks for both dialects."""
    if getattr(request, "param", "sqlite") == "sqlite":
        return f"sqlite:///{tmp_path}/gos.db"
    return str(request.getfixturevalue("cluster").emptied())


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(LocalPlaces(tmp_path / "blobs"), BLOB_TABLES)


@pytest.fixture
def webapps(store_url: str, blobs: Blobs, acme: TenantScope) -> Iterator[WebApps]:
    """With the app `shop` of acme."""
    open_migrated(store_url)
    for name in ("acme", "globex"):
        tenants.create_tenant(name, name)
    apps = WebApps(blobs, Limits(100, 1 << 20, 1 << 18))
    apps.create_app(acme, NewApp("shop"))
    yield apps
    db.close_database()


@pytest.fixture
def acme() -> TenantScope:
    return TenantScope("acme", "key:acme", ALL_SCOPES)


@pytest.fixture
def globex() -> TenantScope:
    return TenantScope("globex", "key:globex", ALL_SCOPES)


@pytest.fixture
def visitor() -> Visitor:
    return Visitor()


@pytest.fixture
def publishing(webapps: WebApps, visitor: Visitor) -> Iterator[Publisher]:
    """One process; `shop` has version 1, published, without checks."""
    publisher = Publisher(webapps, "wrk_one", lambda owner: owner == "wrk_one")
    publisher.set_probe(visitor)
    yield publisher
    publisher.stop()


@pytest.fixture
def two(webapps: WebApps, blobs: Blobs, acme: TenantScope) -> int:
    """Version 2 with checks, behind version 1, which is published."""
    webapps.publish_version(acme, "shop", make_version(webapps, blobs, acme, ()))
    return make_version(webapps, blobs, acme)
