"""Resets a tenant from a solution, under the claim of its job: emptied in short writes, filled by the last one.

Until `begin_reset` is committed any failure leaves the tenant unchanged.  From then on the tenant refuses requests and does
nothing, and whoever has the job completes it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from appliance.backups import begin_reset, clear_tenant
from appliance.backups.jobs import Claim
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.solutions.definition import Solution
from appliance.solutions.kinds.changes import Change
from appliance.solutions.kinds.webapp_deployment import publish_apps
from appliance.solutions.planning import plan_emptied
from appliance.solutions.service import Application, SolutionServices, plan_for_emptied, refuse_blocked


@dataclass(frozen=True)
class WrittenReset:
    """A reset whose last write is committed: the number of deleted rows, and by app the versions published after checks."""

    deleted: int
    to_check: Mapping[str, int]


@dataclass(frozen=True)
class Reset:
    """The number of deleted rows; `failed` says by app why a new WebApp is not served: its checks failed after the last write."""

    deleted: int
    failed: Mapping[str, str]


def prepare_reset(scope: TenantScope, tools: SolutionServices, solution: Solution) -> Application:
    """Check the solution as for an empty tenant, and store its contents.  Raises the errors of `apply_solution`."""
    planned = plan_for_emptied(scope, tools, solution)
    refuse_blocked(planned)
    return _prepare(scope, tools, solution, planned)


def prepare_again(scope: TenantScope, tools: SolutionServices, solution: Solution) -> Application:
    """Store the contents of a solution that was checked before the reset was begun, with which it is completed."""
    with db.snapshot():
        planned = plan_emptied(scope, tools, solution)
    return _prepare(scope, tools, solution, planned)


def _prepare(scope: TenantScope, tools: SolutionServices, solution: Solution, planned: Sequence[Change]) -> Application:
    application = Application(scope, tools, solution)
    application.prepare(planned)
    return application


def decide_reset(claim: Claim, application: Application, *, force: bool) -> int:
    """Begin the reset in one write, or raise what `apply_solution` or the retention of documents has against it; then nothing has
    changed.  Returns the number of rows deleted for that.  LeaseLost."""

    def begin() -> int:
        deleted = begin_reset(claim, force=force)
        application.check_emptied()
        return deleted

    return db.write(begin)


def fill_tenant(
    claim: Claim, application: Application, deleted: int, conclude: Callable[[WrittenReset], None]
) -> WrittenReset:  # fmt: skip
    """Delete the rest, apply the solution and end the reset in one write, in which `conclude` is called with the result."""

    def fill(rows: int) -> None:
        application.write()
        conclude(WrittenReset(rows, application.to_check))

    rows = clear_tenant(claim.scope, force=True, before=deleted, fill=fill)
    return WrittenReset(rows, application.to_check)


def publish_reset(scope: TenantScope, tools: SolutionServices, written: WrittenReset) -> Reset:
    """The part after it, which can be repeated: publish the WebApps with checks."""
    publishing = tools.publishing
    return Reset(written.deleted, publish_apps(scope, publishing, written.to_check) if publishing is not None else {})
