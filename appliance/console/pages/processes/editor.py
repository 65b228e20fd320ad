"""The page on which a draft is written: its definition and its files, with what is wrong beside them."""

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
# What the examples say of themselves, in files that nobody extracts texts from.
EXAMPLE_TEXTS = (
    mark("An approval"), mark("Above a limit, a person decides. Below it, requests pass automatically."),
    mark("A calculation"), mark("One TypeScript step turns the input into the output."),
    mark("A decision table"), mark("A table of conditions decides. Builders can change it without code."),
    mark("Every working day"), mark("Starts automatically at 6:00, Berlin time, and reports what it did."),
)  # fmt: skip


@dataclass(frozen=True)
class Written:
    """The draft as a form would have it: `lines` are those of the definition's pointers, where its text is known."""

    draft: Draft
    lines: Mapping[str, int]


@dataclass(frozen=True)
class Sent:
    """A text that came from a form; `stamp` is that of the draft which it replaces."""

    text: str
    stamp: str
    problem: ApplianceError | None = None


@page("GET", "/processes/-/new", scope="processflow.write")
def new_process(visit: Visit) -> Answer:
    """What a process may begin with."""
    return _beginning(visit)


@page("POST", "/processes/-/new", scope="processflow.write")
def create_process(visit: Visit) -> Answer:
    """Store the draft of a process that is not there yet, and go on in the editor."""
    asked = visit.asked
    name = asked.field("name").strip()[:200]
    process_id = asked.field("id").strip() or ids.slug_of(name)
    try:
        ids.check_slug(process_id, pointer="/id")
        draft = examples.draft_of(asked.field("template"), process_id, name)
        versions.save_draft(visit.scope, process_id, draft, create_only=True)
    except ApplianceError as refusal:
        return _beginning(visit, refusal)
    return Redirect(f"/console/processes/{process_id}/edit")


def _beginning(visit: Visit, problem: ApplianceError | None = None) -> Page:
    known = examples.list_examples()
    fields = ("id", "name", "template")
    values = {"examples": known, "problem": problem, "form": {name: visit.asked.field(name) for name in fields}}
    return Page("process_new.html", values, problem.status if problem else 200)


@page("GET", "/processes/<process_id>/edit", scope="processflow.write")
def edit_process(visit: Visit, process_id: str) -> Answer:
    """The editor with one file of the draft; with `step`, it goes to that `line` and `column` of the source that the step has in
    the definition itself."""
    row = versions.get_process(visit.scope, process_id)
    if step := visit.asked.args.get("step"):
        place = _place_in_definition(row, step, *(_number(visit.asked.args.get(name, "")) for name in ("line", "column")))
        return Redirect(f"/console/processes/{process_id}/edit?file={DEFINITION}{place}")
    return _editor(visit, row, _chosen(row, visit.asked.args.get("file", "")))


def _place_in_definition(row: Process, step: str, line: int, column: int) -> str:
    """As a fragment; empty where the draft has no such source any more, or cannot be read."""
    pointer = next((pointer for pointer, _source in find_sources(row.definition, step)), None)
    try:
        place = None if pointer is None else yaml12.find_place(_text_of(row, DEFINITION), pointer, line, column)
    except yaml12.YamlInvalid:  # the editor says so
        place = None
    return f"#line={place[0]}&column={place[1]}" if place else ""


def _number(text: str) -> int:
    """Of a line or a column; whatever is none is the first."""
    return int(text) if text.isdecimal() and len(text) < 8 and int(text) > 0 else 1


@page("POST", "/processes/<process_id>/edit", scope="processflow.write")
def save_process(visit: Visit, process_id: str) -> Answer:
    """Store one file of the draft, or only look at it; a script of ours is told in JSON."""
    row = versions.get_process(visit.scope, process_id)
    asked = visit.asked
    path, text = asked.field("file") or DEFINITION, asked.field("text").replace("\r\n", "\n")
    wants_data, is_check = asked.field("as") == "data", asked.field("do") == "check"
    stamp = asked.field("stamp") or versions.stamp_of(row)
    try:
        _refuse_gone(row, path, stamp)
        written = _written(row, path, text)
        if not is_check:
            row, _is_new = versions.save_draft(visit.scope, process_id, written.draft, if_stamp=stamp)
            stamp = versions.stamp_of(row)
            if wants_data:
                # Looking takes its time: the script asks for it next.
                return Data({"stamp": stamp, "is_published": _is_published(visit, row)})
        if asked.field("do") == "review":
            return Redirect(f"/console/processes/{process_id}/diff")
        problems = visit.services.processes.problems_of(visit.scope, written.draft)
    except NotFound:
        raise
    except ApplianceError as refusal:
        if wants_data:
            return Data(_refusal(refusal, path), refusal.status)
        return _editor(visit, row, path, Sent(text, stamp, refusal))
    if wants_data:
        return Data(_listed([_told(each, written) for each in problems[:MOST_SHOWN]]))
    if is_check:
        return _editor(visit, row, path, Sent(text, stamp))
    return Redirect(f"/console/processes/{process_id}/edit?file={path}")


