"""How long another write waits while a large tenant is imported, reset or deleted.

.venv/bin/python -m tests.bench.transfers [URL of an empty PostgreSQL database]
"""

import secrets
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from appliance.app.parts import make_integrations, make_places
from appliance.app.store import open_store
from appliance.backups import ImportRequest, SecretReplacement
from appliance.backups.jobs import JobRunner
from appliance.backups.tenant_exports import export_tenant
from appliance.backups.tenant_imports import import_tenant
from appliance.core import clock
from appliance.core.config import load_config
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.datapool import service as datapool
from appliance.solutions import SolutionServices, Transfers, read_folder, starter_folder
from appliance.tenants import service
from tests.bench.filling import fill

EXECUTIONS, ENTITIES, PAUSE_SECONDS = 30_000, 20_000, 0.002
FIELDS = [{"name": "number", "type": "text", "unique": True}, {"name": "note", "type": "text"}]


def main(url: str = "") -> None:
    with tempfile.TemporaryDirectory(prefix="gos-bench-") as folder:
        flags = {"storage.data": f"{folder}/data", "storage.database": url}
        config = load_config(environment={}, flags=flags)
        sealer = open_store(config)
        places, runner = make_places(config, "ins_bench"), JobRunner(sealer, "bench", "bench".__eq__)
        tools = SolutionServices(None, make_integrations(config, sealer))
        resets = Transfers(config, places, sealer, tools, runner).resets
        scopes = [service.system_scope(name) for name in ("alpha", "beta")]
        for scope in scopes:
            service.create_tenant(scope.tenant_id, scope.tenant_id)
        try:
            fill_tenant(scopes[0])
            export, files = Path(folder, "alpha.gost"), read_folder(starter_folder())
            files = {path: content for path, content in files.items() if path.partition("/")[0] not in ("webapps", "SKILLS")}
            measure("export", lambda: export_tenant(scopes[0], places, export, None))
            request = ImportRequest(export, name="copy")
            measure("import", lambda: import_tenant(places, SecretReplacement(sealer), request, config.data))
            measure("reset", lambda: resets.reset(scopes[0], files))
            measure("reset of an empty tenant", lambda: resets.reset(scopes[0], files))
            measure("deletion", lambda: service.delete_tenant("copy"))
        finally:
            runner.stop()
            db.close_database()


def fill_tenant(scope: TenantScope) -> None:
    fill(scope, EXECUTIONS)
    datapool.create_collection(scope, {"name": "orders", "fields": FIELDS})
    for start in range(0, ENTITIES, 500):
        db.write(partial(add_entities, scope, range(start, start + 500)))


def add_entities(scope: TenantScope, numbers: range) -> None:
    for number in numbers:
        datapool.create_entity(scope, "orders", {"number": str(number), "note": secrets.token_hex(100)})


def write_elsewhere() -> None:
    sql = "INSERT INTO log_line (tenant_id, at, level, source, message, fields) VALUES ('beta', 0, 20, 'bench', ?, '{}')"
    db.execute(sql, (secrets.token_hex(50),))


def measure(name: str, work: Callable[[], object]) -> None:
    """Do the work beside small writes of another tenant, and print how long these took."""
    waits: list[float] = []
    is_over = threading.Event()

    def write_all() -> None:
        while not is_over.wait(PAUSE_SECONDS):
            began = clock.monotonic()
            db.write(write_elsewhere)
            waits.append((clock.monotonic() - began) * 1000)

    thread = threading.Thread(target=write_all)
    thread.start()
    began = clock.monotonic()
    work()
    took = clock.monotonic() - began
    is_over.set()
    thread.join()
    waits.sort()
    middle, most = waits[len(waits) // 2], waits[int(len(waits) * 0.99)]
    print(f"{name}: {took:.1f} s; {len(waits)} writes beside it, p50 {middle:.1f}, p99 {most:.1f}, longest {waits[-1]:.1f} ms")


if __name__ == "__main__":
    main(*sys.argv[1:])
