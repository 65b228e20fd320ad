"""Pages of approvals: the inbox, one request with its details, and the form to decide it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from appliance.console.frame.formatting import state_name
from appliance.console.frame.forms import InputForm, read_form
from appliance.console.frame.json_blocks import describe
from appliance.console.frame.people import Names
from appliance.console.frame.routing import Answer, Page, Redirect, Visit, page
from appliance.core import clock
from appliance.core.errors import ApplianceError, Detail, InvalidRequest, NotFound, PolicyDenied, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.core.texts import gettext as _
from appliance.core.texts import mark, mark_error
from appliance.governance.approvals import (
    FREE_TEXT,
    Approval,
    ApprovalFilter,
    BatchResult,
    Decision,
    Verdict,
    approvals,
    batches,
    describe_request,
    find_decidable,
)
from appliance.processes.definitions import versions
from appliance.tenants import SignedIn

from .approval_actions import ActionView, build_action_view

TABS = (("pending", mark("Waiting")), ("all", mark("All")))
# The form holds the answer in a member of this name, because validation errors have pointers such as `/answer…`.
MEMBER = "answer"


@dataclass(frozen=True)
class Row:
    """A request in the list; `is_mine` when the visitor may decide it now, `is_late` when it has expired."""

    approval: Approval
    is_mine: bool
    is_late: bool
    title: str
    action: ActionView | None


@page("GET", "/approvals", scope="approvals.read")
def list_approvals(visit: Visit) -> Answer:
    """Pending requests, oldest first, those that the visitor may decide on top; or all requests, newest first."""
    return _inbox(visit)


@page("POST", "/approvals", scope="approvals.read", step_up=True)
def decide_several(visit: Visit) -> Answer:
    """Decide the requests selected in the list, and show the result for each."""
    request = visit.request
    comment = request.field("comment").replace("\r\n", "\n")
    decision = Decision(cast(Verdict, request.field("verdict")), comment=comment)
    try:
        outcomes = batches.decide_approvals(visit.scope, visit.person, request.form.get("approval", ()), decision)
    except ApplianceError as error:
        return _inbox(visit, problem=error)
    return _inbox(visit, outcomes=outcomes)


def _inbox(visit: Visit, outcomes: Sequence[BatchResult] = (), problem: ApplianceError | None = None) -> Page:
    state = visit.request.args.get("state", "pending")
    if state not in dict(TABS):
        raise InvalidRequest(Sentence("%(state)s is not a state; choose one of the list", state=repr(state[:40])))
    pending = state == "pending"
    filters = ApprovalFilter("pending" if pending else None)
    result = approvals.list_approvals(visit.scope, filters, visit.page(sort="created_at" if pending else None))
    mine = find_mine(visit.scope, visit.person, result.items)
    rows = [
        Row(each, each.id in mine, is_late(each), describe_request(each), build_action_view(visit, each)) for each in result.items
    ]
    names = _process_names(visit, [row.approval for row in rows])
    values = {
        "mine": [row for row in rows if pending and row.is_mine], "state": state,
        "others": [row for row in rows if not (pending and row.is_mine)], "tabs": TABS,
        "next_cursor": result.next_cursor, "process_names": names, "names": Names(visit), "outcomes": outcomes, "problem": problem,
        "titles": {each.approval_id: _title(visit, each.approval_id) for each in outcomes},
        "comment": visit.request.field("comment") if problem else "",
    }  # fmt: skip
    return Page("approvals.html", values, problem.status if problem else 200)


def _title(visit: Visit, approval_id: str) -> str:
    try:
        approval = approvals.get_approval(visit.scope, approval_id)
    except NotFound:
        return approval_id
    return describe_request(approval)


def _process_names(visit: Visit, rows: Sequence[Approval]) -> dict[str, str]:
    return {name: _process_name(visit, name) for name in {row.origin.process_id for row in rows} if name}


def _process_name(visit: Visit, process_id: str) -> str:
    try:
        return str(versions.get_process(visit.scope, process_id).name)
    except NotFound:
        return process_id


def is_late(approval: Approval) -> bool:
    """Whether the request has expired but has not been closed yet."""
    ends = approval.request.expires_at
    return approval.status == "pending" and ends is not None and ends <= clock.now_ms()


def find_mine(scope: TenantScope, person: SignedIn, requests: Iterable[Approval]) -> set[str]:
    """The ids of the requests that this person may decide now; the number of queries does not depend on their number."""
    still_open = [each for each in requests if each.status == "pending" and not is_late(each) and not _has_voted(person, each)]
    return find_decidable(scope, person.user_id, {each.id: each.audience for each in still_open})


def _has_voted(person: SignedIn, approval: Approval) -> bool:
    return any(vote.login == person.login for vote in approval.votes)


def _refusal(visit: Visit, approval: Approval) -> str | None:
    """The reason why this visitor may not decide; None when they may."""
    if _has_voted(visit.person, approval):
        return mark_error("you have already decided; another person must decide as well")
    try:
        approvals.check_decider(visit.scope, visit.person, approval)
    except PolicyDenied as error:
        return error.message
    return None


@page("GET", "/approvals/<approval_id>", scope="approvals.read")
def show_approval(visit: Visit, approval_id: str) -> Answer:
    """One request: what is requested, by whom and why, the exact action, and the form for those who may decide."""
    approval = approvals.get_approval(visit.scope, approval_id)
    return _approval_page(visit, approval, answer_form(approval))


def _approval_page(visit: Visit, approval: Approval, form: InputForm | None, problem: ApplianceError | None = None) -> Page:
    refusal = _refusal(visit, approval)
    late = is_late(approval)
    is_open = approval.status == "pending" and not late
    own = is_open and refusal is None and approvals.check_decider(visit.scope, visit.person, approval)
    values = {
        "row": approval, "asked_for": approval.request, "form": form, "problem": problem, "refusal": refusal,
        "is_open": is_open, "is_late": late, "is_own": own, "names": Names(visit),
        "process_name": _process_name(visit, approval.origin.process_id) if approval.origin.process_id else "",
        "action": build_action_view(visit, approval), "title": describe_request(approval), "about": approval.about,
        "asker": _(_ASKERS[_asker(approval)]),
        "details": describe(approval.request.details) if approval.request.details is not None else None,
        "answer": describe(approval.answer), "who": [_describe_approver(name) for name in approval.request.approvers],
        "comment": visit.request.field("comment"), "chosen": visit.request.field("choice"),
    }  # fmt: skip
    return Page("approval.html", values, problem.status if problem else 200)


_ASKERS = {"execution": mark("An execution"), "run": mark("An agent run"), "caller": mark("Somebody")}


def _asker(approval: Approval) -> str:
    return "execution" if approval.origin.execution_id else "run" if approval.about.run_id else "caller"


def _describe_approver(name: str) -> str:
    kind, _colon, value = name.partition(":")
    if kind == "user":
        return value
    return _("an owner") if value == "owner" else _("a member with the role %(role)s or higher", role=state_name(value))


def answer_form(approval: Approval) -> InputForm | None:
    """The form of an `input` request; None for requests that are decided with buttons."""
    schema = approval.request.schema
    if approval.request.kind != "input" or schema is None:
        return None
    is_yes_or_no = schema.get("type") == "boolean"
    member = {**schema, "title": schema.get("title") or _("Your answer")}
    # An unticked checkbox would count as "no" without a decision, so a yes-or-no answer is a choice instead.
    form = InputForm({"properties": {MEMBER: member}, "required": [] if is_yes_or_no else [MEMBER]})
    answer = form.root.children[0]
    answer.required = True
    if schema == FREE_TEXT:
        answer.kind = "prose"
    form.fill(form.defaults())
    return form


@page("POST", "/approvals/<approval_id>", scope="approvals.read", step_up=True)
def decide_approval(visit: Visit, approval_id: str) -> Answer:
    """Decide the request; errors in the answer are shown at their fields."""
    approval = approvals.get_approval(visit.scope, approval_id)
    form = answer_form(approval)
    try:
        decision = _decision(visit, approval, form)
        approvals.decide_approval(visit.scope, visit.person, approval_id, decision)
    except NotFound:
        raise
    except ApplianceError as error:
        if form is not None:
            form.show_errors([] if form.problems else [_plain_detail(detail, form) for detail in error.details])
        return _approval_page(visit, approvals.get_approval(visit.scope, approval_id), form, error)
    return Redirect(f"/console/approvals/{approval_id}")


def _decision(visit: Visit, approval: Approval, form: InputForm | None) -> Decision:
    request = visit.request
    comment = request.field("comment").replace("\r\n", "\n")
    if approval.request.kind == "approval":
        return Decision(cast(Verdict, request.field("verdict")), comment=comment)
    answer: Any = request.field("choice")
    if form is not None:
        answer = read_form(form, request.form).get(MEMBER)
        if form.problems:
            raise ValidationFailed("some of the answer is invalid; see the messages next to the fields", details=form.problems)
    return Decision("answer", answer, comment)


def _plain_detail(detail: Detail, form: InputForm) -> Detail:
    """Replace the type error of an empty answer by "required"."""
    answer = form.root.children[0]
    if detail.pointer == answer.pointer and answer.kind != "group" and not answer.value.strip():
        return Detail(detail.pointer, "required", "This is needed.")
    return detail
