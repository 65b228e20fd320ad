"""Deleting a tenant deletes all its data."""

import pytest

from appliance.core.database import db
from appliance.documents import DocumentKept
from appliance.tenants import service
from appliance.testing.running import Running
from tests.api.resources import FIELDS, Resources
from tests.api.test_bodies import error


def entity_tables() -> set[str]:
    return {name for name in db.database.get_tables() if name.startswith("dp_")}


def test_a_deleted_tenant_leaves_no_entities(running: Running, ours: Resources) -> None:
    before = entity_tables()
    with running.api("leaving") as client:
        deleted_tenant = Resources(running, "leaving", client)
        relation = {"name": "parent", "type": "relation"}
        deleted_tenant.ask("POST", "/datapool", {"name": "parents", "fields": FIELDS})
        deleted_tenant.ask("POST", "/datapool", {"name": "children", "fields": [*FIELDS, {**relation, "collection": "parents"}]})
        parent = deleted_tenant.entity("parents")
        deleted_tenant.ask("POST", "/datapool/children/entities", {"number": "1", "parent": parent})
        deleted_tenant.execution(deleted_tenant.process())
        deleted_tenant.call(deleted_tenant.integration())
        assert len(entity_tables() - before) == 2
        service.delete_tenant("leaving")
        assert entity_tables() == before
        error(client.get("/api/v1/tenant"), 421, "unknown_host")
    assert ours.ask("GET", "/tenant")["id"] == "acme"


def test_a_tenant_with_a_held_document_cannot_be_deleted(running: Running) -> None:
    with running.api("staying") as client:
        document = (
            client.post("/api/v1/documents", params={"name": "a.txt"}, content=b"one").raise_for_status().json()["data"]["id"]
        )
        hold = f"/api/v1/documents/{document}/legal-hold"
        client.put(hold, json={"reason": "a lawsuit"}).raise_for_status()
        with pytest.raises(DocumentKept, match="1 document of the tenant is retained or under a legal hold"):
            service.delete_tenant("staying")
        error(client.delete(f"/api/v1/documents/{document}"), 409, "document_kept")
        assert client.get(f"/api/v1/documents/{document}/content").content == b"one"
        client.delete(hold).raise_for_status()
        service.delete_tenant("staying")
        error(client.get("/api/v1/tenant"), 421, "unknown_host")
