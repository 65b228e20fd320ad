"""The editor of a draft: its definition and files, with problems shown next to the text."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from appliance.console.frame.routing import Answer, Data, Page, Redirect, Visit, page
from appliance.console.pages.govern.policies import read_yaml
from appliance.console.pages.operate.excerpts import find_sources
from appliance.core import ids, yaml12
from appliance.core.errors import AlreadyExists, ApplianceError, NotFound, ValidationFailed, VersionConflict
from appliance.core.sentences import Sentence
from appliance.core.texts import gettext as _
from appliance.core.texts import mark, ngettext
from appliance.processes import Process, examples
from appliance.processes.definitions import Draft, Problem, rename_file, versions

from . import outline

DEFINITION = "process.yaml"
LANGUAGES = {"yaml": "yaml", "yml": "yaml", "ts": "typescript", "js": "javascript", "json": "json", "php": "php"}
MOST_SHOWN = 200
# The names and descriptions of the examples, repeated here because texts are not extracted from the example files.
EXAMPLE_TEXTS = (
    mark("An approval"), mark("Above a limit, a person decides. Below it, requests pass automatically."),
    mark("A calculation"), mark("One TypeScript step turns the input into the output."),
    mark("A decision table"), mark("A table of conditions decides. Builders can change it without code."),
    mark("Every working day"), mark("Starts automatically at 6:00, Berlin time, and reports what it did."),
)  # fmt: skip


@dataclass(frozen=True)
class ParsedDraft:
    """A draft with the changes of a form; `lines` are the line numbers of the definition's pointers, if its text is known."""

    draft: Draft
    lines: Mapping[str, int]


@dataclass(frozen=True)
class Submission:
    """A submitted text; `stamp` identifies the draft that it replaces."""

    text: str
    stamp: str
    problem: ApplianceError | None = None


@page("GET", "/processes/-/new", scope="processflow.write")
def new_process(visit: Visit) -> Answer:
    """The form of a new process, with the examples to start from."""
    return _new_page(visit)


@page("POST", "/processes/-/new", scope="processflow.write")
def create_process(visit: Visit) -> Answer:
    """Create a process with a draft, and open it in the editor."""
    request = visit.request
    name = request.field("name").strip()[:200]
    process_id = request.field("id").strip() or ids.slug_of(name)
    try:
        ids.check_slug(process_id, pointer="/id")
        draft = examples.draft_of(request.field("template"), process_id, name)
        versions.save_draft(visit.scope, process_id, draft, create_only=True)
    except ApplianceError as refusal:
        return _new_page(visit, refusal)
    return Redirect(f"/console/processes/{process_id}/edit")


def _new_page(visit: Visit, problem: ApplianceError | None = None) -> Page:
    available = examples.list_examples()
    fields = ("id", "name", "template")
    values = {"examples": available, "problem": problem, "form": {name: visit.request.field(name) for name in fields}}
    return Page("process_new.html", values, problem.status if problem else 200)


@page("GET", "/processes/<process_id>/edit", scope="processflow.write")
def edit_process(visit: Visit, process_id: str) -> Answer:
    """The editor with one file of the draft; with `step`, at a `line` and `column` of the step's inline source."""
    row = versions.get_process(visit.scope, process_id)
    if step := visit.request.args.get("step"):
        place = _place_in_definition(row, step, *(_number(visit.request.args.get(name, "")) for name in ("line", "column")))
        return Redirect(f"/console/processes/{process_id}/edit?file={DEFINITION}{place}")
    return _editor(visit, row, _check_path(row, visit.request.args.get("file", "")))


def _place_in_definition(row: Process, step: str, line: int, column: int) -> str:
    """A position in a step's inline source as a URL fragment; empty when the source no longer exists or is unreadable."""
    pointer = next((pointer for pointer, _source in find_sources(row.definition, step)), None)
    try:
        place = None if pointer is None else yaml12.find_position(_text_of(row, DEFINITION), pointer, line, column)
    except yaml12.YamlInvalid:  # The editor shows the error.
        place = None
    return f"#line={place[0]}&column={place[1]}" if place else ""


def _number(text: str) -> int:
    """Parse a line or column number; 1 for anything else."""
    return int(text) if text.isdecimal() and len(text) < 8 and int(text) > 0 else 1


