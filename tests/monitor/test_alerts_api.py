"""Alerts over HTTP and their actions: e-mails, processes and webhooks, each once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from quart import Quart

from appliance.api import make_blueprint
from appliance.app.composition import Appliance, build
from appliance.core import clock
from appliance.core.config import load_config
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.integrations import IntegrationSpec
from appliance.monitor import failures
from appliance.monitor.alerts import loops
from appliance.monitor.alerts.models import AlertEventRow
from appliance.monitor.failures import Failure
from appliance.processes import Execution
from appliance.processes.definitions import versions
from appliance.tenants import people, preferences, service
from tests.monitor.test_api import Api
from tests.store.opening import migrated

WAITS = {"kind": "queue_age", "longer_than": "10m"}
NOTIFY_PROCESS = {
    "id": "tell", "input": {"type": "object", "required": ["alert"]}, "steps": [{"id": "pause", "wait": {"for": "1m"}}]
}


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


def publish(api: Api, scope: TenantScope) -> None:
    scope = service.system_scope(scope.tenant_id)
    versions.save_draft(scope, "tell", versions.Draft(NOTIFY_PROCESS, {}))
    api.services.processes.publish_process(scope, "tell", versions.PublishRequest())


async def test_an_alert_is_created_read_changed_and_deleted(api: Api, acme: TenantScope, other: TenantScope) -> None:
    _, key = api.key(acme)
    body = {"name": "Queue", "condition": WAITS, "for": "5m", "repeat": "1h"}
    alert = await api.ask(key, "POST", "/logs/alerts", body, 201)
    at = f"/logs/alerts/{alert['id']}"
    assert {name: alert[name] for name in ("name", "condition", "for", "repeat", "state", "enabled", "says")} == {
        **body, "state": "ok", "enabled": True, "says": "an execution has been queued for longer than 10m",
    }  # fmt: skip
    assert alert["now"] == "the oldest execution has waited 0 ms, at most 10m allowed"
    assert await api.ask(key, "GET", at) == alert
    silenced = await api.ask(key, "PATCH", at, {"silenced_until": "2090-01-01T00:00:00Z"})
    assert silenced["silenced_until"] == "2090-01-01T00:00:00.000Z"
    assert "silenced_until" not in await api.ask(key, "PATCH", at, {"silenced_until": None, "name": "Q"})
    assert [each["name"] for each in await api.ask(key, "GET", "/logs/alerts")] == ["Q"]
    assert await api.ask(key, "GET", f"{at}/history") == []
    stranger = api.key(other)[1]
    assert await api.ask(stranger, "GET", at, status=404) == "not_found"
    assert await api.ask(stranger, "GET", "/logs/alerts") == []
    assert await api.ask(api.key(acme, "logs.read")[1], "POST", "/logs/alerts", body, 403) == "scope_missing"
    assert await api.ask(key, "DELETE", at) == {"deleted": alert["id"]}
    assert await api.ask(key, "GET", at, status=404) == "not_found"


async def test_an_invalid_action_is_refused(api: Api, acme: TenantScope) -> None:
    _, key = api.key(acme)
    invalid_actions = (
        {"kind": "process"}, {"kind": "process", "process": "nowhere"}, {"kind": "webhook", "webhook": "whk_none"},
        {"kind": "email", "integration": "nowhere"},
    )  # fmt: skip
    for action in invalid_actions:
        body = {"name": "Queue", "condition": WAITS, "actions": [action]}
        assert await api.ask(key, "POST", "/logs/alerts", body, 422) == "validation_failed"
    limited_key = api.key(acme, "processflow.write", "logs.read")[1]
    publish(api, acme)
    body = {"name": "Queue", "condition": WAITS, "actions": [{"kind": "process", "process": "tell"}]}
    assert await api.ask(limited_key, "POST", "/logs/alerts", body, 403) == "scope_missing"


async def test_an_event_starts_one_process_and_sends_one_email_even_when_repeated(api: Api, acme: TenantScope) -> None:
    _, key = api.key(acme)
    publish(api, acme)
    settings = {"smtp_host": "127.0.0.1", "smtp_port": 9, "smtp_tls": "off", "from": "shop@firma.example"}
    everything = service.system_scope("acme", "user:usr_1")
    api.services.integrations.create_integration(everything, "post", IntegrationSpec("email", settings))
    for login, role in (("ann@firma.example", "owner"), ("bob@firma.example", "viewer")):
        people.create_user(login, "a sentence to remember")
        people.add_member(service.system_scope("acme"), login, role)
    actions = [{"kind": "process", "process": "tell"}, {"kind": "email", "integration": "post", "members": ["role:owner"]}]
    body = {"name": "Unused", "condition": {"kind": "expiring", "window": "365d"}, "actions": actions}
    alert = await api.ask(key, "POST", "/logs/alerts", body, 201)
    assert loops.evaluate_all(api.services.monitor.alerts.facts) == 1
    for _ in range(2):
        assert loops.send_due(api.services.monitor.alerts.notifier) == 1
        reset_sent = everything.update(AlertEventRow, told_at=None)
        db.write(reset_sent.execute)  # as if it had been stopped before the note
    (execution,) = list(everything.select(Execution))
    (event,) = await api.ask(key, "GET", f"/logs/alerts/{alert['id']}/history")
    assert execution.input["alert"] == {
        "alert_id": alert["id"], "name": "Unused", "turn": "firing", "text": event["text"], "condition": alert["says"],
        "at": event["at"],
    }  # fmt: skip
    assert event["problems"] == []
    ((email,),) = db.rows("SELECT input FROM integration_call WHERE tenant_id = ?", ("acme",))
    assert "ann@firma.example" in email
    assert "Condition: an API key or a certificate expires within 365d." in email
    assert f"/console/alerts/{alert['id']}" in email
    assert clock.parse_rfc3339(event["at"]) <= clock.now_ms()


async def test_an_email_is_in_its_readers_language_and_is_sent_once(api: Api, acme: TenantScope) -> None:
    _, key = api.key(acme)
    settings = {"smtp_host": "127.0.0.1", "smtp_port": 9, "smtp_tls": "off", "from": "shop@firma.example"}
    everything = service.system_scope("acme", "user:usr_1")
    api.services.integrations.create_integration(everything, "post", IntegrationSpec("email", settings))
    person = people.create_user("ann@firma.example", "a sentence to remember")
    people.add_member(service.system_scope("acme"), "ann@firma.example", "owner")
    preferences.choose_language(everything, person.id, "de")
    actions = [{"kind": "email", "integration": "post"}]
    body = {"name": "Unused", "condition": {"kind": "expiring", "window": "365d"}, "actions": actions}
    alert = await api.ask(key, "POST", "/logs/alerts", body, 201)
    assert alert["says"] == "an API key or a certificate expires within 365d"
    assert loops.evaluate_all(api.services.monitor.alerts.facts) == 1
    assert loops.send_due(api.services.monitor.alerts.notifier) == 1
    ((email,),) = db.rows("SELECT input FROM integration_call WHERE tenant_id = ?", ("acme",))
    for part in ("Unused schl", "Bedingung: ein API-Schl", "innerhalb von 365d l", "Verlauf ansehen oder stumm"):
        assert part in email, part
    preferences.choose_language(everything, person.id, "en")
    reset_sent = everything.update(AlertEventRow, told_at=None)
    db.write(reset_sent.execute)
    assert loops.send_due(api.services.monitor.alerts.notifier) == 1
    assert len(db.rows("SELECT id FROM integration_call WHERE tenant_id = ?", ("acme",))) == 1
    (event,) = await api.ask(key, "GET", f"/logs/alerts/{alert['id']}/history")
    assert event["problems"] == []


async def test_a_failed_action_is_in_the_history(api: Api, acme: TenantScope) -> None:
    _, key = api.key(acme)
    publish(api, acme)
    body = {"name": "Queue", "condition": WAITS, "actions": [{"kind": "process", "process": "tell"}]}
    alert = await api.ask(key, "POST", "/logs/alerts", body, 201)
    versions.delete_process(service.system_scope("acme"), "tell")
    test_event = await api.ask(key, "POST", f"/logs/alerts/{alert['id']}/test", status=202)
    assert test_event["turn"] == "test"
    assert loops.send_due(api.services.monitor.alerts.notifier) == 1
    (event,) = await api.ask(key, "GET", f"/logs/alerts/{alert['id']}/history")
    assert event["problems"] == ["tell was not started: there is no process 'tell' here"]


async def test_a_deleted_target_does_not_block_other_changes(api: Api, acme: TenantScope) -> None:
    _, key = api.key(acme)
    publish(api, acme)
    failure = Failure("tell", "exe_1", None, "system", "internal", "it broke")
    group = db.write(lambda: failures.record_failure(acme, failure))
    deleted_action = {"kind": "process", "process": "tell"}
    condition = {"kind": "failures", "above": 5, "window": "15m", "failure": group}
    body = {"name": "Group", "condition": condition, "actions": [deleted_action]}
    at = f"/logs/alerts/{(await api.ask(key, 'POST', '/logs/alerts', body, 201))['id']}"
    versions.delete_process(service.system_scope("acme"), "tell")
    failures.purge(clock.now_ms() + 1)
    changed = await api.ask(key, "PATCH", at, {"name": "Renamed", "condition": condition | {"above": 6}})
    assert (changed["name"], changed["condition"]["above"], changed["actions"]) == ("Renamed", 6, [deleted_action])
    with_webhook = await api.ask(key, "PATCH", at, {"actions": [{"kind": "webhook"}, deleted_action]})
    assert with_webhook["actions"] == [{"kind": "webhook"}, deleted_action]
    unknown_action = {"kind": "process", "process": "nowhere"}
    assert await api.ask(key, "PATCH", at, {"actions": [deleted_action, unknown_action]}, 422) == "validation_failed"
    assert await api.ask(key, "PATCH", at, {"condition": condition | {"failure": "fail_x"}}, 422) == "validation_failed"
    await api.ask(key, "PATCH", at, {"actions": []})
    assert await api.ask(key, "PATCH", at, {"actions": [deleted_action]}, 422) == "validation_failed", "it is asked for anew"
    limited_key = api.key(acme, "processflow.write", "logs.read")[1]
    await api.ask(key, "PATCH", at, {"actions": [{"kind": "webhook"}]})
    assert await api.ask(limited_key, "PATCH", at, {"name": "Theirs"}, 403) == "scope_missing"