@page("POST", "/processes/<process_id>/files", scope="processflow.write")
def change_files(visit: Visit, process_id: str) -> Answer:
    """Add an empty file to the draft, give one another path, or take one out of it."""
    row = versions.get_process(visit.scope, process_id)
    path = visit.asked.field("file").strip()
    try:
        draft, shown = _with_files(visit, row, path)
        # What is deleted is what was shown; a new path, or another file, is in nobody's way.
        seen = visit.asked.field("stamp") if visit.asked.field("do") == "delete" else ""
        versions.save_draft(visit.scope, process_id, draft, if_stamp=seen or versions.stamp_of(row))
    except NotFound:
        raise
    except ApplianceError as refusal:
        open_path = path if path in row.files else DEFINITION
        return _editor(visit, row, open_path, Sent(_text_of(row, open_path), versions.stamp_of(row), refusal))
    return Redirect(f"/console/processes/{process_id}/edit?file={shown}")


def _with_files(visit: Visit, row: Process, path: str) -> tuple[Draft, str]:
    """The draft with its files as the form asks, and the file to show next."""
    files, do = dict(row.files), visit.asked.field("do")
    if do == "add":
        _refuse_taken(row, path)
        return Draft(row.definition, {**files, path: ""}, row.source), path
    if path not in files:
        raise NotFound(Sentence("the draft has no file %(path)s; choose one of the list", path=repr(path[:80])))
    if do == "rename":
        target = visit.asked.field("to").strip()
        _refuse_taken(row, target)
        return rename_file(Draft(row.definition, files, row.source), path, target), target
    if do != "delete":
        raise ValidationFailed("this form is not one of this page; open the draft again", pointer="/do")
    del files[path]
    return Draft(row.definition, files, row.source), DEFINITION


def _refuse_taken(row: Process, path: str) -> None:
    if path in row.files or path == DEFINITION:
        raise AlreadyExists(
            Sentence("there is a file %(path)s already; open it, or choose another name", path=path), pointer="/file"
        )


def told_problems(visit: Visit, row: Process) -> list[dict[str, Any]]:
    """What is wrong with the stored draft, each at its file and line."""
    try:
        written = _written(row, DEFINITION, _text_of(row, DEFINITION))
        found = visit.services.processes.problems_of(visit.scope, written.draft)
    except ApplianceError as refusal:
        return list(_refusal(refusal, DEFINITION).get("problems", []))
    return [_told(each, written) for each in found[:MOST_SHOWN]]


def _chosen(row: Process, path: str) -> str:
    if path in ("", DEFINITION):
        return DEFINITION
    if path not in row.files:
        raise NotFound(
            Sentence("the draft of %(id)s has no file %(path)s; choose one of the list", id=row.id, path=repr(path[:80]))
        )
    return path


def _refuse_gone(row: Process, path: str, stamp: str) -> None:
    """NotFound for a file that the draft does not have; VersionConflict when it may have had it: its text must not be lost."""
    if path != DEFINITION and path not in row.files:
        if stamp == versions.stamp_of(row) or not versions.is_path(path):
            raise NotFound(
                Sentence("the draft of %(id)s has no file %(path)s; choose one of the list", id=row.id, path=repr(path[:80]))
            )
        raise VersionConflict(Sentence(
            "the draft has no file %(path)s any more: somebody deleted it, or gave it another path; keep a copy "
            "of your text, open the draft again, and put it where it belongs now",
            path=path,
        ))


def _written(row: Process, path: str, text: str) -> Written:
    """The draft with `text` in the place of one of its files; ValidationFailed when a definition is no YAML or no object."""
    if path != DEFINITION:
        source = row.source
        lines = read_yaml(source)[1] if source else {}
        return Written(Draft(row.definition, {**row.files, path: text}, source), lines)
    document, lines = read_yaml(text)
    if not isinstance(document, dict):
        raise ValidationFailed("a definition is an object, such as `name: Order intake`", extra={"line": 1})
    draft = Draft({"id": row.id, **document}, row.files, text)
    versions.check_draft(row.id, draft)
    return Written(draft, lines)


