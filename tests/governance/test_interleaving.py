"""A request for approval is decided once, wherever the second decision comes in the middle of the first."""

from collections.abc import Iterator
from typing import Any

import pytest

from appliance.core.database import db
from appliance.governance.approvals import approvals
from appliance.monitor import audit
from appliance.processes.executions import service as executions
from appliance.tenants import starters
from tests.governance.asking import TenantFixture, make_tenant
from tests.store.cluster import Cluster
from tests.store.interleaving import Ends, Step, interleave
from tests.store.opening import open_migrated


@pytest.fixture(scope="module")
def url(cluster: Cluster) -> Iterator[str]:
    """The URL of the open database."""
    url = cluster.emptied()
    open_migrated(url)
    yield url
    db.close_database()


@pytest.fixture(autouse=True)
def started_executions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Executions are known to have a starter, as in an appliance."""
    monkeypatch.setitem(starters.lookups, "execution", executions.find_starter)


@pytest.fixture(scope="module")
def tenant(url: str) -> TenantFixture:
    return make_tenant("acme")


def test_of_two_decisions_one_counts(tenant: TenantFixture) -> None:
    at: dict[str, Any] = {}

    def begin() -> tuple[Step, Step]:
        at["request"] = tenant.ask()
        return lambda: tenant.decide("eve", at["request"]), lambda: tenant.decide("ann", at["request"], "reject")

    def judge(ends: Ends) -> None:
        assert ends.errors == ["Conflict"]
        [decided] = ends.values
        stored = approvals.get_approval(tenant.scope, at["request"].id)
        assert (stored.status, stored.decided_by) == (decided.status, decided.decided_by)
        assert len(stored.votes) == 1
        decisions = [action for _, action, _ in tenant.audit_entries(stored.id)][1:]
        assert decisions == ["approval.approve" if stored.status == "approved" else "approval.reject"]

    interleave(begin, judge)
    assert audit.verify(tenant.scope).intact


def test_of_two_approvals_that_are_needed_both_count(tenant: TenantFixture) -> None:
    at: dict[str, Any] = {}

    def begin() -> tuple[Step, Step]:
        at["request"] = tenant.ask()
        db.write(lambda: db.execute("UPDATE approval SET needed = 2 WHERE id = ?", (at["request"].id,)))
        return lambda: tenant.decide("eve", at["request"]).status, lambda: tenant.decide("ann", at["request"]).status

    def judge(ends: Ends) -> None:
        assert ends.errors == []
        assert sorted(ends.results) == ["approved", "pending"]
        assert len(approvals.get_approval(tenant.scope, at["request"].id).votes) == 2

    interleave(begin, judge)


def test_a_request_is_decided_or_withdrawn(tenant: TenantFixture) -> None:
    at: dict[str, Any] = {}

    def begin() -> tuple[Step, Step]:
        at["request"] = tenant.ask()

        def withdraw() -> None:
            db.write(lambda: approvals.withdraw_approval(tenant.scope, at["request"].id, "no longer needed"))

        return lambda: tenant.decide("eve", at["request"]).status, withdraw

    def judge(ends: Ends) -> None:
        status = approvals.get_approval(tenant.scope, at["request"].id).status
        assert (status, ends.errors) in (("approved", []), ("cancelled", ["Conflict"]))

    interleave(begin, judge)
