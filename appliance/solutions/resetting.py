"""Resets a tenant from a solution: empties and fills it in one write, so that any failure leaves it unchanged."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from appliance.backups import clear_tenant
from appliance.core.scope import TenantScope
from appliance.solutions.definition import Solution
from appliance.solutions.kinds.webapp_deployment import publish_apps
from appliance.solutions.service import Application, SolutionServices, plan_for_emptied, refuse_blocked


@dataclass(frozen=True)
class WrittenReset:
    """A reset whose write is committed: the number of deleted rows, and by app the versions that are published after checks."""

    deleted: int
    to_check: Mapping[str, int]


@dataclass(frozen=True)
class Reset:
    """The number of deleted rows; `failed` says by app why a new WebApp is not served: its checks failed after the write."""

    deleted: int
    failed: Mapping[str, str]


def reset_tenant(scope: TenantScope, tools: SolutionServices, solution: Solution, *, force: bool = False) -> Reset:
    """Empty a tenant and apply a solution to it.

    Raises the errors of `apply_solution` and `clear_tenant`; after any of them the tenant is unchanged.
    """
    return publish_reset(scope, tools, write_reset(scope, tools, solution, force=force))


def write_reset(
    scope: TenantScope, tools: SolutionServices, solution: Solution, *, force: bool = False,
    conclude: Callable[[WrittenReset], None] = lambda _: None,
) -> WrittenReset:  # fmt: skip
    """The part of a reset that is one transaction; `conclude` is called in it with the result."""
    application = Application(scope, tools, solution)
    planned = plan_for_emptied(scope, tools, solution)
    refuse_blocked(planned)
    application.prepare(planned)

    def fill(deleted: int) -> None:
        application.write()
        conclude(WrittenReset(deleted, application.to_check))

    deleted = clear_tenant(scope, force=force, fill=fill)
    return WrittenReset(deleted, application.to_check)


def publish_reset(scope: TenantScope, tools: SolutionServices, written: WrittenReset) -> Reset:
    """The part after it, which can be repeated: publish the WebApps with checks."""
    publishing = tools.publishing
    return Reset(written.deleted, publish_apps(scope, publishing, written.to_check) if publishing is not None else {})
