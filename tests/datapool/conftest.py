"""A migrated database with two tenants."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.core import db, migrations
from appliance.core.scope import TenantScope


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("datapool") / "gos.db"
    db.open_database(f"sqlite:///{path}")
    migrations.migrate()
    yield path
    db.close_database()


def _make_tenant(name: str) -> TenantScope:
    db.write(lambda: db.execute("INSERT INTO tenant VALUES (?, ?, ?, ?)", (name, name, "customer", 0)))
    return TenantScope(name, f"key:{name}")


def _remove_tenant(scope: TenantScope) -> None:
    tables = db.rows("SELECT table_name FROM collection WHERE tenant_id = ?", (scope.tenant_id,))
    db.execute("PRAGMA defer_foreign_keys = 1")
    for (table,) in tables:
        db.execute(f'DROP TABLE "{table}"')
    db.execute("DELETE FROM tenant WHERE id = ?", (scope.tenant_id,))


@pytest.fixture
def acme(database: Path) -> Iterator[TenantScope]:
    scope = _make_tenant("acme")
    yield scope
    db.write(lambda: _remove_tenant(scope))


@pytest.fixture
def globex(database: Path) -> Iterator[TenantScope]:
    scope = _make_tenant("globex")
    yield scope
    db.write(lambda: _remove_tenant(scope))
