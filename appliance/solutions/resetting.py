"""Resets a tenant from a solution, under the claim of its job: emptied in short writes, filled by the last one.

Until `begin_reset` is committed any failure leaves the tenant unchanged.  From then on the tenant refuses requests and does
nothing, and whoever has the job completes it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from appliance.backups import begin_reset, clear_tenant
from appliance.backups.jobs import Claim
from appliance.blobs import quota, stored_sizes
from appliance.core.database import db
from appliance.core.errors import StorageFull
from appliance.core.scope import TenantScope
from appliance.core.texts import mark_error
from appliance.quotas import KINDS, format_amount, round_up
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


_OVER_QUOTA = mark_error(
    "the solution needs %(needed)s of storage, and this tenant uses %(used)s of the %(limit)s that it may use; nothing was "
    "changed; delete what you do not need (a deleted content counts for another day), or ask the operator of the appliance to "
    "raise the quota first (gos tenant quota %(tenant)s storage=%(enough)s)"
)


def refuse_over_quota(scope: TenantScope, solution: Solution) -> None:
    """StorageFull if the contents of the solution that the tenant does not have yet exceed its quota.

    What the tenant has still counts, because its contents stay for a day.  Solutions have no entities.
    """
    used, limit = quota.read_room(scope)
    sizes = {spec.sha256: spec.size for app in solution.webapps.values() for spec in app.specs.values()}
    sizes |= {file.sha256: file.size for skill in solution.skills.values() for file in skill.files}
    if limit is None or not sizes:
        return
    for sha256 in stored_sizes(scope, sizes):
        del sizes[sha256]
    if (needed := sum(sizes.values())) and used + needed > limit:
        amounts = {"needed": needed, "used": used, "limit": limit, "enough": used + needed}
        texts = {name: format_amount(KINDS["storage"], round_up(size)) for name, size in amounts.items()}
        extra = {"quota": "storage", "needed": needed, "used": used, "limit": limit, "retryable": False}
        raise StorageFull(_OVER_QUOTA % {**texts, "tenant": scope.tenant_id}, extra=extra)


def prepare_reset(scope: TenantScope, tools: SolutionServices, solution: Solution) -> Application:
    """Check the solution as for an empty tenant, and store its contents.  Raises the errors of `apply_solution`."""
    refuse_over_quota(scope, solution)
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
