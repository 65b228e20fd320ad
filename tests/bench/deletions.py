"""How long another write waits while a collection of 200,000 entities is deleted, and a tenant with 30,000 unfinished executions.

.venv/bin/python -m tests.bench.deletions [URL of an empty PostgreSQL database]
"""

import json
import secrets
import sys
import tempfile
from functools import partial

from appliance.app.parts import make_integrations, make_places
from appliance.app.store import open_store
from appliance.backups.jobs import JobRunner
from appliance.core import clock, ids
from appliance.core.config import load_config
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.datapool import removal_due, remove_deleted
from appliance.datapool import service as datapool
from appliance.solutions import SolutionServices, Transfers
from appliance.tenants import service
from tests.bench import filling
from tests.bench.transfers import measure

EXECUTIONS, ENTITIES, CHUNK = 30_000, 200_000, 1_000
FIELDS = [{"name": "number", "type": "text", "unique": True}, {"name": "note", "type": "text"}]
SOLUTION = {"solution.yaml": b"name: nothing\n"}


def main(url: str = "") -> None:
    with tempfile.TemporaryDirectory(prefix="gos-bench-") as folder:
        config = load_config(environment={}, flags={"storage.data": f"{folder}/data", "storage.database": url})
        sealer = open_store(config)
        runner = JobRunner(sealer, "bench", "bench".__eq__)
        tools = SolutionServices(None, make_integrations(config, sealer))
        resets = Transfers(config, make_places(config, "ins_bench"), sealer, tools, runner).resets
        alpha, beta = (service.system_scope(name) for name in ("alpha", "beta"))
        for scope in (alpha, beta):
            service.create_tenant(scope.tenant_id, scope.tenant_id)
        try:
            fill_collection(alpha)
            measure(f"deletion of a collection with {ENTITIES:,} entities", partial(delete_collection, alpha))
            for name, work in {"reset": lambda: resets.reset(alpha, SOLUTION), "deletion": lambda: delete_tenant("alpha")}.items():
                filling.fill(alpha, EXECUTIONS)
                db.write(partial(db.execute, "UPDATE execution SET status = 'waiting', finished_at = NULL"))
                measure(f"{name} with {EXECUTIONS:,} unfinished executions", work)
        finally:
            runner.stop()
            db.close_database()


def delete_tenant(name: str) -> None:
    service.delete_tenant(name)


def fill_collection(scope: TenantScope) -> None:
    """A collection, and another one that it refers to."""
    datapool.create_collection(scope, {"name": "customers", "fields": FIELDS})
    customer = datapool.create_entity(scope, "customers", {"number": "1"})["id"]
    relation = {"name": "customer", "type": "relation", "collection": "customers"}
    datapool.create_collection(scope, {"name": "orders", "fields": [*FIELDS, relation]})
    ((table,),) = db.rows("SELECT table_name FROM collection WHERE name = 'orders'")
    for start in range(0, ENTITIES, CHUNK):
        db.write(partial(add_entities, scope, str(table), customer, range(start, start + CHUNK)))


def add_entities(scope: TenantScope, table: str, customer: str, numbers: range) -> None:
    """Inside a write: entities with their history, as the DataPool stores them."""
    now, note = clock.now_ms(), secrets.token_hex(100)
    for number in numbers:
        entity = ids.new("ent")
        values = (entity, now, now, 1, str(number), note, customer)
        db.execute(f'INSERT INTO "{table}" VALUES (?, ?, ?, ?, ?, ?, ?)', values)  # noqa: S608  a name of our own
        document = json.dumps({"id": entity, "number": str(number), "note": note, "customer": customer})
        db.execute(
            "INSERT INTO entity_change (tenant_id, collection, entity_id, version, event, at, actor, entity) "
            "VALUES (?, ?, ?, 1, 'created', ?, 'system', ?)",
            (scope.tenant_id, table, entity, now, document),
        )


def delete_collection(scope: TenantScope) -> None:
    datapool.delete_collection(scope, "orders", allow_loss=True)
    while removal_due() is not None:
        remove_deleted()


if __name__ == "__main__":
    main(*sys.argv[1:])
