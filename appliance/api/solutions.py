"""/api/v1/solutions: plan, apply and export a solution folder."""

import json
from typing import Annotated

from pydantic import Field

from appliance.solutions import (
    LARGEST_BYTES,
    ApplyOptions,
    ArchiveLimits,
    Solution,
    Tools,
    read_archive,
    read_solution,
    service,
    write_zip,
)
from appliance.solutions import export_solution as write_solution
from appliance.solutions.kinds import Action, Change, Kind, load_published, load_skills

from .frame.routing import READS, Answer, Call, Json, Query, View, route

ARCHIVE = Json("archive", "The solution folder as zip or tar.gz.")


class PlanQuery(Query):
    allow_loss: bool = False
    prune: bool = False


class ApplyQuery(PlanQuery):
    message: Annotated[str, Field(max_length=500)] = ""


class ExportQuery(Query):
    drafts: bool = False


class PlannedChangeView(View):
    """One item; `blocked` says what has to be done before the solution can be applied.

    `leftover`: the solution brought it once and holds it no more; with `prune` it is deleted.
    `failed`: a WebApp whose version was made, and why that is not published.
    """

    kind: Kind
    id: str
    action: Action
    summary: str
    blocked: str | None = None
    failed: str | None = None


class PlanView(View):
    """`applied` tells a plan from what was done."""

    solution: str
    applied: bool
    blocked: bool
    changes: list[PlannedChangeView]


def plan_view(solution: Solution, changes: list[Change], *, applied: bool) -> PlanView:
    shown = [
        PlannedChangeView(kind=c.kind, id=c.id, action=c.action, summary=c.summary, blocked=c.blocked, failed=c.failed)
        for c in changes
    ]
    return PlanView(solution=solution.name, applied=applied, blocked=any(c.blocked for c in changes), changes=shown)


def read_body(call: Call) -> Solution:
    """The solution in the archive that was sent."""
    limits = call.services.config.limits
    bounds = ArchiveLimits(limits.archive_files, min(limits.archive_mb << 20, LARGEST_BYTES))
    with call.body.received.open() as file:
        return read_solution(read_archive(file, bounds))


def tools_of(call: Call) -> Tools:
    services = call.services
    return Tools(services.pool, services.integrations, services.webapps, services.publishing, services.skills)


@route(
    "POST", "/solutions/plan", scope="solutions.apply", body=ARCHIVE, query=PlanQuery, returns=PlanView, atomic=False,
    acts=READS,
)  # fmt: skip
def plan_solution(call: Call) -> PlanView:
    """Say what applying a solution would change, and what stands in its way; changes nothing.

    Needs, besides solutions.apply, the scopes of what the solution holds: processflow.write, datapool.admin, integrations.write;
    and webapps.write and webapps.publish when it changes a WebApp.
    """
    solution = read_body(call)
    options = ApplyOptions(allow_loss=call.query.allow_loss, prune=call.query.prune)
    return plan_view(solution, service.plan_solution(call.scope, tools_of(call), solution, options), applied=False)


@route("POST", "/solutions/apply", scope="solutions.apply", body=ARCHIVE, query=ApplyQuery, returns=PlanView, atomic=False)
def apply_solution(call: Call) -> PlanView:
    """Apply a solution as a whole or not at all; what is so already is left as it is.

    With `prune` what this solution brought once and holds no more is deleted, where nothing needs it.

    Needs, besides solutions.apply, the scopes of what the solution holds. What stands in its way is answered as a conflict.
    A WebApp with checks is published after everything else is in place; `failed` says that they did not pass.
    """
    solution = read_body(call)
    options = ApplyOptions(call.query.allow_loss, call.query.message, call.query.prune)
    return plan_view(solution, service.apply_solution(call.scope, tools_of(call), solution, options), applied=True)


@route("GET", "/solutions/export", scope="solutions.apply", query=ExportQuery, media="application/zip")
def export_solution(call: Call) -> Answer:
    """Export the tenant as a solution folder (zip): published versions, or drafts; secrets never leave.

    Needs, besides solutions.apply, processflow.read, integrations.read and entities.read, and webapps.read where a WebApp is
    published. `GOS-Left-Out` names the WebApps and skills that are too large for a solution.
    """
    apps, left_out = load_published(call.scope, call.services.webapps, call.services.blobs)
    skills, too_large = load_skills(call.scope, call.services.skills)
    files = write_solution(call.scope, call.services.integrations, apps, drafts=call.query.drafts) | skills
    left_out += too_large
    name = json.dumps(f"{call.scope.tenant_id}.zip")
    told = {"GOS-Left-Out": ", ".join(left_out)} if left_out else {}
    return Answer(write_zip(files), headers={"Content-Disposition": f"attachment; filename={name}", **told})
