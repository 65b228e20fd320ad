"""A reset in the foreground leaves the solution; if applying it fails after all checks, an empty tenant and the reason."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.backups import clear_tenant
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import Conflict, NotFound
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.datapool import service as datapool
from appliance.documents import retention
from appliance.llm import usage as llm_usage
from appliance.quotas import daily, expiry, notices
from appliance.solutions import TenantResets, resetting
from appliance.solutions import service as solutions
from appliance.tenants import quota_settings, service
from tests.backups.job_processes import open_processes

FILES = {
    "solution.yaml": b"name: wanted\n",
    "collections/parts.yaml": b"name: parts\nfields:\n  - {name: number, type: text}\n",
}


@pytest.fixture
def filled_tenant(tmp_path: Path) -> Iterator[tuple[TenantScope, TenantResets]]:
    with open_processes(tmp_path / "data") as processes:
        yield processes.scope, processes.open("one").resets


def collections(scope: TenantScope) -> list[str]:
    return [each["name"] for each in datapool.list_collections(scope, PageRequest(10)).items]


def test_a_reset_leaves_what_the_solution_brings(filled_tenant: tuple[TenantScope, TenantResets]) -> None:
    scope, resets = filled_tenant
    assert sorted(collections(scope)) == ["lines", "orders"]
    assert resets.reset(scope, FILES).deleted > 0
    assert collections(scope) == ["parts"]
    trail = [row[0] for row in db.rows("SELECT action FROM audit_entry WHERE tenant_id = ? ORDER BY seq", (scope.tenant_id,))]
    assert trail.index("tenant.reset") < trail.index("solution.apply") == len(trail) - 1


def test_a_reset_keeps_what_the_operator_has_set_and_what_is_used_of_it(
    filled_tenant: tuple[TenantScope, TenantResets]
) -> None:
    """An owner who resets a tenant must not get rid of quotas, of the end of a sandbox, or of what is not forwarded."""
    scope, resets = filled_tenant
    today = llm_usage.day_of(clock.now_ms())
    position = (
        "INSERT INTO audit_forward (tenant_id, destination, seq, fence, lease_until, checkpoint_seq, checkpoint_at, rejected) "
        "VALUES (?, 'syslog', 3, 1, 0, 0, 0, 2)"
    )

    def use() -> None:
        daily.add(scope, "executions_per_day")
        notices.record(scope, "entities", 0)
        llm_usage.book(scope, "main", today, llm_usage.UsageSum(1, 2, 3, 4))
        db.execute(position, (scope.tenant_id,))
        expiry.set_expiry(scope, clock.now_ms() + 86_400_000)

    quota_settings.change_quotas(scope, {"executions_per_day": "5", "entities": "7"})
    db.write(use)
    tables = ("tenant_quota", "quota_use", "quota_notice", "tenant_expiry", "llm_usage", "audit_forward")
    before = [db.rows(f"SELECT * FROM {table} WHERE tenant_id = ?", (scope.tenant_id,)) for table in tables]  # noqa: S608
    assert [len(rows) for rows in before] == [2, 1, 1, 1, 1, 1]
    resets.reset(scope, FILES)
    after = [db.rows(f"SELECT * FROM {table} WHERE tenant_id = ?", (scope.tenant_id,)) for table in tables]  # noqa: S608
    assert after == before
    assert llm_usage.read_quota(scope, "llm_tokens_per_day") == 5


def test_a_reset_in_the_foreground_is_forced_or_not(filled_tenant: tuple[TenantScope, TenantResets]) -> None:
    scope, resets = filled_tenant
    retention.set_hold(scope, str(db.rows("SELECT id FROM document WHERE tenant_id = ?", (scope.tenant_id,))[0][0]), "a quarrel")
    with pytest.raises(Conflict, match="under a legal hold"):
        resets.reset(scope, FILES)
    assert sorted(collections(scope)) == ["lines", "orders"]
    resets.reset(scope, FILES, force=True)
    assert collections(scope) == ["parts"]


def test_a_reset_is_planned_as_for_a_new_tenant_without_a_write(
    filled_tenant: tuple[TenantScope, TenantResets], monkeypatch: pytest.MonkeyPatch
) -> None:
    scope, resets = filled_tenant
    cleared: list[int] = []

    def clear(*args: Any, **options: Any) -> int:
        cleared.append(clear_tenant(*args, **options))
        return cleared[-1]

    monkeypatch.setattr(resetting, "clear_tenant", clear)
    other_fields = b"name: orders\nfields:\n  - {name: number, type: integer}\n"  # of the collection there, it would lose values
    resets.reset(scope, {**FILES, "collections/orders.yaml": other_fields})
    assert (sorted(collections(scope)), len(cleared)) == (["orders", "parts"], 1)
    assert [field["type"] for field in datapool.get_collection(scope, "orders")["fields"]] == ["integer"]


@pytest.mark.parametrize("error", [Conflict("something came between"), RuntimeError("a fault")])
def test_what_fails_only_while_the_solution_is_applied_leaves_an_empty_tenant_and_the_reason(
    filled_tenant: tuple[TenantScope, TenantResets], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    scope, resets = filled_tenant

    def fail(into: TenantScope, *_: object) -> None:
        if into.tenant_id == scope.tenant_id:  # in the rehearsal it works
            raise error

    with monkeypatch.context() as broken:
        broken.setattr(solutions, "record_items", fail)  # the last thing that an apply writes
        with pytest.raises(Conflict, match=r"the tenant was emptied, but the solution could not be applied: .*; apply it again"):
            resets.reset(scope, FILES)
    assert (collections(scope), service.is_being_reset(scope.tenant_id)) == ([], False)
    assert resets.reset(scope, FILES).deleted < 10
    assert collections(scope) == ["parts"]


def test_a_fault_that_applying_has_is_found_before_anything_is_deleted(
    filled_tenant: tuple[TenantScope, TenantResets], monkeypatch: pytest.MonkeyPatch
) -> None:
    scope, resets = filled_tenant

    def fail(*_: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(solutions, "record_items", fail)
    with pytest.raises(Conflict, match="an internal error occurred"):
        resets.reset(scope, FILES)
    assert (sorted(collections(scope)), service.is_being_reset(scope.tenant_id)) == (["lines", "orders"], False)


def test_a_reset_of_a_tenant_that_was_deleted_meanwhile_says_so(
    filled_tenant: tuple[TenantScope, TenantResets], monkeypatch: pytest.MonkeyPatch
) -> None:
    scope, resets = filled_tenant

    def delete(*_: Any, **__: Any) -> None:
        service.delete_tenant(scope.tenant_id)

    monkeypatch.setattr(resets._runner, "submit", delete)
    with pytest.raises(Conflict, match="the tenant was deleted while it was being reset"):
        resets.reset(scope, FILES)
    with pytest.raises(NotFound):
        service.get_tenant(scope.tenant_id)
