"""The documents of two tenants on each dialect."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.blobs.local import LocalPlaces
from appliance.blobs.service import Blobs
from appliance.core import db, migrations
from appliance.core.scope import TenantScope
from appliance.documents.service import HOLDERS, Documents
from appliance.documents.uploads import Uploads
from appliance.tenants import service as tenants


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(LocalPlaces(tmp_path / "blobs"), HOLDERS)


@pytest.fixture
def documents(store_url: str, blobs: Blobs) -> Iterator[Documents]:
    db.open_database(store_url)
    migrations.migrate()
    for name in ("acme", "globex"):
        tenants.create_tenant(name, name)
    yield Documents(blobs)
    db.close_database()


@pytest.fixture
def acme() -> TenantScope:
    return TenantScope("acme", "key:acme")


@pytest.fixture
def globex() -> TenantScope:
    return TenantScope("globex", "key:globex")


@pytest.fixture
def uploads(documents: Documents, blobs: Blobs) -> Uploads:
    return Uploads(documents, blobs, 64 << 20)
