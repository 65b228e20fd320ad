"""Pages of processes: the list, and one process with its steps and the form to run it."""

import json
import secrets
from dataclasses import dataclass
from typing import Any

from appliance.console.frame.forms import InputForm, read_form
from appliance.console.frame.people import Names
from appliance.console.frame.routing import Answer, Page, Redirect, Visit, idempotency_token, page
from appliance.console.pages.govern.confirmations import permission_lines
from appliance.console.pages.operate.day import last_day, read_day
from appliance.core import clock
from appliance.core.errors import ApplianceError, Detail, NotFound, ValidationFailed
from appliance.core.pages import PageRequest
from appliance.core.sentences import Sentence
from appliance.monitor import CountSeries, analytics
from appliance.processes import Process, ProcessVersion, Waiter
from appliance.processes.definitions import versions
from appliance.processes.executions import ExecutionFilter, ExecutionSummary, StartRequest
from appliance.processes.executions import service as executions
from appliance.processes.host import required_access_of_draft, subject_of, version_grants
from appliance.processes.rehearsal import samples
from appliance.tenants.grants import grants, may_decide

from . import flow, outline

SHOWN_SAMPLES = 5


@dataclass(frozen=True)
class Row:
    """A process in the list, with its newest execution and its figures of the last 24 hours."""

    process: Process
    last: ExecutionSummary | None
    day: CountSeries | None


@page("GET", "/processes", scope="processflow.read")
def list_processes(visit: Visit) -> Answer:
    """The tenant's processes by name."""
    result = versions.list_summaries(visit.scope, visit.page(limit=100))
    names = [row.id for row in result.items]
    newest = executions.find_newest(visit.scope, names)
    days = analytics.read_counts(visit.scope, last_day(), names) if visit.may("logs.read") else {}
    rows = [Row(row, newest.get(row.id), days.get(row.id)) for row in result.items]
    return Page("processes.html", {"rows": rows, "next_cursor": result.next_cursor})


@page("GET", "/processes/<process_id>", scope="processflow.read")
def show_process(visit: Visit, process_id: str) -> Answer:
    """One process: its steps, the form to run it, its latest executions and versions."""
    row = versions.get_process(visit.scope, process_id)
    version = _find_published(visit, row)
    form = None
    if version is not None:
        form = InputForm(version.definition.get("input"), _is_json_input(visit))
        form.fill(_first_values(visit, row, form))
    return _process_page(visit, row, version, form)


def _find_published(visit: Visit, row: Process) -> ProcessVersion | None:
    if row.published_version is None:
        return None
    return versions.get_version(visit.scope, row.id, row.published_version)


def _is_json_input(visit: Visit) -> bool:
    """Whether the visitor edits the input as one JSON text."""
    return "json" in (visit.request.args.get("as"), visit.request.field("as"))


def _first_values(visit: Visit, row: Process, form: InputForm) -> Any:
    """The initial values of the form: a sample, the input of an earlier execution, the schema's example, or its defaults."""
    if name := visit.request.args.get("sample"):
        return samples.get_sample(visit.scope, row.id, name).input
    source = visit.request.args.get("from", "")
    if source == "example":
        return form.example()
    if source:
        return executions.get_execution(visit.scope, source, row.id).input
    return form.defaults()


def _process_page(
    visit: Visit, row: Process, version: ProcessVersion | None, form: InputForm | None, problem: ApplianceError | None = None
) -> Page:
    """The page of a process; `problem` is an error of the submitted input."""
    latest = executions.list_summaries(visit.scope, ExecutionFilter(row.id), PageRequest(8)).items
    definition = version.definition if version else row.definition
    access = required_access_of_draft(definition, (version or row).files)
    grant = grants.find_grant(visit.scope, subject_of(row.id), access.digest)
    url = visit.services.config.tenant_url(visit.scope.tenant_id)
    values = {
        "process": row, "version": version, "form": form, "problem": problem,
        "latest": latest, "day": read_day(visit, row.id),
        "samples": [each.name for each in samples.list_samples(visit.scope, row.id, PageRequest(SHOWN_SAMPLES)).items],
        "steps": outline.build_outline(definition), "after": outline.after_failure(definition),
        "picture": flow.build_picture(definition),
        "reach": permission_lines(access), "grant": grant, "may_decide": may_decide(visit.scope), "names": Names(visit),
        "is_suspended": version is not None and version.allowed_until is not None and version.allowed_until <= clock.now_ms(),
        "description": definition.get("description", ""),
        "files": (version or row).files, "versions": versions.list_versions(visit.scope, row.id, PageRequest(5)).items,
        "is_draft_newer": version is not None and version.draft_digest != row.draft_digest, "whole": _is_json_input(visit),
        "execute_url": f"{url}/api/v1/processes/{row.id}/execute?wait=30", "token": secrets.token_urlsafe(16),
        "sample": json.dumps(form.example(), ensure_ascii=False) if form and form.has_example else "{…}",
    }  # fmt: skip
    return Page("process.html", values, problem.status if problem else 200)


@page("POST", "/processes/<process_id>", scope="processflow.execute")
def execute_process(visit: Visit, process_id: str) -> Answer:
    """Run a process with the input of the form; errors are shown at their fields."""
    row = versions.get_process(visit.scope, process_id)
    version = _find_published(visit, row)
    if version is None:
        raise NotFound(Sentence("%(process_id)s has no published version; publish its draft first", process_id=repr(process_id)))
    form = InputForm(version.definition.get("input"), _is_json_input(visit))
    value = read_form(form, visit.request.form)
    if form.problems:
        error = ValidationFailed("some of the input is invalid; see the messages next to the fields", details=form.problems)
        return _process_page(visit, row, version, form, problem=error)
    try:
        _check_input(visit, value)
        request = StartRequest(value, version.version, token=idempotency_token(visit))
        started = visit.services.processes.start_execution(visit.scope, process_id, request, waiter=Waiter())
    except ApplianceError as refusal:
        form.show_errors(refusal.details)
        return _process_page(visit, row, version, form, problem=refusal)
    return Redirect(f"/console/executions/{started.id}")


@page("POST", "/processes/<process_id>/withdraw", scope="keys.write")
def withdraw_grant(visit: Visit, process_id: str) -> Answer:
    """Withdraw the permissions granted to the process."""
    version_grants.withdraw(visit.scope, process_id, visit.request.field("digest"))
    return Redirect(f"/console/processes/{process_id}")


def _check_input(visit: Visit, value: Any) -> None:
    """Check that the input is an object within the size limit, as the REST API does for a request body."""
    if not isinstance(value, dict):
        wrong = Detail("", "invalid", "the input must be a JSON object: {…}")
        raise ValidationFailed(wrong.message, details=[wrong])
    most = visit.services.config.limits.json_body_kb << 10
    if len(json.dumps(value, ensure_ascii=False).encode("utf8", "replace")) > most:
        wrong = Detail(
            "", "payload_too_large",
            Sentence("the input is too large; the maximum is %(most)s KiB, so send it in parts", most=most >> 10),
        )
        raise ValidationFailed(wrong.message, details=[wrong])
