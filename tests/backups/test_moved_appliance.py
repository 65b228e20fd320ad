"""An appliance with a tenant at work moves to PostgreSQL and S3 and back, and goes on there."""

import io
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from appliance.app.parts import make_places
from appliance.app.store import open_store
from appliance.backups.moving import Installation, MoveResult, move_installation
from appliance.core.config import Config
from appliance.core.database import db
from appliance.testing.running import Running, make_config, start
from tests.backups.test_transfer import tenant_rows
from tests.blobs.bucket import running_bucket
from tests.processes.world import wait_until
from tests.store.cluster import Cluster
from tests.store.test_appliance import Client

SUSPENDED = "export default async (input, api) => { const paid = await api.events.wait('paid-' + input.n); return paid.sum + 1 }"
PROCESS = {
    "id": "order",
    "output": "= steps.code",
    "steps": [{"id": "code", "code": {"language": "javascript", "source": SUSPENDED}}],
}
APPROVAL = {
    "id": "release",
    "steps": [{"id": "approve", "human": {"kind": "approval", "title": "Ship?", "details": {"n": "= input.n"}}}],
}


def fill(running: Running) -> list[str]:
    """Documents, versions of a WebApp and executions that wait; returns the paths of the executions."""
    with Client(running) as client:
        client.ask("POST", "/datapool", {"name": "orders", "fields": [{"name": "number", "type": "text", "unique": True}]})
        client.ask("POST", "/datapool/orders/entities", {"number": "7"})
        for revision in (b"a contract", b"a longer contract"):
            client.ask("POST", "/documents", params={"name": f"contract {len(revision)}.txt"}, content=revision)
        client.ask("POST", "/webapps", {"id": "shop", "name": "Shop"})
        for text in (b"<p>one", b"<p>two"):
            client.ask("POST", "/webapps/shop/versions", content=zipped(text), headers={"Content-Type": "application/zip"})
        paths: list[str] = []
        for process in (PROCESS, PROCESS, APPROVAL):
            client.ask("PUT", f"/processes/{process['id']}", {"definition": process})
            client.ask("POST", f"/processes/{process['id']}/publish", {})
            execution = client.ask("POST", f"/processes/{process['id']}/execute", {"n": len(paths)})["execution_id"]
            paths.append(f"/processes/{process['id']}/executions/{execution}")
            wait_until(lambda: client.ask("GET", paths[-1])["status"] == "waiting")
    return paths


def zipped(text: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("index.html", text)
    return file.getvalue()


def resume(running: Running, execution: str) -> Any:
    """The output of an execution that gets its event."""
    with Client(running) as client:
        (wait,) = client.ask("GET", execution)["waiting_for"]["waits"]
        client.ask("POST", f"/executions/{execution.rpartition('/')[2]}/resume", {"token": wait["token"], "input": {"sum": 41}})
        wait_until(lambda: client.ask("GET", execution)["status"] != "waiting")
        wait_until(lambda: client.ask("GET", execution)["status"] not in ("running", "queued", "waiting"))
        return client.ask("GET", execution)["output"]


def rows_of_tenant(config: Config) -> dict[str, list[str]]:
    open_store(config)
    try:
        return tenant_rows("acme")
    finally:
        db.close_database()


def move(current: Config, target: Config) -> MoveResult:
    done = move_installation(Installation(current, target, make_places))
    assert done.damaged == ()
    assert rows_of_tenant(target) == rows_of_tenant(current)
    return done


def test_executions_go_on_where_the_appliance_moved(tmp_path: Path, cluster: Cluster) -> None:
    config = make_config(tmp_path / "data")
    running = start(config)
    try:
        first, second, approval = fill(running)
    finally:
        running.stop()
    with running_bucket() as bucket:
        server = replace(make_config(tmp_path / "data", storage__database=cluster.make_database()), blobs=bucket)
        assert move(config, server).contents >= 4
        running = start(server)
        try:
            assert resume(running, first) == 42
        finally:
            running.stop()
        back = make_config(tmp_path / "back")
        move(server, back)
    running = start(back)
    try:
        assert resume(running, second) == 42
        with Client(running) as client:
            (wait,) = client.ask("GET", approval)["waiting_for"]["waits"]
            assert (wait["kind"], wait["title"]) == ("human", "Ship?")
            assert len(client.ask("GET", "/webapps/shop/versions")) == 2
    finally:
        running.stop()
