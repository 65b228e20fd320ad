"""/api/v1/solutions: plan, apply and export a solution folder."""

import json
from typing import Annotated

from pydantic import Field

from appliance.core.errors import ApiKeyLeaked, Conflict, DefinitionInvalid, GrantRequired, PayloadTooLarge
from appliance.solutions import (
    LARGEST_BYTES,
    ApplyOptions,
    ArchiveLimits,
    Solution,
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
    allow_loss: Annotated[bool, Field(description="Accept that changes of collections lose values.")] = False
    prune: Annotated[
        bool, Field(description="Delete what this solution created and no longer contains, unless something still needs it.")
    ] = False


class ApplyQuery(PlanQuery):
    message: Annotated[
        str, Field(max_length=500, description="What changed, for the lists of versions; at most 500 characters.")
    ] = ""


class ExportQuery(Query):
    drafts: Annotated[bool, Field(description=(
        "Export drafts of processes and policies instead of what is published, also of those never published."
    ))] = False


class PlannedChangeView(View):
    """The change of one item; `blocked` says what to do before the solution can be applied.

    The action `leftover` marks an item that an earlier version of the solution created and the folder no longer contains; with
    `prune` it is deleted. `failed` says why the new version of a WebApp was not published.
    """

    kind: Annotated[Kind, Field(description="The type of the item, within which its `id` is unique.")]
    id: Annotated[str, Field(description="The slug or name of the item, unique among those of its kind.")]
    action: Annotated[Action, Field(description=(
        "What applying does with the item; `missing` is a connector or secret that the solution needs and the tenant lacks."
    ))]
    summary: Annotated[str, Field(description="What changes, in words for people.")]
    blocked: Annotated[
        str | None, Field(description="What to do before the solution can be applied. Absent if nothing prevents it.")
    ] = None
    failed: Annotated[
        str | None, Field(description="Why the new version of a WebApp was not published. Absent otherwise and in a plan.")
    ] = None


class PlanView(View):
    """The changes of a solution; `applied` says whether they have been made or are only planned."""

    solution: Annotated[str, Field(description="The name of the solution, from its `solution.yaml`.")]
    applied: Annotated[bool, Field(description="Whether the changes have been made.")]
    blocked: Annotated[bool, Field(description="Whether any change is blocked, so that nothing can be applied.")]
    changes: Annotated[list[PlannedChangeView], Field(description=(
        "All items of the solution, also those that stay unchanged, and what the solution needs and the tenant lacks."
    ))]


def plan_view(solution: Solution, changes: list[Change], *, applied: bool) -> PlanView:
    views = [
        PlannedChangeView(kind=c.kind, id=c.id, action=c.action, summary=c.summary, blocked=c.blocked, failed=c.failed)
        for c in changes
    ]
    return PlanView(solution=solution.name, applied=applied, blocked=any(c.blocked for c in changes), changes=views)


def read_body(call: Call) -> Solution:
    """Read the solution from the request's archive."""
    limits = call.services.config.limits
    bounds = ArchiveLimits(limits.archive_files, min(limits.archive_mb << 20, LARGEST_BYTES))
    with call.body.received.open() as file:
        return read_solution(read_archive(file, bounds))


@route(
    "POST", "/solutions/plan", scope="solutions.apply", body=ARCHIVE, query=PlanQuery, returns=PlanView, atomic=False,
    acts=READS, errors=(ApiKeyLeaked, DefinitionInvalid),
)  # fmt: skip
def plan_solution(call: Call) -> PlanView:
    """Show what applying a solution would change.

    Nothing is changed; what would block the solution is listed. Besides solutions.apply, the key needs the scopes for the
    solution's contents: processflow.write, datapool.admin and integrations.write; and webapps.write and webapps.publish if it
    changes a WebApp.
    """
    solution = read_body(call)
    options = ApplyOptions(allow_loss=call.query.allow_loss, prune=call.query.prune)
    return plan_view(solution, service.plan_solution(call.scope, call.services.solutions, solution, options), applied=False)


@route(
    "POST", "/solutions/apply", scope="solutions.apply", body=ARCHIVE, query=ApplyQuery, returns=PlanView, atomic=False,
    errors=(ApiKeyLeaked, Conflict, DefinitionInvalid, GrantRequired),
)  # fmt: skip
def apply_solution(call: Call) -> PlanView:
    """Apply a solution, all or nothing.

    Items that are already up to date stay unchanged. With `prune`, items that this solution once created and no longer contains
    are deleted, unless something still needs them.

    Besides solutions.apply, the key needs the scopes for the solution's contents. If something blocks the solution, the answer
    is a conflict. A WebApp with checks is published after everything else; `failed` says why its checks did not pass.
    """
    solution = read_body(call)
    options = ApplyOptions(call.query.allow_loss, call.query.message, call.query.prune)
    return plan_view(solution, service.apply_solution(call.scope, call.services.solutions, solution, options), applied=True)


@route("GET", "/solutions/export", scope="solutions.apply", query=ExportQuery, media="application/zip", errors=(PayloadTooLarge,))
def export_solution(call: Call) -> Answer:
    """Export the tenant as a solution folder.

    The answer is a zip with published versions or drafts; secrets are never exported. Besides solutions.apply, the key needs
    processflow.read, integrations.read and entities.read, and webapps.read if a WebApp is published. The header `GOS-Left-Out`
    names WebApps and skills that are too large for a solution.
    """
    apps, left_out = load_published(call.scope, call.services.webapps.apps, call.services.blobs)
    skills, too_large = load_skills(call.scope, call.services.agents.skills)
    files = write_solution(call.scope, call.services.integrations, apps, drafts=call.query.drafts) | skills
    left_out += too_large
    name = json.dumps(f"{call.scope.tenant_id}.zip")
    extra_headers = {"GOS-Left-Out": ", ".join(left_out)} if left_out else {}
    return Answer(write_zip(files), headers={"Content-Disposition": f"attachment; filename={name}", **extra_headers})