@page("POST", "/processes/<process_id>/edit", scope="processflow.write")
def save_process(visit: Visit, process_id: str) -> Answer:
    """Save one file of the draft, or only check it; the editor's script receives JSON."""
    row = versions.get_process(visit.scope, process_id)
    request = visit.request
    path, text = request.field("file") or DEFINITION, request.field("text").replace("\r\n", "\n")
    wants_data, is_check = request.field("as") == "data", request.field("do") == "check"
    stamp = request.field("stamp") or versions.source_stamp(row)
    try:
        _refuse_missing(row, path, stamp)
        parsed = _parse_draft(row, path, text)
        if not is_check:
            row, _is_new = versions.save_draft(visit.scope, process_id, parsed.draft, if_stamp=stamp)
            stamp = versions.source_stamp(row)
            if wants_data:
                # Checking takes longer than saving, so the script requests it separately.
                return Data({"stamp": stamp, "is_published": _is_published(visit, row)})
        if request.field("do") == "review":
            return Redirect(f"/console/processes/{process_id}/diff")
        problems = visit.services.processes.find_problems(visit.scope, parsed.draft)
    except NotFound:
        raise
    except ApplianceError as refusal:
        if wants_data:
            return Data(_refusal_view(refusal, path), refusal.status)
        return _editor(visit, row, path, Submission(text, stamp, refusal))
    if wants_data:
        return Data(_problem_list([_to_view(each, parsed) for each in problems[:MOST_SHOWN]]))
    if is_check:
        return _editor(visit, row, path, Submission(text, stamp))
    return Redirect(f"/console/processes/{process_id}/edit?file={path}")


@page("POST", "/processes/<process_id>/files", scope="processflow.write")
def change_files(visit: Visit, process_id: str) -> Answer:
    """Add an empty file to the draft, or rename or delete one."""
    row = versions.get_process(visit.scope, process_id)
    path = visit.request.field("file").strip()
    try:
        draft, next_path = _with_files(visit, row, path)
        # Only the version that the page showed is deleted; adding and renaming conflict with no other edit.
        seen = visit.request.field("stamp") if visit.request.field("do") == "delete" else ""
        versions.save_draft(visit.scope, process_id, draft, if_stamp=seen or versions.source_stamp(row))
    except NotFound:
        raise
    except ApplianceError as refusal:
        open_path = path if path in row.files else DEFINITION
        return _editor(visit, row, open_path, Submission(_text_of(row, open_path), versions.source_stamp(row), refusal))
    return Redirect(f"/console/processes/{process_id}/edit?file={next_path}")


def _with_files(visit: Visit, row: Process, path: str) -> tuple[Draft, str]:
    """The draft with the requested change of its files, and the file to show next."""
    files, do = dict(row.files), visit.request.field("do")
    if do == "add":
        _refuse_duplicate(row, path)
        return Draft(row.definition, {**files, path: ""}, row.source), path
    if path not in files:
        raise NotFound(Sentence("the draft has no file %(path)s; choose one from the list", path=repr(path[:80])))
    if do == "rename":
        target = visit.request.field("to").strip()
        _refuse_duplicate(row, target)
        return rename_file(Draft(row.definition, files, row.source), path, target), target
    if do != "delete":
        raise ValidationFailed("`do` must be add, rename or delete; open the draft again", pointer="/do")
    del files[path]
    return Draft(row.definition, files, row.source), DEFINITION


def _refuse_duplicate(row: Process, path: str) -> None:
    if path in row.files or path == DEFINITION:
        raise AlreadyExists(
            Sentence("a file %(path)s already exists; open it, or choose another name", path=path), pointer="/file"
        )


def list_problems(visit: Visit, row: Process) -> list[dict[str, Any]]:
    """The problems of the saved draft, each with its file and line."""
    try:
        parsed = _parse_draft(row, DEFINITION, _text_of(row, DEFINITION))
        problems = visit.services.processes.find_problems(visit.scope, parsed.draft)
    except ApplianceError as refusal:
        return list(_refusal_view(refusal, DEFINITION).get("problems", []))
    return [_to_view(each, parsed) for each in problems[:MOST_SHOWN]]


def _check_path(row: Process, path: str) -> str:
    if path in ("", DEFINITION):
        return DEFINITION
    if path not in row.files:
        raise NotFound(
            Sentence("the draft of %(id)s has no file %(path)s; choose one from the list", id=row.id, path=repr(path[:80]))
        )
    return path


def _refuse_missing(row: Process, path: str, stamp: str) -> None:
    """NotFound for a file that the draft never had; VersionConflict when it may have been deleted or renamed meanwhile.

    The conflict shows the submitted text again, so that it is not lost.
    """
    if path != DEFINITION and path not in row.files:
        if stamp == versions.source_stamp(row) or not versions.is_path(path):
            raise NotFound(
                Sentence("the draft of %(id)s has no file %(path)s; choose one from the list", id=row.id, path=repr(path[:80]))
            )
        raise VersionConflict(Sentence(
            "the draft no longer has a file %(path)s: someone has deleted or renamed it; copy your text, open the draft again, "
            "and insert it in the right file",
            path=path,
        ))


