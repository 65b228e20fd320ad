"""Pages of an execution's recording: the journal of a step run, and a replay of the execution against its journal."""

from dataclasses import dataclass
from typing import Any

from appliance.console.frame.routing import Answer, Page, Visit, page
from appliance.core import clock
from appliance.core.errors import ApplianceError, InvalidRequest
from appliance.core.sentences import Sentence
from appliance.core.texts import gettext as _
from appliance.core.texts import pgettext
from appliance.processes import Execution, JournalRow
from appliance.processes.definitions import versions
from appliance.processes.engine import FINAL_LINE
from appliance.processes.executions import overview
from appliance.processes.executions import service as executions
from appliance.processes.host import redact_answer
from appliance.processes.rehearsal import ReplayRequest

from .executions import execution_page

SHOWN_STEPS = 50
SHOWN_TIMES = 20


@dataclass(frozen=True)
class Line:
    """A journal entry for the page; `times` are the first of the `read` clock values that the code received."""

    call: int
    attempt: int
    method: str
    args: Any
    ok: bool
    is_answered: bool
    answer: Any
    times: list[str]
    read: int

    @property
    def is_final(self) -> bool:
        return self.call == FINAL_LINE


def _line(row: JournalRow) -> Line:
    times = [clock.rfc3339(value) for value in row.clock[:SHOWN_TIMES]]
    answer = redact_answer(row.method, bool(row.ok), row.answer)
    return Line(
        call=row.call, attempt=row.attempt, method=row.method, args=row.args, ok=bool(row.ok), is_answered=row.position >= 0,
        answer=answer, times=times, read=len(row.clock),
    )


@page("GET", "/executions/<execution_id>/journal", scope="processflow.read")
def show_journal(visit: Visit, execution_id: str) -> Answer:
    """The host calls that the code of one step run made, with their answers, clock values and random numbers."""
    row = executions.get_execution(visit.scope, execution_id)
    path, iteration = visit.request.args.get("path", ""), visit.request.args.get("iteration", "")
    run = overview.get_run(visit.scope, row, path, iteration)
    result = executions.list_journal(visit.scope, row, visit.page(), (path, iteration))
    lines = sorted(map(_line, result.items), key=lambda line: (line.attempt, line.is_final))
    values = {
        "row": row, "run": run, "process": versions.get_process(visit.scope, row.process_id), "lines": lines,
        "next_cursor": result.next_cursor,
    }  # fmt: skip
    return Page("journal.html", values)


@page("POST", "/executions/<execution_id>/replay", scope="processflow.execute")
def replay_execution(visit: Visit, execution_id: str) -> Answer:
    """Replay an execution or one of its steps, and show where the result differs."""
    visit.scope.require("processflow.read")
    row = executions.get_execution(visit.scope, execution_id)
    request = _request(visit)
    try:
        replay = visit.services.processes.replay_execution(visit.scope, execution_id, request)
    except ApplianceError as error:
        return execution_page(visit, row, error)
    differing = [step for step in replay.steps if step.result != "identical"]
    values = {
        "row": row, "replay": replay, "request": request, "differing": differing[:SHOWN_STEPS], "count": len(differing),
        "process": versions.get_process(visit.scope, row.process_id), "choices": _choices(visit, row),
        "paths": overview.list_paths(visit.scope, row),
    }  # fmt: skip
    return Page("replay.html", values)


def _request(visit: Visit) -> ReplayRequest:
    version, step = visit.request.field("version"), visit.request.field("step") or None
    if version in ("", "draft"):
        return ReplayRequest(step=step, draft=version == "draft")
    if not (version.isascii() and version.isdigit() and len(version) < 10):
        raise InvalidRequest(Sentence("%(version)s is not a version; choose one from the list", version=repr(version[:40])))
    return ReplayRequest(int(version), step)


def _choices(visit: Visit, row: Execution) -> list[tuple[str, str]]:
    """The versions to replay with: the one it ran with, the published one, and the draft."""
    published = versions.get_process(visit.scope, row.process_id).published_version
    choices = [("", _("version %(version)s (as it ran)", version=row.version)), ("draft", pgettext("choice", "the draft"))]
    if published not in (None, row.version):
        choices.insert(1, (str(published), _("version %(version)s (published)", version=published)))
    return choices
