"""A migrated database with two tenants that each have customers and orders."""

from collections.abc import Iterator

import pytest

from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.datapool import service as datapool
from tests.store.opening import open_migrated

CUSTOMERS = {
    "name": "customers",
    "fields": [
        {"name": "code", "type": "text", "required": True, "unique": True, "max_length": 10},
        {"name": "country", "type": "text"},
    ],
}
ORDERS = {
    "name": "orders",
    "fields": [
        {"name": "number", "type": "text", "required": True, "unique": True},
        {"name": "total", "type": "decimal", "scale": 2, "min": "0"},
        {"name": "quantity", "type": "integer", "default": 1},
        {"name": "weight", "type": "number"},
        {"name": "paid", "type": "boolean"},
        {"name": "day", "type": "date"},
        {"name": "shipped", "type": "datetime"},
        {"name": "state", "type": "select", "options": ["new", "done"]},
        {"name": "contact", "type": "email"},
        {"name": "page", "type": "url"},
        {"name": "extra", "type": "json"},
        {"name": "customer", "type": "relation", "collection": "customers"},
    ],
    "search": ["number", "contact"],
}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('datapool')}/gos.db"
    else:
        url = request.getfixturevalue("cluster").emptied()
    open_migrated(url)
    yield
    db.close_database()


def make_tenant(name: str) -> TenantScope:
    db.write(lambda: db.execute("INSERT INTO tenant (id, name, kind, created_at) VALUES (?, ?, ?, ?)", (name, name, "customer", 0)))
    scope = TenantScope(name, f"key:{name}")
    datapool.create_collection(scope, CUSTOMERS)
    datapool.create_collection(scope, ORDERS)
    return scope


def remove_tenant(scope: TenantScope) -> None:
    tables = db.rows("SELECT table_name FROM collection WHERE tenant_id = ?", (scope.tenant_id,))
    if db.is_sqlite():
        db.execute("PRAGMA defer_foreign_keys = 1")
        for (table,) in tables:
            db.execute(f'DELETE FROM "{table}"')  # noqa: S608
    for (table,) in tables:
        db.execute(f'DROP TABLE "{table}"' + ("" if db.is_sqlite() else " CASCADE"))
    db.execute("DELETE FROM tenant WHERE id = ?", (scope.tenant_id,))


@pytest.fixture
def acme(database: None) -> Iterator[TenantScope]:
    scope = make_tenant("acme")
    yield scope
    db.write(lambda: remove_tenant(scope))


@pytest.fixture
def globex(database: None) -> Iterator[TenantScope]:
    scope = make_tenant("globex")
    yield scope
    db.write(lambda: remove_tenant(scope))