def _parse_draft(row: Process, path: str, text: str) -> ParsedDraft:
    """The draft with one file replaced by `text`; ValidationFailed when it is a definition that is not a YAML object."""
    if path != DEFINITION:
        source = row.source
        lines = read_yaml(source)[1] if source else {}
        return ParsedDraft(Draft(row.definition, {**row.files, path: text}, source), lines)
    document, lines = read_yaml(text)
    if not isinstance(document, dict):
        raise ValidationFailed("the definition must be an object, such as `name: Order intake`", extra={"line": 1})
    draft = Draft({"id": row.id, **document}, row.files, text)
    versions.validate_draft(row.id, draft)
    return ParsedDraft(draft, lines)


def _text_of(row: Process, path: str) -> str:
    if path != DEFINITION:
        return str(row.files[path])
    return row.source or yaml12.dump(row.definition)


def _to_view(problem: Problem, parsed: ParsedDraft) -> dict[str, Any]:
    """A problem with its file and line as JSON; problems of the definition refer to `process.yaml`."""
    file, line, column = _locate(problem, parsed)
    return {
        "file": file, "line": line, "column": column, "message": problem.message, "severity": problem.severity,
        "pointer": problem.pointer, "code": problem.code,
    }  # fmt: skip


def _locate(problem: Problem, parsed: ParsedDraft) -> tuple[str, int | None, int | None]:
    """The file, line and column of a problem.

    Inline code is checked as a file that the draft does not have, so its position is translated to the definition.
    """
    draft, place = parsed.draft, None
    if problem.file is not None and problem.file in draft.files:
        return problem.file, problem.line, problem.column
    if problem.file is not None:
        text = draft.source or yaml12.dump(draft.definition)
        place = yaml12.find_position(text, f"{problem.pointer}/source", problem.line or 1, problem.column or 1)
    return DEFINITION, *(place or (versions.line_of(problem.pointer, parsed.lines), None))


def _refusal_view(refusal: ApplianceError, path: str) -> dict[str, Any]:
    """The JSON for the script when the text could not be saved or checked."""
    line = refusal.extra.get("line")
    if line is None:
        return {"refusal": refusal.message}
    problem = {
        "file": path, "line": line, "column": None, "message": refusal.message, "severity": "error", "pointer": "", "code": "",
    }  # fmt: skip
    return {**_problem_list([problem]), "refusal": refusal.message}


def _problem_list(problems: list[dict[str, Any]]) -> dict[str, Any]:
    return {"problems": problems, "title": _title(len(problems))}


def _title(problems: int) -> str:
    return ngettext("%(num)s problem", "%(num)s problems", problems) if problems else _("No problems")


def _phrases() -> str:
    """The texts of the editor's script, as JSON."""
    unanswered = _("not saved: the appliance did not respond or you are signed out. Sign in on another page and save again")
    return json.dumps({
        "saving": _("saving…"), "saved": _("saved"), "unsaved": _("not saved"), "unanswered": unanswered,
        "silent": _("the appliance did not respond"), "unchecked": _("Not checked: %(why)s", why="#"),
    })  # fmt: skip


def _is_published(visit: Visit, row: Process) -> bool:
    """Whether the saved draft equals the published version."""
    if row.published_version is None:
        return False
    live = versions.get_version(visit.scope, row.id, row.published_version)
    return bool(live.draft_digest == row.draft_digest)


@cache
def _script(path: Path) -> str:
    """The URL of the editor's script, with a digest of its content; without the script the page is a plain form."""
    version = hashlib.sha256(path.read_bytes()).hexdigest()[:12] if path.is_file() else ""
    return f"/static/editor/editor.js?v={version}"


def _editor(visit: Visit, row: Process, path: str, sent: Submission | None = None) -> Page:
    """The editor with the submitted text, or with the saved one."""
    is_there = path == DEFINITION or path in row.files
    sent = sent or Submission(_text_of(row, path), versions.source_stamp(row))
    problem = sent.problem
    try:
        parsed = _parse_draft(row, path, sent.text)
        problems_found = visit.services.processes.find_problems(visit.scope, parsed.draft)
        problems = [_to_view(each, parsed) for each in problems_found[:MOST_SHOWN]]
    except ApplianceError as refusal:
        problem, problems = problem or refusal, _refusal_view(refusal, path).get("problems", [])
    values = {
        "process": row, "path": path, "is_there": is_there, "text": sent.text, "paths": [DEFINITION, *sorted(row.files)],
        "problem": problem,
        "problems": problems, "problems_title": _title(len(problems)), "editor_phrases": _phrases(), "definition": DEFINITION,
        "language": LANGUAGES.get(path.rpartition(".")[2], ""),
        "users": [line for line in outline.every_line(outline.build_outline(row.definition)) if line.file == path],
        "is_published": _is_published(visit, row), "stamp": sent.stamp, "is_stored": is_there and sent.text == _text_of(row, path),
        "editor": _script(visit.services.assets / "editor" / "editor.js"),
    }  # fmt: skip
    return Page("process_edit.html", values, problem.status if problem else 200)
