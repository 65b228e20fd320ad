"""A database of its own with two tenants."""

from collections.abc import Iterator

import pytest

from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.tenants import service
from tests.store.opening import open_migrated


@pytest.fixture(autouse=True)
def database(store_url: str) -> Iterator[None]:
    open_migrated(store_url)
    yield
    db.close_database()


@pytest.fixture
def acme() -> TenantScope:
    service.create_tenant("acme", "Acme")
    return service.system_scope("acme", "user:usr_1")


@pytest.fixture
def other() -> TenantScope:
    service.create_tenant("other", "Other")
    return service.system_scope("other", "user:usr_2")
