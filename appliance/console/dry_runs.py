"""The page on which a draft, the published version or one step is tested without any effect."""

import json
from typing import Any

from appliance.core.errors import ApplianceError, NotFound, ValidationFailed
from appliance.core.pages import PageRequest
from appliance.processes import executions, samples, versions
from appliance.processes.dry_run import DryRunRequest
from appliance.processes.executions import ExecutionFilter
from appliance.processes.versions import Process

from . import outline
from .routing import Answer, Page, Visit, page

FIELDS = ("input", "mocks", "step", "sample", "version")
SHOWN_STEPS = 200
MOST_CHARACTERS = 1 << 20


@page("GET", "/processes/<process_id>/test", scope="processflow.write")
def show_test(visit: Visit, process_id: str) -> Answer:
    """The form, with the input of a sample or of an earlier execution."""
    row = versions.get_process(visit.scope, process_id)
    given = _first_input(visit, row)
    shown = {"input": json.dumps(given, ensure_ascii=False, indent=2), "sample": visit.asked.args.get("sample", "")}
    form = dict.fromkeys(FIELDS, "") | shown
    return _test_page(visit, row, form)


@page("POST", "/processes/<process_id>/test", scope="processflow.write")
def test_process(visit: Visit, process_id: str) -> Answer:
    """Test, and show what came of it."""
    for scope in ("processflow.execute", "processflow.read"):
        visit.scope.require(scope)
    row = versions.get_process(visit.scope, process_id)
    form = {name: visit.asked.field(name) for name in FIELDS}
    try:
        version = row.published_version if form["version"] == "published" else None
        request = DryRunRequest(
            _object(form["input"], "input"), version, form["step"] or None, _object(form["mocks"], "mocks") or {},
            sample=form["sample"] or None,
        )  # fmt: skip
        told = visit.services.processes.test_process(visit.scope, process_id, request)
    except NotFound:
        raise
    except ApplianceError as error:
        return _test_page(visit, row, form, problem=error)
    return _test_page(visit, row, form, told=told)


def _first_input(visit: Visit, row: Process) -> Any:
    if name := visit.asked.args.get("sample"):
        return samples.get_sample(visit.scope, row.id, name).input
    latest = executions.list_executions(visit.scope, ExecutionFilter(row.id), PageRequest(1)).items
    return latest[0].input if latest else {}


def _object(text: str, name: str) -> dict[str, Any] | None:
    """The object a field has; None for an empty one."""
    if not text.strip():
        return None
    try:
        found = json.loads(text) if len(text) <= MOST_CHARACTERS else None
    except (ValueError, RecursionError) as error:
        raise ValidationFailed(f"the {name} is no JSON: {error}", pointer=f"/{name}") from error
    if not isinstance(found, dict):
        raise ValidationFailed(f"the {name} is a JSON object: {{…}}", pointer=f"/{name}")
    return found


def _test_page(visit: Visit, row: Process, form: dict[str, str], **more: Any) -> Page:
    problem: ApplianceError | None = more.get("problem")
    values = {
        "process": row, "form": form, "problem": problem, "told": more.get("told"), "most": SHOWN_STEPS,
        "samples": [each.name for each in samples.list_samples(visit.scope, row.id, PageRequest(50)).items],
        "steps": [line.id for line in _lines(outline.outline(row.definition))],
    }  # fmt: skip
    return Page("test.html", values, problem.status if problem else 200)


def _lines(lines: list[Any]) -> list[Any]:
    """Every step of an outline, outer before inner."""
    return [each for line in lines for each in (line, *(inner for group in line.groups for inner in _lines(group.steps)))]
