"""Pages of a process's versions: the list, the diff between two of them, publishing and rollback."""

import re
from dataclasses import dataclass
from typing import Any

from appliance.console.frame.people import Names
from appliance.console.frame.routing import Answer, Page, Redirect, Visit, page
from appliance.console.pages.govern.confirmations import Line, list_owners, permission_lines
from appliance.core import yaml12
from appliance.core.errors import ApplianceError, GrantRequired, InvalidRequest, NotFound, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.processes import Process
from appliance.processes.definitions import Comparison, PublishRequest, TextDiff, compare_texts, version_diff, versions
from appliance.processes.executions import service as executions
from appliance.processes.host import required_access_of_draft

from .editor import DEFINITION, list_problems

NUMBER = re.compile(r"[0-9]{1,9}")
COUNTED = 1_000


@dataclass(frozen=True)
class Share:
    """The number of recent executions that ran a version, and how many of them failed."""

    total: int = 0
    failed: int = 0


@page("GET", "/processes/<process_id>/versions", scope="processflow.read")
def list_versions(visit: Visit, process_id: str) -> Answer:
    """The versions of a process, newest first, with the published one marked."""
    return _versions_page(visit, versions.get_process(visit.scope, process_id))


def _versions_page(visit: Visit, row: Process, problem: ApplianceError | None = None) -> Page:
    result = versions.list_versions(visit.scope, row.id, visit.page())
    shares = {each: Share(*counts) for each, *counts in executions.count_by_version(visit.scope, row.id, COUNTED)}
    live = next((each for each in result.items if each.version == row.published_version), None)
    values = {
        "process": row, "versions": result.items, "next_cursor": result.next_cursor, "shares": shares, "names": Names(visit),
        "counted": sum(share.total for share in shares.values()), "problem": problem,
        "is_draft_newer": live.draft_digest != row.draft_digest if live else row.published_version is None, "most": COUNTED,
    }  # fmt: skip
    return Page("versions.html", values, problem.status if problem else 200)


@page("GET", "/processes/<process_id>/diff", scope="processflow.read")
def show_diff(visit: Visit, process_id: str) -> Answer:
    """The diff between two versions, or between a version and the draft."""
    row = versions.get_process(visit.scope, process_id)
    args = visit.request.args
    older = _parse_version(args.get("from", ""), row.published_version or 0)
    return diff_page(visit, row, older, _parse_version(args.get("to", ""), "draft"))


def _parse_version(text: str, default: version_diff.VersionRef) -> version_diff.VersionRef:
    if text in ("", "draft"):
        return "draft" if text else default
    if not NUMBER.fullmatch(text):
        raise InvalidRequest(
            Sentence("%(text)s is neither a version number nor `draft`; choose one from the list", text=repr(text[:40]))
        )
    return int(text)


def diff_page(
    visit: Visit,
    row: Process,
    older: version_diff.VersionRef,
    newer: version_diff.VersionRef,
    problem: ApplianceError | None = None,
) -> Page:
    """The page with the diff from `older` to `newer`; `problem` is the reason why the draft was not published."""
    if older == newer:
        raise ValidationFailed("both sides are the same version; choose another one, or the draft")
    before, after = (version_diff.load_content(visit.scope, row.id, version) for version in (older, newer))
    all_versions = versions.list_versions(visit.scope, row.id, visit.page(limit=100)).items
    is_publishing = newer == "draft" and older == (row.published_version or 0) and visit.may("processflow.write")
    values = {
        "process": row, "older": older, "newer": newer, "texts": _texts(before, after), "problem": problem,
        "problems": list_problems(visit, row) if is_publishing else [],
        "comparison": Comparison(older, newer, version_diff.compare_versions(before, after)),
        "stamp": versions.source_stamp(row), "numbers": [each.version for each in all_versions], "names": Names(visit),
        "version": next((each for each in all_versions if each.version == newer), None),
        "owners": list_owners(visit) if isinstance(problem, GrantRequired) else [],
        "excess": _missing_permissions(visit, row) if isinstance(problem, GrantRequired) else [],
        "is_publishing": is_publishing,
    }  # fmt: skip
    return Page("diff.html", values, problem.status if problem else 200)


def _missing_permissions(visit: Visit, row: Process) -> list[Line]:
    """The permissions that the draft needs and the visitor does not hold."""
    return [line for line in permission_lines(required_access_of_draft(row.definition, row.files)) if not visit.may(line.scope)]


def _texts(before: version_diff.Content, after: version_diff.Content) -> list[TextDiff]:
    """The diffs of the definition as YAML and of every file."""
    (old, old_files), (new, new_files) = before, after
    paths = sorted(old_files.keys() | new_files.keys())
    files = [(path, old_files.get(path), new_files.get(path)) for path in paths]
    return compare_texts([(DEFINITION, _yaml(old), _yaml(new)), *files])


def _yaml(definition: Any) -> str | None:
    return yaml12.dump(dict(definition)) if definition else None


@page("POST", "/processes/<process_id>/publish", scope="processflow.write")
def publish_process(visit: Visit, process_id: str) -> Answer:
    """Publish the draft as a new version; all its problems are shown at once."""
    row = versions.get_process(visit.scope, process_id)
    field = visit.request.field
    try:
        if field("stamp") not in ("", versions.source_stamp(row)):
            raise ValidationFailed("the draft has changed since you opened this page; review the changes, then publish again")
        current = _parse_version(field("current"), row.published_version or 0)
        request = PublishRequest(field("message").strip(), 0 if current == "draft" else current)
        visit.services.processes.publish_process(visit.scope, process_id, request)
    except NotFound:
        raise
    except ApplianceError as refusal:
        return diff_page(visit, row, row.published_version or 0, "draft", refusal)
    return Redirect(f"/console/processes/{process_id}")


@page("POST", "/processes/<process_id>/rollback", scope="processflow.write")
def roll_back(visit: Visit, process_id: str) -> Answer:
    """Roll back to an older version, which becomes the published one."""
    row = versions.get_process(visit.scope, process_id)
    version = _parse_version(visit.request.field("version"), "draft")
    try:
        if version == "draft":
            raise ValidationFailed("choose a version to roll back to; a draft is published instead")
        versions.roll_back(visit.scope, process_id, version)
    except NotFound:
        raise
    except ApplianceError as refusal:
        return _versions_page(visit, row, refusal)
    return Redirect(f"/console/processes/{process_id}/versions")
