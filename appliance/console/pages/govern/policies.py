"""Pages of policies: the list, one policy with its rules, draft and versions, the editor, activation and deactivation."""

from dataclasses import dataclass
from typing import Any

from appliance.console.frame.people import Names
from appliance.console.frame.routing import Answer, Page, Redirect, Visit, page
from appliance.core import yaml12
from appliance.core.errors import ApplianceError, Conflict, Detail, NotFound, ValidationFailed
from appliance.core.pages import PageRequest
from appliance.core.sentences import Sentence
from appliance.governance.policies import PolicyVersion, StoredPolicy, diff_policies, parse_policy

from .rule_sentences import describe_rules

_VERSIONS = 20
EXAMPLE = """\
mode: observe
description: What the clerk may do in the ERP.
rules:
  - id: read
    effect: allow
    subject: {agents: [clerk]}
    integrations: [erp]
    effects: [read]
    reason: Reading orders is the clerk's work.
  - id: large-orders
    effect: require_approval
    integrations: [erp]
    when: {input: {total: {_gt: 1000}}}
    obligations: {approvers: [role:owner], ttl_seconds: 14400}
    reason: An owner looks at large orders.
"""


@dataclass(frozen=True)
class Finding:
    """An error in a policy document, with its pointer and line."""

    pointer: str
    line: int | None
    message: str


@page("GET", "/policies", scope="policies.read")
def list_policies(visit: Visit) -> Answer:
    """The tenant's policies, by name."""
    result = visit.services.governance.policies.list_policies(visit.scope, visit.page())
    rows = [(row, _active(visit, row)) for row in result.items]
    values = {"rows": rows, "next_cursor": result.next_cursor, "names": Names(visit)}
    example = {"yaml": EXAMPLE, "rules": describe_rules(yaml12.load(EXAMPLE))}
    return Page("policies.html", {**values, "example": example})


def _active(visit: Visit, stored: StoredPolicy) -> PolicyVersion | None:
    number = stored.active_version
    return None if number is None else visit.services.governance.policies.get_version(visit.scope, stored.name, number)


@page("GET", "/policies/<name>", scope="policies.read")
def show_policy(visit: Visit, name: str) -> Answer:
    """One policy."""
    return _policy_page(visit, name)


def _policy_page(visit: Visit, name: str, problem: ApplianceError | None = None) -> Page:
    policies = visit.services.governance.policies
    stored = policies.get_policy(visit.scope, name)
    active = _active(visit, stored)
    changes = [] if active is None else diff_policies(active.document, stored.draft)
    values = {
        "policy": stored, "active": active, "is_waiting": active is None or bool(changes), "changes": changes,
        "draft_rules": describe_rules(stored.draft), "draft_text": yaml12.dump(stored.draft),
        "active_rules": [] if active is None else describe_rules(active.document),
        "active_text": "" if active is None else yaml12.dump(active.document),
        "versions": policies.list_versions(visit.scope, name, PageRequest(_VERSIONS)).items,
        "names": Names(visit), "problem": problem,
    }  # fmt: skip
    return Page("policy.html", values, problem.status if problem else 200)


@page("GET", "/policies/<name>/versions/<number>", scope="policies.read")
def show_version(visit: Visit, name: str, number: str) -> Answer:
    """One version of a policy."""
    stored = visit.services.governance.policies.get_policy(visit.scope, name)
    version = visit.services.governance.policies.get_version(visit.scope, name, _number(number))
    values = {
        "policy": stored, "version": version, "rules": describe_rules(version.document), "text": yaml12.dump(version.document),
        "names": Names(visit),
    }  # fmt: skip
    return Page("policy_version.html", values)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise NotFound("a version is a number; choose one on the page of the policy")
    return int(text)


# -- editing


@page("GET", "/policies/-/new", scope="policies.write")
def new_policy(visit: Visit) -> Answer:
    """The editor of a new policy, filled with an example."""
    return _editor(visit, None, EXAMPLE)


@page("POST", "/policies/-/new", scope="policies.write")
def create_policy(visit: Visit) -> Answer:
    """Create a policy with its draft; Conflict when the name is in use."""
    return _save_draft(visit, None, visit.request.field("name").strip())


