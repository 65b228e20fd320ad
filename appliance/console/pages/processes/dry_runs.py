"""The page on which a draft, the published version or one step is tested without any effect."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from appliance.console.frame.routing import Answer, Page, Visit, page
from appliance.console.pages.operate.excerpts import excerpt_of
from appliance.core.errors import ApplianceError, NotFound, ValidationFailed
from appliance.core.pages import PageRequest
from appliance.core.sentences import Sentence
from appliance.core.texts import gettext as _
from appliance.core.texts import mark
from appliance.processes import Process, ProcessVersion
from appliance.processes.definitions import versions
from appliance.processes.executions import ExecutionFilter
from appliance.processes.executions import service as executions
from appliance.processes.rehearsal import DryRun, DryRunRequest, Seen, earlier, samples

from . import outline
from .outline import StepLine

FIELDS = ("input", "steps", "items", "mocks", "step", "sample", "version")
SHOWN_STEPS = 200
MOST_CHARACTERS = 1 << 20
# What becomes of each kind of step in a test; the others compute, and do in a test what they do in an execution.
SIMULATED: Mapping[str, str] = {
    "code": mark(
        "Code runs in the sandbox. Read-only calls are made. Calls that would write, send, start or ask are recorded and "
        "answered by a mock or a placeholder."
    ),
    "integration": mark("Read-only actions are called. Other actions are not; they return their mock, or nothing."),
    "datapool": mark("Entities are read. Writes are tried and rolled back immediately."),
    "human": mark("No one is asked. Approvals are granted and the first choice is taken, unless a mock says otherwise."),
    "wait": mark("Waits end immediately, as if the time had come or the event had arrived."),
    "process": mark("Other processes are not started. Their input is checked, and a mock provides the answer."),
    "llm": mark("Models are not called. A mock provides the answer."),
    "agent": mark("Agents do not run. A mock provides the answer."),
    "file": mark("Documents are read. New documents are named but not created."),
}


@dataclass(frozen=True)
class Tested:
    """What a test is of: `lines` are all steps that can be tested, `line` is the one alone, None for the whole process."""

    row: Process
    content: Process | ProcessVersion
    lines: list[StepLine]
    line: StepLine | None

    @property
    def is_draft(self) -> bool:
        return self.content is self.row

    @property
    def loops(self) -> dict[str, str]:
        """The for_each steps around the step, from the outside in, with the names of their items."""
        if self.line is None:
            return {}
        return {each.path: each.item for each in self.lines if each.item and self.line.path.startswith(f"{each.path}/")}

    @property
    def simulated(self) -> list[str]:
        """What is not done, in sentences."""
        tested = self.lines if self.line is None else [self.line, *_within(self.line)]
        kinds = {each.kind for each in tested}
        return [_(text) for kind, text in SIMULATED.items() if kind in kinds]


@page("GET", "/processes/<process_id>/test", scope="processflow.write")
def show_test(visit: Visit, process_id: str) -> Answer:
    """The form, with what an earlier execution or a sample gave the process or the step."""
    args = visit.asked.args
    tested = _tested(visit, process_id, args.get("version", ""), args.get("step", ""))
    form = dict.fromkeys(FIELDS, "")
    form |= {name: args.get(name, "") for name in ("sample", "version")}
    seen = None
    if form["sample"]:
        form["input"] = _text(samples.get_sample(visit.scope, process_id, form["sample"]).input)
    elif tested.line is None:
        latest = executions.list_executions(visit.scope, ExecutionFilter(process_id), PageRequest(1)).items
        form["input"] = _text(latest[0].input if latest else {})
    else:
        seen = earlier.find_seen(visit.scope, process_id, tested.line.path, tested.loops, args.get("from", ""))
        if seen is not None:
            form |= {"input": _text(seen.input), "steps": _text(seen.steps), "items": _text(seen.items)}
        else:
            form |= {"input": "{}", "items": _text(dict.fromkeys(tested.loops.values())) if tested.loops else ""}
    return _test_page(visit, tested, form, seen=seen)


@page("POST", "/processes/<process_id>/test", scope="processflow.write")
def test_process(visit: Visit, process_id: str) -> Answer:
    """Test, and show what came of it."""
    for scope in ("processflow.execute", "processflow.read"):
        visit.scope.require(scope)
    form = {name: visit.asked.field(name) for name in FIELDS}
    tested = _tested(visit, process_id, form["version"], form["step"])
    try:
        version = None if tested.is_draft else tested.row.published_version
        request = DryRunRequest(
            _object(form["input"], "input"), version, tested.line.path if tested.line else None,
            _object(form["mocks"], "mocks") or {}, _object(form["steps"], "steps") or {}, _object(form["items"], "items") or {},
            sample=form["sample"] or None,
        )  # fmt: skip
        told = visit.services.processes.test_process(visit.scope, process_id, request)
    except NotFound:
        raise
    except ApplianceError as error:
        return _test_page(visit, tested, form, problem=error)
    return _test_page(visit, tested, form, told=told)


def _tested(visit: Visit, process_id: str, version: str, step: str) -> Tested:
    row = versions.get_process(visit.scope, process_id)
    content: Process | ProcessVersion = row
    if version == "published" and row.published_version is not None:
        content = versions.get_version(visit.scope, process_id, row.published_version)
    lines = [line for top in outline.outline(content.definition) for line in (top, *_within(top))]
    line = next((each for each in lines if step and step in (each.path, each.id)), None)
    if step and line is None:
        if content is row:
            raise NotFound(Sentence(
                "the draft of %(process_id)s has no step %(step)s that a test comes to; choose one of the list",
                process_id=process_id, step=repr(step[:80]),
            ))
        number = row.published_version
        raise NotFound(Sentence(
            "version %(number)s of %(process_id)s has no step %(step)s that a test comes to; choose one of the list",
            number=number, process_id=process_id, step=repr(step[:80]),
        ))
    return Tested(row, content, lines, line)


def _within(line: StepLine) -> Iterator[StepLine]:
    """The steps in a step; those that undo one are no part of a test."""
    for group in line.groups:
        for inner in group.steps:
            yield inner
            yield from _within(inner)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _object(text: str, name: str) -> dict[str, Any] | None:
    """The object a field has; None for an empty one."""
    if not text.strip():
        return None
    if len(text) > MOST_CHARACTERS:
        raise ValidationFailed(
            Sentence("the %(name)s may have at most %(most_characters)s MB", name=name, most_characters=MOST_CHARACTERS >> 20),
            pointer=f"/{name}",
        )
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValidationFailed(
            Sentence("the %(name)s is no JSON: %(error)s", name=name, error=error), pointer=f"/{name}"
        ) from error
    if not isinstance(found, dict):
        raise ValidationFailed(Sentence("the %(name)s is a JSON object: {…}", name=name), pointer=f"/{name}")
    return found


def _test_page(visit: Visit, tested: Tested, form: dict[str, str], **more: Any) -> Page:
    """`more`: `problem`, what came of it (`told`), or where the values are from (`seen`)."""
    problem: ApplianceError | None = more.get("problem")
    seen: Seen | None = more.get("seen")
    told: DryRun | None = more.get("told")
    errors = [told.error, *(step.run.error for step in told.steps[:SHOWN_STEPS])] if told else []
    excerpts = {each["step"]: excerpt_of(tested.content, each, each["step"]) for each in errors if each and "step" in each}
    values = {
        "process": tested.row, "tested": tested, "form": form, "problem": problem, "told": told, "most": SHOWN_STEPS,
        "excerpts": excerpts, "seen": seen,
        "samples": [each.name for each in samples.list_samples(visit.scope, tested.row.id, PageRequest(50)).items],
    }  # fmt: skip
    return Page("test.html", values, problem.status if problem else 200)
