"""The documents of two tenants, on each database."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.blobs import Blobs, LocalPlaces
from appliance.core.events import hub
from appliance.core.scope import TenantScope
from appliance.documents import check_tenant_not_retained
from appliance.documents.service import BLOB_TABLES, Documents, forget_tenant
from appliance.documents.uploads import Uploads
from appliance.tenants import service as tenants


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


@pytest.fixture
def deletions() -> Iterator[None]:
    """Deleting a tenant forgets its documents, unless they are retained, as in an appliance."""
    ends = [
        hub.subscribe(tenants.TenantDeletionStarted, lambda event: check_tenant_not_retained(event.scope)),
        hub.subscribe(tenants.TenantDeleted, lambda event: forget_tenant(event.scope)),
    ]
    yield
    for end in ends:
        end()
