"""The monitor over HTTP: shapes of the contract, and nothing of another tenant."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from quart import Quart

from appliance.api import make_blueprint
from appliance.api.frame.routing import PREFIX, Call, Events
from appliance.api.monitor import logs as api_logs
from appliance.app.composition import Appliance, build
from appliance.core.config import load_config
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.monitor import audit, failures, logs, tally
from appliance.monitor.failures import Failure
from appliance.monitor.logs import Line
from appliance.processes.definitions import versions
from appliance.processes.executions import StartRequest
from appliance.tenants import ALL_SCOPES, HostMatch
from appliance.tenants.keys import KeySpec, keys
from appliance.web import Services
from tests.store.opening import migrated

PROCESS = {"id": "intake", "steps": [{"id": "pause", "wait": {"for": "1m"}}]}


@dataclass
class Api:
    """The API of one appliance whose workers do not run."""

    app: Quart
    services: Services

    def key(self, scope: TenantScope, *scopes: str) -> tuple[str, str]:
        row, text = keys.issue_key(scope.with_actor("system"), self.services.sealer, KeySpec("test", scopes or sorted(ALL_SCOPES)))
        return row.id, text

    async def ask(self, key: str, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        answer = await self.app.test_client().open(
            PREFIX + path, method=method, headers={"X-API-Key": key}, json=body or {},
            scope_base={"gos.request_id": "req_1", "gos.host": HostMatch("base"), "gos.address": "127.0.0.1"},
        )  # fmt: skip
        data = await answer.get_json()
        assert answer.status_code == status, data
        return data["data"] if status < 400 else data["error"]["code"]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Appliance]:
    """The appliance opens its own; its workers are never started."""
    with migrated(f"sqlite:///{tmp_path}/gos.db"):
        pass  # what is copied need not be built
    appliance = build(load_config(environment={}, flags={"storage.data": str(tmp_path)}))
    yield appliance
    appliance.services.threads.shutdown()
    appliance.presence.close()
    db.close_database()


@pytest.fixture
def api(database: Appliance) -> Api:
    app = Quart(__name__)
    app.register_blueprint(make_blueprint(database.services))
    return Api(app, database.services)


async def test_log_lines_are_listed_filtered_and_isolated_by_tenant(api: Api, acme: TenantScope, other: TenantScope) -> None:
    line = Line(1000, "warn", "step", "late", {"n": 1}, "exe_1", "intake", "check", "req_1")
    db.write(lambda: logs.write_lines(acme, [line, Line(2000, "info", "process", "started")]))
    _, key = api.key(acme)
    listed = await api.ask(key, "GET", "/logs?level=warn&since=1970-01-01T00:00:00Z")
    assert listed == [
        {
            "at": "1970-01-01T00:00:01.000Z", "level": "warn", "source": "step", "message": "late", "fields": {"n": 1},
            "execution_id": "exe_1", "process_id": "intake", "step": "check", "request_id": "req_1",
        }
    ]  # fmt: skip
    assert len(await api.ask(key, "GET", "/logs?limit=1")) == 1
    assert await api.ask(api.key(other)[1], "GET", "/logs") == []
    assert await api.ask(api.key(acme, "keys.read")[1], "GET", "/logs", status=403) == "scope_missing"


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("/logs?level=fatal", 400, "invalid_request"),
        ("/logs?since=yesterday", 422, "validation_failed"),
        ("/logs?limit=0", 400, "invalid_request"),
        ("/logs?cursor=x", 400, "invalid_cursor"),
        ("/logs?colour=red", 400, "invalid_request"),
        ("/logs/analytics?bucket=1s", 400, "invalid_request"),
        ("/logs/analytics?bucket=999999999999d", 400, "invalid_request"),
        ("/logs/analytics?since=999999999999999d", 400, "invalid_request"),
        ("/logs/analytics?since=9999-12-31T23:59:59Z", 400, "invalid_request"),
        ("/logs/failures/fail_none", 404, "not_found"),
    ],
)
async def test_invalid_queries_are_refused(api: Api, acme: TenantScope, query: str, status: int, code: str) -> None:
    assert await api.ask(api.key(acme)[1], "GET", query, status=status) == code


async def test_analytics_answer_totals_points_and_names(api: Api, acme: TenantScope, other: TenantScope) -> None:
    db.write(lambda: tally.add(acme, "execution", "intake:succeeded", 20))
    db.write(lambda: tally.add(acme, "execution", "intake:failed", 40))
    answer = await api.ask(api.key(acme)[1], "GET", "/logs/analytics?since=2h&bucket=1h")
    assert answer["total"]["by_outcome"] == {"succeeded": 1, "failed": 1}
    assert (answer["total"]["count"], answer["total"]["failures"], answer["bucket_ms"]) == (2, 1, 3_600_000)
    assert [name["name"] for name in answer["names"]] == ["intake"]
    assert len(answer["points"]) == 3
    assert "p50_ms" not in answer["points"][0]
    assert (await api.ask(api.key(other)[1], "GET", "/logs/analytics"))["total"]["count"] == 0


def fail_execution(api: Api, scope: TenantScope) -> tuple[str, str]:
    """An execution that failed, and the group of its failure."""
    versions.save_draft(scope, "intake", versions.Draft(PROCESS, {}))
    api.services.processes.publish_process(scope, "intake", versions.PublishRequest())
    execution = api.services.processes.start_execution(scope, "intake", StartRequest({})).id
    # No worker runs here that could let it fail.
    db.write(lambda: db.execute("UPDATE execution SET status = 'failed', finished_at = 1 WHERE id = ?", (execution,)))
    failure = Failure("intake", execution, "pause", "system", "internal", "it broke")
    return execution, db.write(lambda: failures.record_failure(scope, failure))


async def test_queue_state_is_shown(api: Api, acme: TenantScope) -> None:
    answer = await api.ask(api.key(acme)[1], "GET", "/logs/queues")
    assert (answer["depth"], answer["in_flight"], answer["waiting"]) == (0, 0, 0)
    assert answer["workers"] >= 1
    sandbox = answer["sandbox"]
    assert (sandbox["processes"], sandbox["busy"], sandbox["queued"], sandbox["restart_reasons"]) == (0, 0, 0, {})
    assert sandbox["protections"] == [], "none runs here"


async def test_failures_are_listed_and_their_state_is_set(api: Api, acme: TenantScope, other: TenantScope) -> None:
    failure = Failure("intake", "exe_1", None, "system", "internal", "it broke")
    group = db.write(lambda: failures.record_failure(acme, failure))
    key, foreign = api.key(acme)[1], api.key(other)[1]
    (listed,) = await api.ask(key, "GET", "/logs/failures?state=open")
    assert (listed["id"], listed["count"], listed["sample_execution_id"]) == (group, 1, "exe_1")
    assert "step" not in listed
    changed = await api.ask(key, "PATCH", f"/logs/failures/{group}", {"state": "resolved"})
    assert changed["state"] == "resolved"
    assert changed["changed_by"].startswith("key:")
    assert await api.ask(key, "PATCH", f"/logs/failures/{group}", {"state": "gone"}, 422) == "validation_failed"
    for method, path, body in (("GET", "", None), ("PATCH", "", {"state": "open"}), ("POST", "/retry-all", None)):
        assert await api.ask(foreign, method, f"/logs/failures/{group}{path}", body, 404) == "not_found"
    reader = api.key(acme, "logs.read")[1]
    assert await api.ask(reader, "PATCH", f"/logs/failures/{group}", {"state": "open"}, 403) == "scope_missing"


async def test_all_executions_of_a_failure_are_retried_once(api: Api, acme: TenantScope) -> None:
    execution, group = fail_execution(api, acme)
    key = api.key(acme)[1]
    answer = await api.ask(key, "POST", f"/logs/failures/{group}/retry-all")
    assert (list(answer["retried"]), answer["refused"], answer["remaining"]) == ([execution], {}, 0)
    retried = db.rows("SELECT id, status, retry_of FROM execution WHERE id <> ?", (execution,))
    assert retried == [(answer["retried"][execution], "queued", execution)]
    assert (await api.ask(key, "GET", "/logs/queues"))["depth"] == 1
    assert (await api.ask(key, "POST", f"/logs/failures/{group}/retry-all"))["retried"] == {}


async def test_executions_that_cannot_be_retried_are_reported(api: Api, acme: TenantScope) -> None:
    execution, group = fail_execution(api, acme)
    db.write(lambda: db.execute("UPDATE execution SET status = 'succeeded' WHERE id = ?", (execution,)))
    answer = await api.ask(api.key(acme)[1], "POST", f"/logs/failures/{group}/retry-all")
    assert (answer["retried"], answer["remaining"], list(answer["refused"])) == ({}, 0, [execution])


async def test_deleted_executions_are_skipped(api: Api, acme: TenantScope) -> None:
    failure = Failure("intake", "exe_gone", None, "system", "internal", "it broke")
    group = db.write(lambda: failures.record_failure(acme, failure))
    answer = await api.ask(api.key(acme)[1], "POST", f"/logs/failures/{group}/retry-all")
    assert answer == {"retried": {}, "refused": {}, "waiting": [], "remaining": 0}


async def test_the_audit_trail_is_listed_and_verified(api: Api, acme: TenantScope, other: TenantScope) -> None:
    db.write(lambda: audit.record(acme, "key.revoke", "key_1", {"reason": "lost"}))
    key = api.key(acme)[1]
    (entry,) = await api.ask(key, "GET", "/logs/audit?action=key.revoke&since=1h")
    assert (entry["seq"], entry["actor"], json.loads(entry["fields"])) == (1, "user:usr_1", {"reason": "lost"})
    status = await api.ask(key, "GET", "/logs/audit/verify")
    assert status == {"intact": True, "entries": 2, "first_seq": 1, "last_seq": 2}, "the entry and the issue of the key"
    foreign = await api.ask(api.key(other)[1], "GET", "/logs/audit")
    assert [entry_["action"] for entry_ in foreign] == ["key.issue"], "of its own key only"


def follow(api: Api, scope: TenantScope, query: api_logs.LogQuery, **headers: str) -> AsyncIterator[Any]:
    answer = api_logs.list_logs(Call(scope, api.services, None, query, headers=headers))
    events = getattr(answer, "data", None)
    assert isinstance(events, Events)
    return cast(AsyncIterator[Any], events.source)


async def test_following_answers_new_lines_of_this_tenant(
    api: Api, acme: TenantScope, other: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = acme.with_actor("system")
    monkeypatch.setattr(api_logs, "POLL_SECONDS", 0.01)
    db.write(lambda: logs.write_lines(acme, [Line(1, "error", "step", "old")]))
    stream = follow(api, reader, api_logs.LogQuery(follow=True, level="warn"))
    first = asyncio.ensure_future(anext(stream))
    lines = [Line(2, "info", "step", "quiet"), Line(3, "error", "step", "new")]
    db.write(lambda: logs.write_lines(other, [Line(3, "error", "step", "theirs")]))
    db.write(lambda: logs.write_lines(acme, lines))
    number, event, data = await asyncio.wait_for(first, 5)
    assert (event, data["message"]) == ("line", "new")
    resumed = follow(api, reader, api_logs.LogQuery(follow=True), **{"last-event-id": str(number - 1)})
    assert (await asyncio.wait_for(anext(resumed), 5))[2]["message"] == "new"
    from_start = follow(api, reader, api_logs.LogQuery(follow=True, since="1970-01-01T00:00:00Z"))
    assert (await asyncio.wait_for(anext(from_start), 5))[2]["message"] == "old"
    # Who comes again names the time it began with; what was kept meanwhile may say an earlier one.
    later = follow(api, reader, api_logs.LogQuery(follow=True, since="2030-01-01T00:00:00Z"), **{"last-event-id": str(number - 1)})
    assert (await asyncio.wait_for(anext(later), 5))[2]["message"] == "new"


async def test_a_stream_ends_with_its_key(api: Api, acme: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_logs, "POLL_SECONDS", 0.01)
    key_id, _ = api.key(acme)
    stream = follow(api, acme.with_actor(f"key:{key_id}"), api_logs.LogQuery(follow=True))
    waiting = asyncio.ensure_future(anext(stream))
    keys.revoke_key(acme, key_id)
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(waiting, 5)
