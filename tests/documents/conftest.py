"""The documents of two tenants, on each database."""

from pathlib import Path

import pytest

from appliance.blobs import Blobs, LocalPlaces
from appliance.core.scope import TenantScope
from appliance.documents.service import BLOB_TABLES, Documents
from appliance.documents.uploads import Uploads


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(LocalPlaces(tmp_path / "blobs"), BLOB_TABLES)


@pytest.fixture
def documents(two_tenants: None, blobs: Blobs) -> Documents:
    return Documents(blobs)


@pytest.fixture
def acme() -> TenantScope:
    return TenantScope("acme", "key:acme")


@pytest.fixture
def globex() -> TenantScope:
    return TenantScope("globex", "key:globex")


@pytest.fixture
def uploads(documents: Documents, blobs: Blobs) -> Uploads:
    return Uploads(documents, blobs, 64 << 20)
