"""Prune: deletes what a solution created and no longer contains, unless something needs it or others made it."""

from collections.abc import Callable

import pytest

from appliance.core.errors import Conflict
from tests.solutions.conftest import SolutionTenant, make_solution, pack
from tests.solutions.test_service import actions_of, list_contents

WAITS = "id: late\nsteps:\n  - {id: pause, wait: {for: 1h}}\n"
LEADS = "fields:\n  - {name: thing, type: relation, collection: things}\n"
CALLS = "id: calls\nsteps:\n  - {id: sub, process: {use: late}}\n"


def with_more(**more: str) -> dict[str, str]:
    return make_solution(**{"processes/late/process.yaml": WAITS, "collections/parts.yaml": LEADS, **more})


def nearly_empty() -> dict[str, str]:
    return {"solution.yaml": "name: small\n"}


def blocked_by(tenant: SolutionTenant, files: dict[str, str], **options: bool) -> dict[str, str]:
    plan = tenant.plan(files, prune=True, **options)
    return {f"{change.kind} {change.id}": change.blocked or "" for change in plan if change.action == "delete"}


def test_leftovers_are_reported_and_not_deleted(tenant: SolutionTenant) -> None:
    tenant.apply(with_more())
    before = list_contents(tenant)
    changes = tenant.apply(make_solution())
    assert {name: action for name, action in actions_of(changes).items() if action != "unchanged"} == {
        "process late": "leftover",
        "collection parts": "leftover",
    }
    assert list_contents(tenant) == before


def test_a_prune_deletes_it_once(tenant: SolutionTenant) -> None:
    tenant.apply(with_more())
    assert actions_of(tenant.apply(nearly_empty(), prune=True)) == {
        "process add": "delete", "process late": "delete", "integration erp": "delete", "collection parts": "delete",
        "collection things": "delete",
    }  # fmt: skip
    assert list_contents(tenant) == []
    assert tenant.apply(nearly_empty(), prune=True) == []


def test_what_somebody_else_made_is_never_deleted(tenant: SolutionTenant) -> None:
    by_hand = {"definition": {"steps": [{"id": "a", "rule": {"expression": "= 1"}}]}}
    tenant.api.put("/api/v1/processes/mine", json=by_hand).raise_for_status()
    tenant.apply(with_more())
    tenant.api.delete("/api/v1/processes/late").raise_for_status()
    tenant.api.put("/api/v1/processes/late", json=by_hand).raise_for_status()
    tenant.apply({"solution.yaml": "name: other\n", **{k: v for k, v in with_more().items() if k.startswith("collections")}})
    tenant.apply(nearly_empty(), prune=True)
    assert list_contents(tenant) == ["processes late", "processes mine", "datapool parts", "datapool things"]


def test_obstacles_of_a_prune_are_reported(tenant: SolutionTenant) -> None:
    files = with_more(**{"processes/calls/process.yaml": CALLS})
    tenant.apply(files)
    tenant.api.post("/api/v1/datapool/parts/entities", json={}).raise_for_status()
    started = tenant.api.post("/api/v1/processes/late/execute", json={}).json()["data"]["execution_id"]
    without = {path: text for path, text in files.items() if "late" not in path and "things" not in path}
    blocked = blocked_by(tenant, {path: text for path, text in without.items() if "add" not in path})
    assert blocked["process late"].startswith("the process calls uses it")
    assert blocked["collection things"].startswith("the collection parts refers to it")
    blocked = blocked_by(tenant, nearly_empty())
    assert f"its execution {started} is" in blocked["process late"]
    assert blocked["collection parts"] == "it contains entities; use allow_loss=true to delete them too"
    assert (blocked["collection things"], blocked["process calls"]) == ("", "")
    with pytest.raises(Conflict) as caught:
        tenant.apply(nearly_empty(), prune=True, allow_loss=True)
    assert [detail.pointer for detail in caught.value.details] == ["/process/late"]
    assert len(list_contents(tenant)) == 6, "nothing is deleted when one thing cannot be"
    tenant.api.post(f"/api/v1/processes/late/executions/{started}/cancel").raise_for_status()
    tenant.apply(nearly_empty(), prune=True, allow_loss=True)
    assert list_contents(tenant) == []


def test_a_process_of_another_solution_keeps_what_it_uses(tenant: SolutionTenant) -> None:
    tenant.apply(with_more())
    tenant.apply({"solution.yaml": "name: other\n", "processes/calls/process.yaml": CALLS})
    tenant.api.put(
        "/api/v1/processes/draft", json={"steps": [{"id": "a", "integration": {"use": "erp", "action": "get"}}]}
    ).raise_for_status()
    blocked = blocked_by(tenant, nearly_empty())
    assert blocked["process late"].startswith("the process calls uses it")
    assert blocked["integration erp"].startswith("the process draft uses it")


def test_deleting_takes_the_scopes_of_what_is_deleted(make_tenant: Callable[..., SolutionTenant], tenant: SolutionTenant) -> None:
    tenant.apply(with_more())
    poor = tenant.running.api(tenant.scope.tenant_id, ["solutions.apply", "processflow.write"])
    with poor:
        answer = poor.post("/api/v1/solutions/apply?prune=true", content=pack(nearly_empty()))
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "scope_missing")
    assert len(list_contents(tenant)) == 5
