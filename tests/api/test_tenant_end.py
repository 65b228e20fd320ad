"""What is left of a deleted tenant: nothing."""

from appliance.core import db
from appliance.tenants import service
from appliance.testing.running import Running
from tests.api.resources import FIELDS, Resources
from tests.api.test_bodies import error


def entity_tables() -> set[str]:
    return {name for name in db.database.get_tables() if name.startswith("dp_")}


def test_a_deleted_tenant_takes_its_entities_along(running: Running, ours: Resources) -> None:
    before = entity_tables()
    with running.api("leaving") as client:
        leaving = Resources(running, "leaving", client)
        relation = {"name": "parent", "type": "relation"}
        leaving.ask("POST", "/datapool", {"name": "parents", "fields": FIELDS})
        leaving.ask("POST", "/datapool", {"name": "children", "fields": [*FIELDS, {**relation, "collection": "parents"}]})
        parent = leaving.entity("parents")
        leaving.ask("POST", "/datapool/children/entities", {"number": "1", "parent": parent})
        leaving.execution(leaving.process())
        leaving.call(leaving.integration())
        assert len(entity_tables() - before) == 2
        service.delete_tenant("leaving")
        assert entity_tables() == before
        error(client.get("/api/v1/tenant"), 421, "unknown_host")
    assert ours.ask("GET", "/tenant")["id"] == "acme"
