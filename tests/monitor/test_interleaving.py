"""Two changes of webhooks, alerts, failures and the audit trail end as if one had followed the other."""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from appliance.connectors.egress import Egress
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.monitor import audit, deliveries, failures, logs, tally, webhooks
from appliance.monitor.alerts import loops
from appliance.monitor.alerts.conditions import Condition
from appliance.monitor.alerts.service import AlertChange, AlertSpec
from appliance.monitor.failures import Failure
from appliance.monitor.logs import Line
from appliance.monitor.webhooks import WebhookChange, Webhooks, WebhookSpec
from appliance.tenants import service as tenants
from tests.monitor.test_alerts import World
from tests.store.cluster import Cluster
from tests.store.interleaving import Pair, check_pair, without_exclusive_writes
from tests.store.opening import open_migrated

FAILED = "execution.failed"
SERVICE = Webhooks(Sealer(b"k" * 32), Egress())
source = World()
numbers = itertools.count(1)


@pytest.fixture(scope="module")
def database(cluster: Cluster) -> Iterator[None]:
    open_migrated(cluster.emptied())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(webhooks, "MAX_WEBHOOKS", 1)
        yield
    db.close_database()


def make() -> TenantScope:
    """A tenant of its own for each pair."""
    name = f"t{next(numbers)}"
    tenants.create_tenant(name, name)
    return tenants.system_scope(name)


def subscribe(of: TenantScope) -> str:
    return str(SERVICE.create_webhook(of, WebhookSpec("https://hooks.test/a", (FAILED,)))[0].id)


def read(of: TenantScope) -> Any:
    rows = db.rows("SELECT state FROM webhook WHERE tenant_id = ?", (of.tenant_id,))
    return rows, db.rows("SELECT status, tries FROM webhook_delivery WHERE tenant_id = ? ORDER BY 1", (of.tenant_id,))


def emit(of: TenantScope) -> Any:
    return db.write(lambda: webhooks.emit(of, FAILED, lambda: {"n": 1}))


def the_last_two_webhooks(of: TenantScope) -> Pair:
    """A tenant has only one in these tests."""
    return Pair(partial(subscribe, of), partial(subscribe, of), partial(read, of))


def something_happens_and_its_webhook_is_deleted(of: TenantScope) -> Pair:
    webhook = subscribe(of)
    return Pair(partial(emit, of), lambda: SERVICE.delete_webhook(of, webhook), partial(read, of))


def something_happens_and_its_webhook_is_disabled(of: TenantScope) -> Pair:
    webhook = subscribe(of)
    return Pair(
        partial(emit, of), lambda: SERVICE.change_webhook(of, webhook, WebhookChange(enabled=False)), partial(read, of)
    )


def a_webhook_gets_two_secrets(of: TenantScope) -> Pair:
    webhook = subscribe(of)
    return Pair.of((partial(SERVICE.rotate_secret, of, webhook, 60_000),) * 2, partial(read, of))


def a_message_is_claimed_twice(of: TenantScope) -> Pair:
    webhook = subscribe(of)
    emit(of)
    claims: list[int] = []
    claim = lambda: claims.append(len(db.write(lambda: deliveries.claim(of, webhook, 10))))  # noqa: E731
    return Pair(claim, claim, lambda: sorted(claims))


def two_entries_of_the_audit_trail(of: TenantScope) -> Pair:
    record = lambda: db.write(lambda: audit.record(of, "thing.do", "x")) and None  # noqa: E731
    numbers_of = partial(db.rows, "SELECT seq FROM audit_entry WHERE tenant_id = ? ORDER BY 1", (of.tenant_id,))
    return Pair(record, record, lambda: (numbers_of(), audit.verify(of).intact))


def fail(of: TenantScope, execution: str) -> str:
    failure = Failure("intake", execution, "push", "connector", "connector_failed", "no answer")
    return db.write(lambda: failures.record_failure(of, failure))


def read_failure(of: TenantScope) -> Any:
    return db.rows("SELECT state, count FROM failure WHERE tenant_id = ?", (of.tenant_id,))


def an_execution_fails_twice(of: TenantScope) -> Pair:
    return Pair(partial(fail, of, "exe_1"), partial(fail, of, "exe_1"), partial(read_failure, of))


def two_executions_fail_alike(of: TenantScope) -> Pair:
    return Pair(partial(fail, of, "exe_1"), partial(fail, of, "exe_2"), partial(read_failure, of))


