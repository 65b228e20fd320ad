"""Pages of processes: the list, one process with its steps, the form that runs it."""

import json
import secrets
from dataclasses import dataclass
from typing import Any

from appliance.console.frame.forms import InputForm, read_form
from appliance.console.frame.people import Names
from appliance.console.frame.routing import Answer, Page, Redirect, Visit, page, token_of
from appliance.console.pages.govern.confirmations import lines_of
from appliance.console.pages.operate.day import last_day, read_day
from appliance.core import clock
from appliance.core.errors import ApplianceError, Detail, NotFound, ValidationFailed
from appliance.core.pages import PageRequest
from appliance.core.sentences import Sentence
from appliance.monitor import Series, analytics
from appliance.processes import Process, ProcessVersion
from appliance.processes.definitions import versions
from appliance.processes.executions import Brief, ExecutionFilter, StartRequest
from appliance.processes.executions import service as executions
from appliance.processes.host import reach_of_draft, subject_of, version_grants
from appliance.processes.rehearsal import samples
from appliance.tenants.grants import grants, may_decide

from . import flow, outline

SHOWN_SAMPLES = 5


@dataclass(frozen=True)
class Row:
    """A process in the list: its newest execution and its last 24 hours."""

    process: Process
    last: Brief | None
    day: Series | None


@page("GET", "/processes", scope="processflow.read")
def list_processes(visit: Visit) -> Answer:
    """The tenant's processes by name."""
    found = versions.list_briefly(visit.scope, visit.page(limit=100))
    names = [row.id for row in found.items]
    newest = executions.newest_of(visit.scope, names)
    days = analytics.read_counts(visit.scope, last_day(), names) if visit.may("logs.read") else {}
    rows = [Row(row, newest.get(row.id), days.get(row.id)) for row in found.items]
    return Page("processes.html", {"rows": rows, "next_cursor": found.next_cursor})


@page("GET", "/processes/<process_id>", scope="processflow.read")
def show_process(visit: Visit, process_id: str) -> Answer:
    """One process: what it does, its form, its latest executions and versions."""
    row = versions.get_process(visit.scope, process_id)
    version = _published(visit, row)
    form = None
    if version is not None:
        form = InputForm(version.definition.get("input"), _whole(visit))
        form.fill(_first_values(visit, row, form))
    return _process_page(visit, row, version, form)


def _published(visit: Visit, row: Process) -> ProcessVersion | None:
    if row.published_version is None:
        return None
    return versions.get_version(visit.scope, row.id, row.published_version)


def _whole(visit: Visit) -> bool:
    """Whether the visitor edits the input as one JSON text."""
    return "json" in (visit.asked.args.get("as"), visit.asked.field("as"))


def _first_values(visit: Visit, row: Process, form: InputForm) -> Any:
    """What the form starts with: the input of an earlier execution or a sample, the schema's example on demand, or its
    defaults."""
    if name := visit.asked.args.get("sample"):
        return samples.get_sample(visit.scope, row.id, name).input
    source = visit.asked.args.get("from", "")
    if source == "example":
        return form.example()
    if source:
        return executions.get_execution(visit.scope, source, row.id).input
    return form.defaults()


def _process_page(
    visit: Visit, row: Process, version: ProcessVersion | None, form: InputForm | None, problem: ApplianceError | None = None
) -> Page:
    """`problem` is one with the input that was sent."""
    latest = executions.list_briefs(visit.scope, ExecutionFilter(row.id), PageRequest(8)).items
    shown = version.definition if version else row.definition
    reach = reach_of_draft(shown, (version or row).files)
    grant = grants.find_grant(visit.scope, subject_of(row.id), reach.digest)
    url = visit.services.config.tenant_url(visit.scope.tenant_id)
    values = {
        "process": row, "version": version, "form": form, "problem": problem,
        "latest": latest, "day": read_day(visit, row.id),
        "samples": [each.name for each in samples.list_samples(visit.scope, row.id, PageRequest(SHOWN_SAMPLES)).items],
        "steps": outline.outline(shown), "after": outline.after_failure(shown), "picture": flow.picture(shown),
        "reach": lines_of(reach), "grant": grant, "may_decide": may_decide(visit.scope), "names": Names(visit),
        "is_suspended": version is not None and version.allowed_until is not None and version.allowed_until <= clock.now_ms(),
        "description": shown.get("description", ""),
        "files": (version or row).files, "versions": versions.list_versions(visit.scope, row.id, PageRequest(5)).items,
        "is_draft_newer": version is not None and version.draft_digest != row.draft_digest, "whole": _whole(visit),
        "execute_url": f"{url}/api/v1/processes/{row.id}/execute?wait=30", "token": secrets.token_urlsafe(16),
        "sample": json.dumps(form.example(), ensure_ascii=False) if form and form.has_example else "{…}",
    }  # fmt: skip
    return Page("process.html", values, problem.status if problem else 200)


@page("POST", "/processes/<process_id>", scope="processflow.execute")
def execute_process(visit: Visit, process_id: str) -> Answer:
    """Run a process with what the form says; what is wrong is shown at its field."""
    row = versions.get_process(visit.scope, process_id)
    version = _published(visit, row)
    if version is None:
        raise NotFound(Sentence("%(process_id)s has no published version; publish its draft first", process_id=repr(process_id)))
    form = InputForm(version.definition.get("input"), _whole(visit))
    value = read_form(form, visit.asked.form)
    if form.problems:
        error = ValidationFailed("some of the input cannot be read; see the fields below", details=form.problems)
        return _process_page(visit, row, version, form, problem=error)
    try:
        _check(visit, value)
        request = StartRequest(value, version.version, token=token_of(visit))
        started = visit.services.processes.start_execution(visit.scope, process_id, request, soon=True)
    except ApplianceError as refusal:
        form.point_out(refusal.details)
        return _process_page(visit, row, version, form, problem=refusal)
    return Redirect(f"/console/executions/{started.id}")


@page("POST", "/processes/<process_id>/withdraw", scope="keys.write")
def withdraw_grant(visit: Visit, process_id: str) -> Answer:
    """Take back what the process may reach."""
    version_grants.withdraw(visit.scope, process_id, visit.asked.field("digest"))
    return Redirect(f"/console/processes/{process_id}")


def _check(visit: Visit, value: Any) -> None:
    """What the API's edge checks of a body."""
    if not isinstance(value, dict):
        wrong = Detail("", "invalid", "the input must be a JSON object: {…}")
        raise ValidationFailed(wrong.message, details=[wrong])
    most = visit.services.config.limits.json_body_kb << 10
    if len(json.dumps(value, ensure_ascii=False).encode("utf8", "replace")) > most:
        wrong = Detail(
            "", "payload_too_large", Sentence("the input may have at most %(most)s KiB; hand it over in parts", most=most >> 10)
        )
        raise ValidationFailed(wrong.message, details=[wrong])
