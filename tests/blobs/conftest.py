"""Blobs of two tenants in a local folder, with the table `holding` whose rows refer to them, on each dialect."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.blobs.local import LocalPlaces
from appliance.blobs.service import Blobs
from appliance.core import db, migrations
from appliance.core.scope import TenantScope
from appliance.tenants import service as tenants


@pytest.fixture
def places(tmp_path: Path) -> LocalPlaces:
    return LocalPlaces(tmp_path / "blobs")


@pytest.fixture
def blobs(store_url: str, places: LocalPlaces) -> Iterator[Blobs]:
    db.open_database(store_url)
    migrations.migrate()
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