def an_execution_fails_and_its_kind_is_resolved(of: TenantScope) -> Pair:
    """One that fails after the resolution opens it again."""
    group = fail(of, "exe_1")
    return Pair(
        partial(fail, of, "exe_2"), lambda: failures.set_state(of, group, "resolved"), partial(read_failure, of)
    )


def new_alert(of: TenantScope, **more: Any) -> str:
    """An alert that holds as soon as it is evaluated."""
    source.used = 99.0
    return str(source.alerts.create_alert(of, AlertSpec("disk", Condition("disk_full", above=90.0), (), **more)).id)


def read_alert(of: TenantScope) -> Any:
    rows = db.rows("SELECT state, name, enabled FROM alert WHERE tenant_id = ?", (of.tenant_id,))
    return rows, db.rows("SELECT kind FROM alert_event WHERE tenant_id = ? ORDER BY turn", (of.tenant_id,))


def an_alert_is_evaluated_twice(of: TenantScope) -> Pair:
    """By two processes; it fires once."""
    alert = new_alert(of)
    return Pair.of((partial(loops.evaluate_alert, of, alert, source.alerts.facts),) * 2, partial(read_alert, of))


def an_alert_fires_and_is_disabled(of: TenantScope) -> Pair:
    alert = new_alert(of)
    return Pair(
        lambda: loops.evaluate_alert(of, alert, source.alerts.facts),
        lambda: source.alerts.change_alert(of, alert, AlertChange(enabled=False)),
        partial(read_alert, of),
    )


def an_alert_fires_and_is_deleted(of: TenantScope) -> Pair:
    alert = new_alert(of)
    return Pair(
        lambda: loops.evaluate_alert(of, alert, source.alerts.facts),
        lambda: source.alerts.delete_alert(of, alert),
        partial(read_alert, of),
    )


def two_changes_of_an_alert(of: TenantScope) -> Pair:
    alert = new_alert(of)
    return Pair(
        lambda: source.alerts.change_alert(of, alert, AlertChange(name="full")),
        lambda: source.alerts.change_alert(of, alert, AlertChange(enabled=False)),
        partial(read_alert, of),
    )


def two_lines_of_a_log(of: TenantScope) -> Pair:
    """Shared writes: a follower that reads on from a number misses none."""
    last: list[int] = [0]
    lines: list[str] = []

    def write(text: str) -> None:
        db.write(lambda: logs.write_lines(of, [Line(1, "info", "test", text, {})]), is_shared=True)
        for number, message in db.rows(
            "SELECT id, message FROM log_line WHERE tenant_id = ? AND id > ? ORDER BY id", (of.tenant_id, last[0])
        ):
            last[0] = number
            lines.append(str(message))

    return Pair(partial(write, "a"), partial(write, "b"), lambda: sorted(set(lines)))


def something_is_counted_twice(of: TenantScope) -> Pair:
    count = lambda: db.write(lambda: tally.add(of, "execution", "intake:succeeded", 10))  # noqa: E731
    return Pair(count, count, partial(db.rows, "SELECT sum(count), sum(sum_ms) FROM tally WHERE tenant_id = ?", (of.tenant_id,)))


PAIRS: dict[str, Callable[[TenantScope], Pair]] = {
    each.__name__: each
    for each in (
        the_last_two_webhooks, something_happens_and_its_webhook_is_deleted, something_happens_and_its_webhook_is_disabled,
        a_webhook_gets_two_secrets, a_message_is_claimed_twice, two_entries_of_the_audit_trail, an_execution_fails_twice,
        two_executions_fail_alike, an_execution_fails_and_its_kind_is_resolved, an_alert_is_evaluated_twice,
        an_alert_fires_and_is_disabled, an_alert_fires_and_is_deleted, two_changes_of_an_alert,
        two_lines_of_a_log, something_is_counted_twice,
    )
}  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS)
def test_both_orders(database: None, pair: str, request: pytest.FixtureRequest) -> None:
    assert check_pair(lambda: PAIRS[pair](make()), reads=request.config.option.all) >= 4


def test_without_exclusive_writes_there_are_too_many(database: None) -> None:
    with without_exclusive_writes(), pytest.raises(AssertionError, match="was halted before"):
        check_pair(lambda: the_last_two_webhooks(make()))
