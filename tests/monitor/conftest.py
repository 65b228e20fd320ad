"""A database of its own with two tenants."""

from collections.abc import Iterator
from functools import partial

import pytest

from appliance.core.database import db
from appliance.core.scope import APPLIANCE, TenantScope
from appliance.tenants import service
from tests.store.opening import open_migrated


@pytest.fixture(autouse=True)
def database(store_url: str) -> Iterator[None]:
    open_migrated(store_url)
    yield
    db.close_database()


def _create_silently(tenant_id: str, name: str) -> None:
    """Create a tenant, of which the appliance's own trail says nothing: the tests count entries."""
    service.create_tenant(tenant_id, name)
    for table in ("audit_entry", "audit_chain"):
        db.write(partial(db.execute, f"DELETE FROM {table} WHERE tenant_id = ?", (APPLIANCE,)))  # noqa: S608  our own names


@pytest.fixture
def acme() -> TenantScope:
    _create_silently("acme", "Acme")
    return service.system_scope("acme", "user:usr_1")


@pytest.fixture
def other() -> TenantScope:
    _create_silently("other", "Other")
    return service.system_scope("other", "user:usr_2")
