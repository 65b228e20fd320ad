"""A migrated database with two tenants and a sealer."""

from collections.abc import Iterator

import pytest

from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.tenants import service
from tests.store.opening import open_migrated


@pytest.fixture
def database(store_url: str) -> Iterator[None]:
    open_migrated(store_url)
    yield
    db.close_database()


@pytest.fixture
def one(database: None) -> TenantScope:
    service.create_tenant("one", "One")
    return service.system_scope("one")


@pytest.fixture
def two(database: None) -> TenantScope:
    service.create_tenant("two", "Two")
    return service.system_scope("two")


@pytest.fixture(scope="session")
def sealer() -> Sealer:
    return Sealer(b"k" * 32)
