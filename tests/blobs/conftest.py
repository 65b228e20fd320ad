"""Blobs of two tenants with the table `holding` whose rows refer to them: in a local folder on each dialect, and in a bucket."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.blobs.service import Blobs, Places
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.tenants import service as tenants
from tests.blobs.probes import BucketProbe, LocalProbe, StoreProbe
from tests.store.opening import open_migrated


@pytest.fixture(params=[("sqlite", "local"), ("postgresql", "local"), ("sqlite", "bucket")], ids="-".join)
def way(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Dialect and place store; they are independent, so the bucket is tested with one dialect only."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def store_url(request: pytest.FixtureRequest, way: tuple[str, str], tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/gos.db" if way[0] == "sqlite" else str(request.getfixturevalue("cluster").emptied())


@pytest.fixture
def probe(request: pytest.FixtureRequest, way: tuple[str, str], tmp_path: Path) -> StoreProbe:
    if way[1] == "local":
        return LocalProbe(tmp_path / "blobs")
    return BucketProbe(request.getfixturevalue("bucket"), tmp_path / "blobs")


@pytest.fixture
def places(probe: StoreProbe) -> Places:
    return probe.places


@pytest.fixture
def blobs(store_url: str, places: Places) -> Iterator[Blobs]:
    open_migrated(store_url)
    for name in ("acme", "globex"):
        tenants.create_tenant(name, name)
    db.write(
        lambda: db.execute(
            "CREATE TABLE holding (tenant_id TEXT NOT NULL, sha256 TEXT NOT NULL, "
            "FOREIGN KEY (tenant_id, sha256) REFERENCES blob (tenant_id, sha256))"
        )
    )
    yield Blobs(places, ["holding"])
    db.write(lambda: db.execute("DROP TABLE holding"))
    db.close_database()


@pytest.fixture
def acme() -> TenantScope:
    return TenantScope("acme", "key:test")


@pytest.fixture
def globex() -> TenantScope:
    return TenantScope("globex", "key:test")