def _text_of(row: Process, path: str) -> str:
    if path != DEFINITION:
        return str(row.files[path])
    return row.source or yaml12.dump(row.definition)


def _told(problem: Problem, written: Written) -> dict[str, Any]:
    """A problem at its file and line; one of the definition stands in its file."""
    file, line, column = _place_of(problem, written)
    return {
        "file": file, "line": line, "column": column, "message": problem.message, "severity": problem.severity,
        "pointer": problem.pointer, "code": problem.code,
    }  # fmt: skip


def _place_of(problem: Problem, written: Written) -> tuple[str, int | None, int | None]:
    """Code that stands in the definition itself is checked as a file, which the draft does not have."""
    draft, place = written.draft, None
    if problem.file is not None and problem.file in draft.files:
        return problem.file, problem.line, problem.column
    if problem.file is not None:
        text = draft.source or yaml12.dump(draft.definition)
        place = yaml12.find_place(text, f"{problem.pointer}/source", problem.line or 1, problem.column or 1)
    return DEFINITION, *(place or (versions.line_of(problem.pointer, written.lines), None))


def _refusal(refusal: ApplianceError, path: str) -> dict[str, Any]:
    """What a script is told when nothing was stored, or nothing could be looked at."""
    line = refusal.extra.get("line")
    if line is None:
        return {"refusal": refusal.message}
    found = {"file": path, "line": line, "column": None, "message": refusal.message, "severity": "error", "pointer": "", "code": ""}
    return {**_listed([found]), "refusal": refusal.message}


def _listed(problems: list[dict[str, Any]]) -> dict[str, Any]:
    return {"problems": problems, "title": _title(len(problems))}


def _title(problems: int) -> str:
    return ngettext("%(num)s problem", "%(num)s problems", problems) if problems else _("No problems")


def _phrases() -> str:
    """What the editor's script says by itself, as JSON."""
    unanswered = _("not saved: the appliance did not respond or you are signed out. Sign in on another page and save again")
    return json.dumps({
        "saving": _("saving…"), "saved": _("saved"), "unsaved": _("not saved"), "unanswered": unanswered,
        "silent": _("the appliance did not respond"), "unchecked": _("Not checked: %(why)s", why="#"),
    })  # fmt: skip


def _is_published(visit: Visit, row: Process) -> bool:
    """Whether the stored draft is what runs."""
    if row.published_version is None:
        return False
    live = versions.get_version(visit.scope, row.id, row.published_version)
    return bool(live.draft_digest == row.draft_digest)


@cache
def _script(path: Path) -> str:
    """Its address changes with its content, as those of `asset` do; without it the page is a form."""
    version = hashlib.sha256(path.read_bytes()).hexdigest()[:12] if path.is_file() else ""
    return f"/static/editor/editor.js?v={version}"


def _editor(visit: Visit, row: Process, path: str, sent: Sent | None = None) -> Page:
    """The page with what was sent, or with what is stored."""
    is_there = path == DEFINITION or path in row.files
    sent = sent or Sent(_text_of(row, path), versions.stamp_of(row))
    problem = sent.problem
    try:
        written = _written(row, path, sent.text)
        found = visit.services.processes.problems_of(visit.scope, written.draft)
        problems = [_told(each, written) for each in found[:MOST_SHOWN]]
    except ApplianceError as refusal:
        problem, problems = problem or refusal, _refusal(refusal, path).get("problems", [])
    values = {
        "process": row, "path": path, "is_there": is_there, "text": sent.text, "paths": [DEFINITION, *sorted(row.files)],
        "problem": problem,
        "problems": problems, "problems_title": _title(len(problems)), "editor_phrases": _phrases(), "definition": DEFINITION,
        "language": LANGUAGES.get(path.rpartition(".")[2], ""),
        "users": [line for line in outline.every_line(outline.outline(row.definition)) if line.file == path],
        "is_published": _is_published(visit, row), "stamp": sent.stamp, "is_stored": is_there and sent.text == _text_of(row, path),
        "editor": _script(visit.services.assets / "editor" / "editor.js"),
    }  # fmt: skip
    return Page("process_edit.html", values, problem.status if problem else 200)
