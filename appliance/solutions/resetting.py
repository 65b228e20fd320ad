"""Resets a tenant from a solution: empties and fills it in one write, so that any failure leaves it unchanged."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from appliance.backups import clear_tenant
from appliance.core.scope import TenantScope
from appliance.solutions.definition import Solution
from appliance.solutions.kinds.changes import Change
from appliance.solutions.service import Application, SolutionServices, plan_solution, refuse_blocked


@dataclass(frozen=True)
class Reset:
    """The number of deleted rows; `failed` says by app why a new WebApp is not served: its checks failed after the write."""

    deleted: int
    failed: Mapping[str, str]


class _Planned(Exception):
    def __init__(self, changes: list[Change]) -> None:
        super().__init__()
        self.changes = changes


def reset_tenant(scope: TenantScope, tools: SolutionServices, solution: Solution, *, force: bool = False) -> Reset:
    """Empty a tenant and apply a solution to it.

    Raises the errors of `apply_solution` and `clear_tenant`; after any of them the tenant is unchanged.
    """
    application = Application(scope, tools, solution)
    application.prepare(_plan_emptied(scope, tools, solution, force=force))
    done: list[Change] = []
    deleted = clear_tenant(scope, force=force, fill=lambda: done.extend(application.write()))
    published = application.publish(done)
    return Reset(deleted, {change.id: change.failed for change in published if change.failed})


def _plan_emptied(scope: TenantScope, tools: SolutionServices, solution: Solution, *, force: bool) -> list[Change]:
    """What an apply would do to the emptied tenant, planned in a write that is rolled back."""

    def plan() -> NoReturn:
        changes = plan_solution(scope, tools, solution)
        refuse_blocked(changes)
        raise _Planned(changes)

    try:
        clear_tenant(scope, force=force, fill=plan)
    except _Planned as planned:
        return planned.changes
    raise AssertionError("planning always rolls the write back")
