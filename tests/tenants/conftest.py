"""A migrated database with two tenants and a sealer."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.core import db, migrations
from appliance.core.crypto import Sealer
from appliance.core.scope import TenantScope
from appliance.tenants import keys, service


@pytest.fixture
def database(tmp_path: Path) -> Iterator[None]:
    db.open_database(f"sqlite:///{tmp_path}/gos.db")
    migrations.migrate()
    keys._cache.clear()
    service._known.clear()
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
