"""Sandbox tenants that expire: warned before, refused after, deleted when the days of grace are over, and nothing else ever."""

import pytest

from appliance.app.quotas import end_sandboxes, tidy
from appliance.core.config import Config
from appliance.core.database import db
from appliance.core.errors import Conflict, ValidationFailed
from appliance.core.scope import TenantScope, tenant_ids
from appliance.quotas import KINDS, QuotaUsage, expiry, limits, notices
from appliance.quotas.kinds import DAY
from appliance.tenants import quota_settings, service

CONFIG = Config()


@pytest.fixture
def trial(acme: TenantScope, now: list[int]) -> TenantScope:
    service.create_tenant("trial", "Trial", kind="sandbox", expires_at=now[0] + 14 * DAY)
    service.create_tenant("sandbox-ada", "Sandbox of ada", kind="sandbox")
    limits.configure(CONFIG)
    return service.system_scope("trial")


def actions(scope: TenantScope) -> list[str]:
    rows = db.rows("SELECT action FROM audit_entry WHERE tenant_id = ? ORDER BY seq", (scope.tenant_id,))
    return [str(action) for (action,) in rows]


def end_at(now: list[int], ms: int) -> None:
    now[0] = ms
    for _ in range(2):
        end_sandboxes(CONFIG)


def test_it_is_warned_refused_and_deleted_and_nothing_else_is(trial: TenantScope, now: list[int]) -> None:
    start = now[0]
    end_at(now, start + 10 * DAY)
    assert actions(trial) == []
    end_at(now, start + 12 * DAY)
    assert (actions(trial), notices.list_current("trial")) == (["tenant.expiring"], ["expiring"])
    end_at(now, start + 14 * DAY)
    assert actions(trial) == ["tenant.expiring", "tenant.expired"]
    assert {name: limits.find_limit("trial", name) for name in ("storage", "entities", "executions_per_day")} == {
        "storage": 0, "entities": 0, "executions_per_day": 0,
    }  # fmt: skip
    assert limits.find_limit("trial", "requests_per_day") == 20_000, "people can still export what they need"
    end_at(now, start + 21 * DAY - 1)
    assert "trial" in tenant_ids()
    end_at(now, start + 21 * DAY)
    assert tenant_ids() == ["acme", "globex", "sandbox-ada"]
    end_at(now, start + 5_000 * DAY)
    assert tenant_ids() == ["acme", "globex", "sandbox-ada"]


def test_a_clock_that_jumps_ahead_deletes_nothing_at_once(trial: TenantScope, now: list[int]) -> None:
    start = now[0]
    end_at(now, start + 900 * DAY)
    assert "trial" in tenant_ids()
    end_at(now, start + 906 * DAY)
    assert "trial" in tenant_ids()
    end_at(now, start)
    quota_settings.extend_sandbox(trial, 14)
    end_at(now, start + 1)
    assert notices.list_current("trial") == []


def test_it_can_be_extended_and_kept(trial: TenantScope, now: list[int]) -> None:
    start = now[0]
    end_at(now, start + 14 * DAY)
    assert limits.find_limit("trial", "entities") == 0
    assert quota_settings.extend_sandbox(trial, 30) == start + 44 * DAY
    assert limits.find_limit("trial", "entities") == 10_000
    assert notices.list_current("trial") == []
    quota_settings.keep_sandbox(trial)
    assert (service.get_tenant("trial").kind, expiry.find_expiry("trial")) == ("standard", None)
    assert limits.find_limit("trial", "entities") is None
    assert limits.find_limit("trial", "storage") == 10 << 30
    end_at(now, start + 5_000 * DAY)
    assert "trial" in tenant_ids()
    assert actions(trial) == ["tenant.expired", "tenant.extend", "tenant.keep"]


def test_only_a_tenant_that_expires_is_extended_or_kept(trial: TenantScope) -> None:
    for name in ("acme", "sandbox-ada"):
        with pytest.raises(Conflict, match="does not expire"):
            quota_settings.extend_sandbox(service.system_scope(name), 3)
        with pytest.raises(Conflict, match="does not expire"):
            quota_settings.keep_sandbox(service.system_scope(name))
    with pytest.raises(ValidationFailed, match="from 1 to 3650"):
        quota_settings.extend_sandbox(trial, 0)


def test_one_that_was_extended_meanwhile_is_not_deleted(trial: TenantScope, now: list[int]) -> None:
    before = expiry.find_expiry("trial")
    assert before is not None
    quota_settings.extend_sandbox(trial, 20)
    assert not quota_settings.delete_expired("trial", before)
    db.write(lambda: db.execute("INSERT INTO tenant_expiry VALUES ('acme', 1)"))
    assert not quota_settings.delete_expired("acme", 1), "a standard tenant is never deleted, whatever the rows say"


def test_a_warning_about_what_it_has_is_withdrawn_and_given_again(trial: TenantScope, now: list[int]) -> None:
    used = {"entities": 9_000}
    usage = QuotaUsage({name: lambda _, name=name: used.get(name, 0) for name in KINDS})  # type: ignore[misc]
    db.write(lambda: notices.record(trial, "entities", 0))
    tidy(usage, CONFIG)
    assert notices.list_current("trial") == ["entities"]
    used["entities"] = 7_500
    tidy(usage, CONFIG)
    assert notices.list_current("trial") == ["entities"], "below 80 percent, but not clearly"
    used["entities"] = 6_000
    tidy(usage, CONFIG)
    assert notices.list_current("trial") == []


def test_a_warning_of_a_day_ends_with_the_day_and_a_new_limit_ends_any(trial: TenantScope, now: list[int]) -> None:
    notices.watch("trial", "executions_per_day", 79, 100)
    assert not notices.has_pending()
    notices.watch("trial", "executions_per_day", 80, 100)
    (near,) = notices.take_pending()
    assert db.write(lambda: notices.record(trial, near.name, near.period))
    assert not db.write(lambda: notices.record(trial, near.name, near.period))
    assert notices.list_current("trial") == ["executions_per_day"]
    quota_settings.change_quotas(trial, {"executions_per_day": "500"})
    assert notices.list_current("trial") == []
    db.write(lambda: notices.record(trial, near.name, near.period))
    now[0] += DAY
    assert notices.list_current("trial") == []
