"""A list has exactly the executions that its filter describes, on both databases, whether few or many match."""

from collections.abc import Callable

import pytest

from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.processes.executions import search
from appliance.processes.executions.search import ExecutionFilter
from appliance.processes.models import Execution
from appliance.tenants import service
from tests.bench.filling import fill

COUNT = 300


def customer_of(row: Execution) -> str:
    return str(row.input.get("order", {}).get("customer"))


FILTERS: dict[str, tuple[ExecutionFilter, Callable[[Execution], bool]]] = {
    "all": (ExecutionFilter(), lambda row: True),
    "status": (ExecutionFilter(status="failed"), lambda row: row.status == "failed"),
    "failure class": (ExecutionFilter(failure_class="user_code"), lambda row: row.failure_class == "user_code"),
    "starter": (ExecutionFilter(by="trigger"), lambda row: row.actor.startswith("trigger:")),
    "part of a label": (ExecutionFilter(text="batch"), lambda row: "batch" in (row.label_text or "")),
    "part of a label in capitals": (ExecutionFilter(text="TCH 0"), lambda row: "tch 0" in (row.label_text or "")),
    "code of a failure": (ExecutionFilter(text="step_failed"), lambda row: row.failure_code == "step_failed"),
    "label": (ExecutionFilter(label="batch 0"), lambda row: row.label_text == "batch 0"),
    "value of the input": (ExecutionFilter(search="order.customer=C-7"), lambda row: customer_of(row) == "C-7"),
    "value as text": (ExecutionFilter(text="C-7"), lambda row: customer_of(row) == "C-7"),
    "nothing": (ExecutionFilter(text="not-to-be-found"), lambda row: False),
    "nothing, with wildcards": (ExecutionFilter(text="b_tch%\\"), lambda row: False),
}


@pytest.fixture
def filled(two_tenants: None) -> TenantScope:
    scope = service.system_scope("acme")
    fill(scope, COUNT)
    return scope


@pytest.mark.parametrize(("many", "many_labels"), [(2, 1_000), (2_000, 1_000), (2_000, 1)])
def test_a_list_has_what_its_filter_describes(
    filled: TenantScope, monkeypatch: pytest.MonkeyPatch, many: int, many_labels: int
) -> None:
    monkeypatch.setattr(search, "MANY_MATCHES", many)
    monkeypatch.setattr(search, "MANY_LABELS", many_labels)
    rows = list(filled.select(Execution))
    for name, (criteria, matches) in FILTERS.items():
        expected = [row.id for row in sorted(rows, key=lambda row: (row.created_at, row.id), reverse=True) if matches(row)]
        page = search.list_summaries(filled, criteria, PageRequest(500))
        assert [each.id for each in page.items] == expected, name
        assert bool(expected) is not name.startswith("nothing"), name
