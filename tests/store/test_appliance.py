"""A whole appliance on PostgreSQL: executions, entities, and what is there after a restart."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import pytest

from appliance.core.database import db
from appliance.testing.running import Running, make_config, start
from tests.store.cluster import Cluster

PREFIX = "/api/v1"
COLLECTION = {
    "name": "lines",
    "fields": [
        {"name": "sku", "type": "text", "required": True, "unique": True},
        {"name": "total", "type": "decimal", "scale": 2},
        {"name": "paid", "type": "boolean"},
    ],
}
PRICE = "export default async function (input, api) { const now = await api.datapool.query('lines', {}); return now.items.length }"
PROCESS = {
    "id": "intake",
    "grants": {"datapool": {"lines": ["read", "write"]}},
    "output": "= { before: steps.count, after: steps.again, seen: steps.each.length }",
    "steps": [
        {"id": "count", "code": {"language": "javascript", "source": PRICE}},
        {
            "id": "each",
            "for_each": {
                "items": "= input.lines",
                "as": "line",
                "concurrency": 4,
                "steps": [
                    {
                        "id": "save",
                        "datapool": {
                            "collection": "lines",
                            "upsert": {"key": ["sku"], "values": {"sku": "= line.sku", "total": "= line.total", "paid": True}},
                        },
                    }
                ],
            },
        },
        {"id": "pause", "wait": {"for": "200ms"}},
        {"id": "again", "code": {"language": "javascript", "source": PRICE}},
    ],
}


class Client:
    """One tenant's API; every call must succeed."""

    def __init__(self, running: Running, tenant: str = "acme") -> None:
        running.tenant(tenant)
        self._client = running.api(tenant)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def ask(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        answer = self._client.request(method, PREFIX + path, json=body, **more)
        assert answer.is_success, (method, path, answer.text)
        return answer.json()["data"]

    def follow(self, path: str) -> Any:
        """The execution at `path` once its stream of events has ended."""
        with self._client.stream("GET", f"{PREFIX}{path}/events") as answer:
            for _ in answer.iter_lines():
                pass
        return self.ask("GET", path)


@pytest.fixture(scope="module")
def url(cluster: Cluster) -> str:
    return cluster.make_database()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def first(url: str, folder: Path) -> dict[str, Any]:
    """The first execution in the database of the module, of tenant acme."""
    live = start(make_config(folder, storage__database=url, queue__lease_seconds=2))
    with Client(live) as client:
        prepare(client)
        lines = [{"sku": f"sku-{number}", "total": f"{number}.50"} for number in range(8)]
        done: dict[str, Any] = client.ask("POST", "/processes/intake/execute", {"lines": lines}, params={"wait": 60})
    live.stop()
    return done


@pytest.fixture
def on_postgresql(url: str, folder: Path, first: dict[str, Any]) -> Iterator[Running]:
    """An appliance over the module's database: every test meets what the ones before it left there."""
    live = start(make_config(folder, storage__database=url, queue__lease_seconds=2))
    yield live
    live.stop()


def prepare(client: Client) -> None:
    client.ask("POST", "/datapool", COLLECTION)
    client.ask("PUT", "/processes/intake", {"definition": PROCESS})
    client.ask("POST", "/processes/intake/publish", {})


def test_a_process_with_code_entities_a_loop_and_a_wait(on_postgresql: Running, first: dict[str, Any]) -> None:
    assert not db.is_sqlite()
    assert (first["status"], first.get("output")) == ("succeeded", {"before": 0, "after": 8, "seen": 8}), first
    with Client(on_postgresql) as client:
        steps = client.ask("GET", f"/processes/intake/executions/{first['execution_id']}/steps")
        assert {step["status"] for step in steps} == {"succeeded"}
        assert client.ask("GET", f"/processes/intake/executions/{first['execution_id']}/journal")
        query = {"aggregate": {"sum": {"fn": "sum", "field": "total"}}}
        assert client.ask("POST", "/datapool/lines/query", query) == [{"sum": "32.00"}]


def test_executions_and_drafts_work_on_postgresql(on_postgresql: Running) -> None:
    with Client(on_postgresql) as client:
        (done,) = client.ask("GET", "/executions", params={"q": "lines.sku=sku-3"})
        one = done["links"]["self"].removeprefix(PREFIX)
        assert client.ask("PATCH", one, {"label": "checked"})["label"] == "checked"
        pinned = client.ask("PUT", "/processes/intake/samples/eight", {"from_execution": done["execution_id"]})
        assert len(pinned["input"]["lines"]) == 8
        tested = client.ask("POST", "/processes/intake/test", {"sample": "eight"})
        assert (tested["status"], len(tested["effects"])) == ("succeeded", 8), tested
        plan = client.ask("GET", f"{one}/retry-plan", params={"from": "save"})
        assert plan["counts"] == {"reused": 1, "continued": 1, "again": 10}
        again = client.follow(client.ask("POST", f"{one}/retry", {"from": "again"})["links"]["self"].removeprefix(PREFIX))
        assert again["output"] == {"before": 0, "after": 8, "seen": 8}
        assert client.ask("GET", "/processes/intake/versions/1/diff", params={"against": "draft"})["identical"] is True


def test_concurrent_executions_are_all_counted(on_postgresql: Running) -> None:
    with Client(on_postgresql, "globex") as client:
        prepare(client)

        def execute(number: int) -> str:
            body = {"lines": [{"sku": f"sku-{number}", "total": "1.00"}, {"sku": "shared", "total": f"{number}.00"}]}
            return str(client.ask("POST", "/processes/intake/execute", body, params={"wait": 60})["status"])

        with ThreadPoolExecutor(8) as threads:
            assert list(threads.map(execute, range(24))) == ["succeeded"] * 24
        rows = client.ask("GET", "/datapool/lines/entities", params={"limit": 100, "sort": "sku"})
        assert [row["sku"] for row in rows] == sorted(["shared", *(f"sku-{number}" for number in range(24))])
        verification = client.ask("GET", "/logs/audit/verify")
        assert verification["intact"], verification
        total = client.ask("GET", "/logs/analytics")["total"]
        assert total["count"] == 24, total


def test_everything_is_there_after_a_restart(on_postgresql: Running) -> None:
    with Client(on_postgresql) as client:
        executions = client.ask("GET", "/processes/intake/executions")
        assert {view["status"] for view in executions} == {"succeeded"}
        assert len(executions) == 2, "the first and its retry"
        assert len(client.ask("GET", "/datapool/lines/entities")) == 8
        headers = {"Idempotency-Key": "once"}
        first, second = (client.ask("POST", "/processes/intake/execute", {"lines": []}, headers=headers) for _ in range(2))
        assert first["execution_id"] == second["execution_id"]
        client.ask("PUT", "/secrets/token", {"value": "s3cret-value"})
        assert [secret["name"] for secret in client.ask("GET", "/secrets")] == ["token"]
        assert client.ask("GET", "/logs", params={"text": "100%_"}) == []


def test_a_restart_of_the_server_interrupts_and_loses_nothing(on_postgresql: Running, cluster: Cluster) -> None:
    with Client(on_postgresql) as client:
        body = {"lines": [{"sku": f"late-{number}", "total": "1.00"} for number in range(40)]}
        started = [client.ask("POST", "/processes/intake/execute", body)["execution_id"] for _ in range(4)]
        cluster.stop("immediate")
        cluster.start()
        for execution in started:
            view = client.follow(f"/processes/intake/executions/{execution}")
            assert view["status"] == "succeeded", view
        assert len(client.ask("GET", "/datapool/lines/entities", params={"filter": '{"sku": {"_starts_with": "late"}}'})) == 40
