"""A reset leaves the solution, and a reset that fails at whatever point leaves everything."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.app.parts import make_integrations
from appliance.backups import clear_tenant
from appliance.core.database import db
from appliance.core.errors import ApplianceError, Conflict, StorageFull
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.datapool import service as datapool
from appliance.solutions import resetting
from appliance.solutions import service as solutions
from appliance.solutions.definition import Solution, read_solution
from appliance.solutions.planning import SolutionServices
from appliance.solutions.resetting import reset_tenant
from tests.backups.conftest import World, digests, make_world

FILES = {
    "solution.yaml": b"name: wanted\n",
    "collections/parts.yaml": b"name: parts\nfields:\n  - {name: number, type: text}\n",
}


@pytest.fixture
def filled_tenant(tmp_path: Path) -> Iterator[tuple[World, TenantScope, SolutionServices]]:
    world = make_world(tmp_path / "data")
    with world.opened() as sealer:
        yield world, world.fill(), SolutionServices(None, make_integrations(world.config, sealer))


def build_solution() -> Solution:
    return read_solution(FILES)


def collections(scope: TenantScope) -> list[str]:
    return [each["name"] for each in datapool.list_collections(scope, PageRequest(10)).items]


def test_a_reset_leaves_what_the_solution_brings(filled_tenant: tuple[World, TenantScope, SolutionServices]) -> None:
    _, scope, tools = filled_tenant
    assert sorted(collections(scope)) == ["lines", "orders"]
    assert reset_tenant(scope, tools, build_solution()).deleted > 0
    assert collections(scope) == ["parts"]
    trail = [row[0] for row in db.rows("SELECT action FROM audit_entry WHERE tenant_id = ? ORDER BY seq", (scope.tenant_id,))]
    assert trail.index("tenant.reset") < trail.index("solution.apply") == len(trail) - 1


def test_a_reset_is_planned_as_for_a_new_tenant_without_a_write(
    filled_tenant: tuple[World, TenantScope, SolutionServices], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, scope, tools = filled_tenant
    cleared: list[int] = []

    def clear(*args: Any, **options: Any) -> int:
        cleared.append(clear_tenant(*args, **options))
        return cleared[-1]

    monkeypatch.setattr(resetting, "clear_tenant", clear)
    other_fields = b"name: orders\nfields:\n  - {name: number, type: integer}\n"  # of the collection there, it would lose values
    reset_tenant(scope, tools, read_solution({**FILES, "collections/orders.yaml": other_fields}))
    assert (sorted(collections(scope)), len(cleared)) == (["orders", "parts"], 1)
    assert [field["type"] for field in datapool.get_collection(scope, "orders")["fields"]] == ["integer"]


@pytest.mark.parametrize("error", [StorageFull("the disk is full"), Conflict("something came between")])
def test_a_reset_that_fails_changes_nothing(
    filled_tenant: tuple[World, TenantScope, SolutionServices], monkeypatch: pytest.MonkeyPatch, error: ApplianceError
) -> None:
    _, scope, tools = filled_tenant
    before = digests()

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(solutions, "record_items", fail)  # the last thing that an apply writes
    with pytest.raises(type(error)):
        reset_tenant(scope, tools, build_solution())
    assert digests() == before
    assert sorted(collections(scope)) == ["lines", "orders"]
