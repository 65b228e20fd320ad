"""The page before a retry: choose the step and version to start from, and see which steps and effects would be repeated."""

import secrets

from appliance.console.frame.routing import Answer, Page, Visit, page
from appliance.core.errors import ApplianceError, NotFound
from appliance.processes.definitions import versions
from appliance.processes.executions import overview
from appliance.processes.executions import service as executions

SHOWN_STEPS = 200


@page("GET", "/executions/<execution_id>/retry", scope="processflow.execute")
def show_retry_plan(visit: Visit, execution_id: str) -> Answer:
    """The plan of a retry with the form to start it, or the reason why the chosen retry is not possible."""
    visit.scope.require("processflow.read")
    row = executions.get_execution(visit.scope, execution_id)
    process = versions.get_process(visit.scope, row.process_id)
    default = "failed" if row.status != "succeeded" else "start"
    start_from, version = visit.request.args.get("from") or default, visit.request.args.get("version") or "original"
    plan, problem = None, None
    try:
        plan = visit.services.processes.plan_retry(
            visit.scope, execution_id, start_from=start_from, published=version == "published"
        )
    except NotFound:
        raise
    except ApplianceError as error:
        problem = error
    values = {
        "row": row, "process": process, "plan": plan, "problem": problem, "start_from": start_from, "version": version,
        "paths": overview.list_paths(visit.scope, row), "most": SHOWN_STEPS,
        "newest": process.published_version, "token": secrets.token_urlsafe(16),
    }  # fmt: skip
    return Page("retry_plan.html", values, problem.status if problem else 200)
