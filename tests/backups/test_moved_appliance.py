"""An appliance with the Northwind tenant at work moves to PostgreSQL and S3 and back, and its executions go on there."""

import hashlib
import io
import sqlite3
import zipfile
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from appliance.app.parts import make_places
from appliance.app.store import open_store
from appliance.backups.moving import Move, MoveResult, move_installation
from appliance.backups.parts import parts_of
from appliance.backups.tenant_exports import TENANT_DATABASE, export_tenant
from appliance.blobs import installation_id
from appliance.core.config import Config
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.governance.approvals import Decision, approvals
from appliance.solutions import service as solutions
from appliance.solutions import starter_solution
from appliance.tenants import SignedIn, scopes_of_role, service
from appliance.testing.running import Running, make_config, start
from tests.blobs.bucket import running_bucket
from tests.journeys.order_files import to_csv
from tests.journeys.test_northwind import NORTHWIND, generate_trade, orders_of, read_northwind
from tests.processes.world import wait_until
from tests.store.cluster import Cluster
from tests.store.test_appliance import Client

TENANT = "northwind"
ORDERS = 150
SUSPENDED = "export default async (input, api) => { const paid = await api.events.wait('paid-' + input.n); return paid.sum + 1 }"
PAYMENT = {
    "id": "payment",
    "output": "= steps.code",
    "steps": [{"id": "code", "code": {"language": "javascript", "source": SUSPENDED}}],
}
RELEASE = {
    "id": "release",
    "output": "= steps.approve.status",
    "steps": [{"id": "approve", "human": {"kind": "approval", "title": "Ship?", "details": {"n": "= input.n"}}}],
}


def fill(running: Running) -> list[str]:
    """Orders, documents, versions of a WebApp, executions that have ended, and three that wait: the paths of those."""
    scope = running.tenant(TENANT)
    starter = starter_solution(f"http://127.0.0.1:{running.config.server.port}/demo")
    solutions.apply_solution(scope, running.services.solutions, starter)
    service.set_secret(scope, running.services.sealer, "erp", "canary-5b1e")
    with Client(running, TENANT) as client:
        take_orders(client)
        for text in (b"a contract", b"a longer contract"):
            client.ask("POST", "/documents", params={"name": f"contract {len(text)}.txt"}, content=text)
        client.ask("POST", "/webapps", {"id": "shop", "name": "Shop"})
        for text in (b"<p>one", b"<p>two"):
            client.ask("POST", "/webapps/shop/versions", content=zipped(text), headers={"Content-Type": "application/zip"})
        for process in (PAYMENT, RELEASE):
            client.ask("PUT", f"/processes/{process['id']}", {"definition": process})
            client.ask("POST", f"/processes/{process['id']}/publish", {})
        return [start_waiting(client, process, number) for number, process in enumerate(("payment", "payment", "release"))]


def take_orders(client: Client) -> None:
    """The process of the starter reads a file of orders, as `tests/journeys/test_northwind.py` has it do with all of them."""
    trade = read_northwind() if NORTHWIND.is_dir() else generate_trade()
    rows = [row for order in islice(orders_of(trade), ORDERS) for row in order]
    body = {"orders": to_csv(rows), "products": trade.products}
    done = client.ask("POST", "/processes/order-intake/execute", body, params={"wait": 60})
    assert (done["status"], done.get("output", {}).get("defects")) == ("succeeded", []), done


def zipped(text: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("index.html", text)
    return file.getvalue()


def start_waiting(client: Client, process: str, number: int) -> str:
    """The path of an execution that waits."""
    execution = client.ask("POST", f"/processes/{process}/execute", {"n": number})["execution_id"]
    path = f"/processes/{process}/executions/{execution}"
    wait_until(lambda: client.ask("GET", path)["status"] == "waiting")
    return path


def resume(running: Running, path: str) -> Any:
    """The output of an execution that gets its event."""
    with Client(running, TENANT) as client:
        (wait,) = client.ask("GET", path)["waiting_for"]["waits"]
        client.ask("POST", f"{path}/resume", {"token": wait["token"], "input": {"sum": 41}})
        return client.follow(path)["output"]


def approve(running: Running, path: str) -> Any:
    """The output of an execution whose approval an owner gives."""
    user = running.user("ada", "a password that nobody guesses", TENANT)
    scope = TenantScope(TENANT, f"user:{user}", scopes_of_role("owner"))
    with Client(running, TENANT) as client:
        (request,) = client.ask("GET", "/approvals?status=pending")
        approvals.decide_approval(scope, SignedIn(user, "ada", "owner", scope), request["id"], Decision("approve"))
        return client.follow(path)["output"]


def export(config: Config, file: Path) -> dict[str, Any]:
    """The tenant's export: the rows of each table, the digest of each content, what the manifest says; and its suspended steps."""
    sealer = open_store(config)
    try:
        assert service.unseal_secret(service.system_scope(TENANT), sealer, "erp") == "canary-5b1e"
        suspended = db.rows("SELECT execution_id, template FROM suspended_step ORDER BY execution_id")  # Not in an export.
        manifest = export_tenant(service.system_scope(TENANT), make_places(config, installation_id(sealer)), file, None)
    finally:
        db.close_database()
    with parts_of(file, None) as parts:
        contents = {part.name: b"".join(part.pieces) for part in parts}
    exported = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items() if name.startswith("contents/")}
    counts = {name: manifest[name] for name in ("tables", "contents", "schema")}
    return rows_of(contents[TENANT_DATABASE]) | exported | counts | {"suspended": suspended}


def rows_of(database: bytes) -> dict[str, Any]:
    with closing(sqlite3.connect(":memory:")) as file:
        file.deserialize(database)
        tables = [row[0] for row in file.execute("SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE TABLE%'")]
        return {name: sorted(map(repr, file.execute(f'SELECT * FROM "{name}"'))) for name in tables}  # noqa: S608


def move(current: Config, target: Config, folder: Path) -> MoveResult:
    """Moves, and compares the exports of both sides."""
    before = export(current, folder / f"before-{target.server.port}.gost")
    done = move_installation(Move(current, target, make_places), lambda *_: None)
    assert done.damaged == ()
    after = export(target, folder / f"after-{target.server.port}.gost")
    assert after.keys() == before.keys()
    assert [name for name in before if after[name] != before[name]] == []
    assert before["contents"]["count"] >= 4
    assert len(before["suspended"]) >= 1
    return done


def test_executions_go_on_where_the_appliance_moved(tmp_path: Path, cluster: Cluster) -> None:
    config = make_config(tmp_path / "data", demo__order_system=True, egress__allow=["127.0.0.0/8"])
    running = start(config)
    try:
        first, second, approval = fill(running)
    finally:
        running.stop()
    with running_bucket() as bucket:
        server = replace(make_config(tmp_path / "data", storage__database=cluster.make_database()), blobs=bucket)
        assert move(config, server, tmp_path).files == 0, "the data folder is the same"
        running = start(server)
        try:
            assert resume(running, first) == 42
        finally:
            running.stop()
        back = make_config(tmp_path / "back")
        assert move(server, back, tmp_path).files > 0
    running = start(back)
    try:
        assert resume(running, second) == 42
        assert approve(running, approval) == "approved"
        with Client(running, TENANT) as client:
            assert len(client.ask("GET", "/webapps/shop/versions")) == 2
            assert len(client.ask("POST", "/datapool/orders/query", {"limit": 500})) == ORDERS
    finally:
        running.stop()
