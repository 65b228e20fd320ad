"""The submitted form of an entity is parsed against the collection's definition."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.console.pages.datapool.entity_forms import EntityForm, read_entity
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.datapool import service as datapool
from tests.store.opening import open_migrated

PARTS = {"name": "parts", "fields": [{"name": "title", "type": "number", "unique": True}]}
USES = {"name": "uses", "fields": [{"name": "part", "type": "relation", "collection": "parts"}]}


@pytest.fixture
def visit(tmp_path: Path) -> Iterator[Any]:
    open_migrated(f"sqlite:///{tmp_path}/gos.db")
    db.write(lambda: db.execute("INSERT INTO tenant (id, name, kind, created_at) VALUES ('acme', 'acme', 'customer', 0)"))
    scope = TenantScope("acme", "key:acme")
    for collection in (PARTS, USES):
        datapool.create_collection(scope, collection)
    yield SimpleNamespace(scope=scope)
    db.close_database()


def test_a_title_may_be_a_number(visit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appliance.console.pages.datapool.entity_forms.MAX_OPTIONS", 2)
    parts = [datapool.create_entity(visit.scope, "parts", {"title": number})["id"] for number in (12, 13.5)]
    definition = datapool.get_collection(visit.scope, "uses")
    form = EntityForm(visit, definition)
    assert read_entity(visit, form, {"in/part": ["13.5"]}) == {"part": parts[1]}
    assert not form.problems
    form = EntityForm(visit, definition)
    assert read_entity(visit, form, {"in/part": ["a dozen"]}) == {"part": "a dozen"}
    assert [(each.pointer, each.message) for each in form.problems] == [("/part", "no entity in parts has this title.")]
