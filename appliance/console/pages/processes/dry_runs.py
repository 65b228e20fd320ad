"""The page to test a draft, the published version or a single step without side effects."""

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
from appliance.processes.rehearsal import DryRun, DryRunRequest, RecordedContext, recorded_contexts, samples

from . import outline
from .outline import StepLine

FIELDS = ("input", "steps", "items", "mocks", "step", "sample", "version")
SHOWN_STEPS = 200
MOST_CHARACTERS = 1 << 20
# How a test treats each kind of step; kinds that are not listed only compute and behave as in an execution.
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
class TestTarget:
    """The target of a test: `lines` are all steps that can be tested, `line` is the chosen step, None for the whole process."""

    row: Process
    content: Process | ProcessVersion
    lines: list[StepLine]
    line: StepLine | None

    @property
    def is_draft(self) -> bool:
        return self.content is self.row

    @property
    def loops(self) -> dict[str, str]:
        """The paths of the for_each steps around the chosen step, outermost first, with the names of their items."""
        if self.line is None:
            return {}
        return {each.path: each.item for each in self.lines if each.item and self.line.path.startswith(f"{each.path}/")}

    @property
    def simulated(self) -> list[str]:
        """Sentences about what the test does not really do, for the kinds of steps that it contains."""
        lines = self.lines if self.line is None else [self.line, *_within(self.line)]
        kinds = {each.kind for each in lines}
        return [_(text) for kind, text in SIMULATED.items() if kind in kinds]


@page("GET", "/processes/<process_id>/test", scope="processflow.write")
def show_test(visit: Visit, process_id: str) -> Answer:
    """The form, filled with the input from a sample or from an earlier execution of the process or step."""
    args = visit.request.args
    target = _read_target(visit, process_id, args.get("version", ""), args.get("step", ""))
    form = dict.fromkeys(FIELDS, "")
    form |= {name: args.get(name, "") for name in ("sample", "version")}
    seen = None
    if form["sample"]:
        form["input"] = _text(samples.get_sample(visit.scope, process_id, form["sample"]).input)
    elif target.line is None:
        latest = executions.list_executions(visit.scope, ExecutionFilter(process_id), PageRequest(1)).items
        form["input"] = _text(latest[0].input if latest else {})
    else:
        seen = recorded_contexts.find_recorded_context(
            visit.scope, process_id, target.line.path, target.loops, args.get("from", "")
        )
        if seen is not None:
            form |= {"input": _text(seen.input), "steps": _text(seen.steps), "items": _text(seen.items)}
        else:
            form |= {"input": "{}", "items": _text(dict.fromkeys(target.loops.values())) if target.loops else ""}
    return _test_page(visit, target, form, seen=seen)


@page("POST", "/processes/<process_id>/test", scope="processflow.write")
def test_process(visit: Visit, process_id: str) -> Answer:
    """Run the test, and show its result."""
    for scope in ("processflow.execute", "processflow.read"):
        visit.scope.require(scope)
    form = {name: visit.request.field(name) for name in FIELDS}
    target = _read_target(visit, process_id, form["version"], form["step"])
    try:
        version = None if target.is_draft else target.row.published_version
        request = DryRunRequest(
            _parse_object(form["input"], "input"), version, target.line.path if target.line else None,
            _parse_object(form["mocks"], "mocks") or {}, _parse_object(form["steps"], "steps") or {},
            _parse_object(form["items"], "items") or {}, sample=form["sample"] or None,
        )  # fmt: skip
        result = visit.services.processes.test_process(visit.scope, process_id, request)
    except NotFound:
        raise
    except ApplianceError as error:
        return _test_page(visit, target, form, problem=error)
    return _test_page(visit, target, form, result=result)


def _read_target(visit: Visit, process_id: str, version: str, step: str) -> TestTarget:
    row = versions.get_process(visit.scope, process_id)
    content: Process | ProcessVersion = row
    if version == "published" and row.published_version is not None:
        content = versions.get_version(visit.scope, process_id, row.published_version)
    lines = [line for top in outline.build_outline(content.definition) for line in (top, *_within(top))]
    line = next((each for each in lines if step and step in (each.path, each.id)), None)
    if step and line is None:
        if content is row:
            raise NotFound(Sentence(
                "the draft of %(process_id)s has no testable step %(step)s; choose one from the list",
                process_id=process_id, step=repr(step[:80]),
            ))
        number = row.published_version
        raise NotFound(Sentence(
            "version %(number)s of %(process_id)s has no testable step %(step)s; choose one from the list",
            number=number, process_id=process_id, step=repr(step[:80]),
        ))
    return TestTarget(row, content, lines, line)


def _within(line: StepLine) -> Iterator[StepLine]:
    """All steps nested in a step, except undo steps, which cannot be tested."""
    for group in line.groups:
        for inner in group.steps:
            yield inner
            yield from _within(inner)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _parse_object(text: str, name: str) -> dict[str, Any] | None:
    """Parse the JSON object in a field; None when it is empty."""
    if not text.strip():
        return None
    if len(text) > MOST_CHARACTERS:
        raise ValidationFailed(
            Sentence("`%(name)s` is too large; the maximum is %(most_characters)s MiB",
                     name=name, most_characters=MOST_CHARACTERS >> 20),
            pointer=f"/{name}",
        )
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValidationFailed(
            Sentence("`%(name)s` is not valid JSON: %(error)s", name=name, error=error), pointer=f"/{name}"
        ) from error
    if not isinstance(value, dict):
        raise ValidationFailed(Sentence("`%(name)s` must be a JSON object: {…}", name=name), pointer=f"/{name}")
    return value


def _test_page(visit: Visit, target: TestTarget, form: dict[str, str], **more: Any) -> Page:
    """The page; `more` may hold a `problem`, the result of the test (`told`), or the source of the values (`seen`)."""
    problem: ApplianceError | None = more.get("problem")
    seen: RecordedContext | None = more.get("seen")
    result: DryRun | None = more.get("result")
    errors = [result.error, *(step.run.error for step in result.steps[:SHOWN_STEPS])] if result else []
    excerpts = {each["step"]: excerpt_of(target.content, each, each["step"]) for each in errors if each and "step" in each}
    values = {
        "process": target.row, "tested": target, "form": form, "problem": problem, "result": result, "most": SHOWN_STEPS,
        "excerpts": excerpts, "seen": seen,
        "samples": [each.name for each in samples.list_samples(visit.scope, target.row.id, PageRequest(50)).items],
    }  # fmt: skip
    return Page("test.html", values, problem.status if problem else 200)
