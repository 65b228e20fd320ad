"""An import that would exceed a quota of its tenant is refused before anything is written, by the figures of the quotas."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from appliance.backups.importing import ImportRequest, ImportResult, SecretReplacement
from appliance.backups.tenant_exports import export_tenant
from appliance.backups.tenant_imports import import_tenant
from appliance.blobs import quota
from appliance.core.database import caches, db
from appliance.core.errors import NotFound, StorageFull, ValidationFailed
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.datapool import count_entities, measure_tenant
from appliance.datapool import service as datapool
from appliance.monitor import AuditFilter, audit
from appliance.quotas import find_limit, limits
from appliance.tenants import service
from tests.backups.conftest import make_world

Import = Callable[..., ImportResult]


def used_bytes(scope: TenantScope) -> int:
    measure_tenant(scope)
    return quota.used_bytes(scope)


@pytest.fixture
def imported(tmp_path: Path, store_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Import]:
    """What imports an export of initech, which has 8 entities with changes and a document, as `copy`; no quota is set."""
    monkeypatch.setattr(limits, "defaults", limits.Defaults())
    caches.empty_all()
    world = make_world(tmp_path / "data", "" if store_url.startswith("sqlite") else store_url)
    with world.opened() as sealer:
        scope = world.fill()
        first = datapool.query_entities(scope, "orders", {"limit": 1}).items[0]["id"]
        datapool.update_entity(scope, "orders", first, {"number": "a longer text with umlauts: äöü"})
        export_tenant(scope, world.places, tmp_path / "initech.gost", None)

        def run(**quotas: str) -> ImportResult:
            caches.empty_all()
            request = ImportRequest(tmp_path / "initech.gost", name="copy", quotas=quotas)
            return import_tenant(world.places, SecretReplacement(sealer), request, world.config.data)

        yield run
    caches.empty_all()


def rows() -> list[int]:
    tables = ("tenant", "blob", "entity_change", "audit_entry", "collection")
    return [int(db.rows(f"SELECT count(*) FROM {table}")[0][0]) for table in tables]  # noqa: S608  our own names


def test_entities_beyond_the_default_are_refused_before_anything_is_written(imported: Import) -> None:
    limits.set_default("entities", 7)
    before = rows()
    with pytest.raises(StorageFull) as refused:
        imported()
    assert (rows(), refused.value.extra) == (
        before, {"quota": "entities", "used": 0, "needed": 8, "limit": 7, "retryable": False}
    )  # fmt: skip
    assert "has 8 entities" in refused.value.message
    assert "may have 7" in refused.value.message
    assert "--quota entities=8" in refused.value.message
    with pytest.raises(NotFound):
        service.get_tenant("copy")
    limits.set_default("entities", 8)
    assert imported().tenant_id == "copy"
    assert count_entities(service.system_scope("copy")) == 8


def test_storage_is_counted_as_that_of_a_tenant(imported: Import) -> None:
    """To the byte: contents, entities and their history."""
    needed = used_bytes(service.system_scope("initech"))
    limits.set_default("storage", needed - 1)
    before = rows()
    with pytest.raises(StorageFull) as refused:
        imported()
    assert (rows(), refused.value.extra) == (
        before, {"quota": "storage", "used": 0, "needed": needed, "limit": needed - 1, "retryable": False}
    )  # fmt: skip
    assert f"--quota storage={needed}B" in refused.value.message
    limits.set_default("storage", needed)
    imported()
    assert used_bytes(service.system_scope("copy")) == needed


def test_an_import_can_give_the_tenant_quotas_of_its_own(imported: Import) -> None:
    limits.set_default("entities", 7)
    limits.set_default("storage", 10)
    with pytest.raises(StorageFull, match="entities"):
        imported(storage="1GB")
    imported(storage="1GB", entities="8")
    scope = service.system_scope("copy")
    assert (find_limit("copy", "entities"), find_limit("copy", "storage")) == (8, 10**9)
    entries = audit.list_entries(scope, AuditFilter(action="quota.set"), PageRequest()).items
    assert {entry.subject for entry in entries} == {"entities", "storage"}
    with pytest.raises(StorageFull):
        datapool.create_entity(scope, "orders", {"number": "one more", "total": "1"})


def test_own_quotas_may_be_less_than_the_default_and_must_be_amounts(imported: Import) -> None:
    with pytest.raises(StorageFull, match="may have 3"):
        imported(entities="3")
    for quotas in ({"coffee": "1"}, {"storage": "much"}):
        with pytest.raises(ValidationFailed):
            imported(**quotas)
    imported(entities="none")
    assert find_limit("copy", "entities") is None