@page("GET", "/policies/<name>/draft", scope="policies.write")
def edit_policy(visit: Visit, name: str) -> Answer:
    """The editor, filled with the current draft."""
    stored = visit.services.governance.policies.get_policy(visit.scope, name)
    return _editor(visit, stored, yaml12.dump(stored.draft))


@page("POST", "/policies/<name>/draft", scope="policies.write")
def save_policy(visit: Visit, name: str) -> Answer:
    """Save the draft, unless someone else has saved one in the meantime."""
    return _save_draft(visit, visit.services.governance.policies.get_policy(visit.scope, name), name)


def _save_draft(visit: Visit, stored: StoredPolicy | None, name: str) -> Answer:
    policies, request, lines = visit.services.governance.policies, visit.request, dict[str, int]()
    text = request.field("text").replace("\r\n", "\n")
    try:
        document, lines = read_yaml(text)
        if stored is None and _exists(visit, parse_policy(document, name).name):
            raise Conflict(Sentence(
                "a policy named %(name)s already exists; choose another name, or edit the draft of that policy", name=name
            ))
        policies.save_draft(visit.scope, name, document, if_digest=None if stored is None else request.field("digest"))
    except ApplianceError as error:
        return _editor(visit, stored, text, error, lines)
    return Redirect(f"/console/policies/{name}")


def read_yaml(text: str) -> tuple[Any, dict[str, int]]:
    """The parsed document and the line number of each pointer; ValidationFailed with the position when the YAML is invalid."""
    try:
        return yaml12.load_with_lines(text)
    except yaml12.YamlInvalid as error:
        detail = Detail("", "invalid_yaml", Sentence("column %(column)s: %(message)s", column=error.column, message=error.message))
        raise ValidationFailed(
            Sentence("this is not valid YAML: %(error)s", error=error), details=[detail], extra={"line": error.line}
        ) from error


def _exists(visit: Visit, name: str) -> bool:
    try:
        visit.services.governance.policies.get_policy(visit.scope, name)
    except NotFound:
        return False
    return True


def _editor(
    visit: Visit, stored: StoredPolicy | None, text: str, problem: ApplianceError | None = None, lines: dict[str, int] | None = None
) -> Page:
    digest = visit.request.field("digest") or (stored.draft_digest if stored else "")
    details = problem.details if problem else []
    findings = [Finding(each.pointer, _line(each.pointer, lines or {}), each.message) for each in details]
    if problem is not None and "line" in problem.extra:
        findings = [Finding("", problem.extra["line"], each.message) for each in details]
    values = {
        "policy": stored, "name": visit.request.field("name"), "text": text, "digest": digest, "problem": problem,
        "findings": findings,
    }  # fmt: skip
    return Page("policy_edit.html", values, problem.status if problem else 200)


def _line(pointer: str, lines: dict[str, int]) -> int | None:
    """The line of the pointer, or of its nearest parent in the text, because a missing member has no line."""
    while pointer and pointer not in lines:
        pointer = pointer.rpartition("/")[0]
    return lines.get(pointer)


# -- activation


@page("POST", "/policies/<name>/activate", scope="policies.write")
def activate_policy(visit: Visit, name: str) -> Answer:
    """Activate the draft or an older version, as the page showed it."""
    request, version = visit.request, visit.request.field("version")
    try:
        if not request.field("digest"):
            raise ValidationFailed("the form names no content; open the policy and activate it from its page", pointer="/digest")
        visit.services.governance.policies.activate(
            visit.scope, name, version=_number(version) if version else None, message=request.field("message").strip(),
            if_digest=request.field("digest"),
        )  # fmt: skip
    except NotFound:
        raise
    except ApplianceError as error:
        return _policy_page(visit, name, error)
    return Redirect(f"/console/policies/{name}")


@page("POST", "/policies/<name>/deactivate", scope="policies.write")
def deactivate_policy(visit: Visit, name: str) -> Answer:
    """Deactivate the policy, so that none of its versions applies."""
    visit.services.governance.policies.deactivate(visit.scope, name)
    return Redirect(f"/console/policies/{name}")
