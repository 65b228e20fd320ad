"""E-mails people about requests they may decide, with a link: deciding needs the console and a sign-in."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from appliance.core import clock
from appliance.core.database import db
from appliance.core.database.changes import zero_if_any
from appliance.core.errors import ApplianceError, IdempotencyMismatch, NotFound
from appliance.core.leases.open_tenants import FENCED
from appliance.core.scope import TenantScope
from appliance.core.texts import gettext as _
from appliance.core.texts import mark, ngettext, use_language
from appliance.governance.approvals import approvals
from appliance.governance.approvals.action_approvals import has_expired
from appliance.governance.approvals.approvals import Approval
from appliance.governance.approvals.deciders import Audience, find_deciders
from appliance.governance.approvals.descriptions import describe_action
from appliance.governance.approvals.email_dependencies import EmailDependencies
from appliance.governance.approvals.links import console_url, review_url
from appliance.governance.executor.requests import ActionRequest
from appliance.governance.models import ApprovalRow
from appliance.monitor import Line, write_lines
from appliance.tenants import service as tenants
from appliance.tenants.sign_in import parse_email

MAX_RECIPIENTS = 50
_MOST_AT_ONCE, _MOST_NAMED = 1_000, 20
_RECORD_NOTICE = "INSERT INTO approval_told (tenant_id, approval_id, user_id, at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
SECONDS = 30.0
_UNSENT = f"status = 'pending' AND notified_at IS NULL AND tenant_id NOT IN ({FENCED})"
_SUBJECTS = {
    "approval": mark("Your approval is needed in %(tenant)s"),
    "input": mark("Your answer is needed in %(tenant)s"),
    "choice": mark("Your choice is needed in %(tenant)s"),
}
_INTRODUCTIONS = {
    "approval": mark("Someone requested your approval in %(tenant)s."),
    "input": mark("Someone requested your answer in %(tenant)s."),
    "choice": mark("Someone requested your choice in %(tenant)s."),
}
_KIND_LABELS = {
    "approval": mark("a request for your approval"),
    "input": mark("a request for your answer"),
    "choice": mark("a request for your choice"),
}


@dataclass(frozen=True)
class Recipient:
    """A person who may decide and has an e-mail address; `language` is their preferred language, if any."""

    user_id: str
    email: str
    language: str


class Notices:
    """Sends notices by the integration of this name, in every tenant that has it: one e-mail per person and request, in the
    person's language, and at most one in `letter_seconds`; requests made in between share the next e-mail.

    E-mails are queued as calls of the integration, so each has a record and a restart loses none.
    """

    def __init__(self, email: EmailDependencies, integration: str, letter_seconds: int = 0) -> None:
        self._executor, self._integrations, self._languages = email.executor, email.integrations, email.languages
        self._integration = integration
        self._pause_ms = letter_seconds * 1000

    def send_due(self) -> int:
        """Queue e-mails about requests that somebody has not been notified of, oldest first; returns the number of e-mails."""
        if not self._integration:
            return 0
        tenant_rows = db.rows(f"SELECT DISTINCT tenant_id FROM approval WHERE {_UNSENT}")  # noqa: S608
        return sum(self._notify_tenant(tenants.system_scope(tenant_id)) for (tenant_id,) in tenant_rows)

    def next_due(self) -> int | None:
        """0, a time in the past, while somebody has not been notified of a request, None otherwise and without an integration."""
        if not self._integration:
            return None
        return zero_if_any(f"SELECT 1 FROM approval WHERE {_UNSENT}")  # noqa: S608

    def _notify_tenant(self, scope: TenantScope) -> int:
        is_unsent = (ApprovalRow.status == "pending") & ApprovalRow.notified_at.is_null()
        rows = scope.select(ApprovalRow).where(is_unsent).order_by(ApprovalRow.id).limit(_MOST_AT_ONCE)
        requests = [each for each in approvals.read_rows(scope, list(rows)) if not has_expired(each)]
        try:
            self._integrations.get_integration(scope, self._integration)
        except NotFound:  # the tenant has not set up e-mail
            requests = []
        recipients = self._recipients(scope, requests)
        notified = self._already_notified(scope, [each.id for each in requests])
        emails: dict[Recipient, list[Approval]] = {}
        for each in requests:
            for recipient in recipients[each.id]:
                if (each.id, recipient.user_id) not in notified:
                    emails.setdefault(recipient, []).append(each)
        waiting = {reader for reader in emails if self._is_too_soon(scope, reader)}
        sent, deferred = 0, {each.id for reader in waiting for each in emails[reader]}
        for recipient in emails.keys() - waiting:
            number, later = self._queue_email(scope, recipient, emails[recipient])
            sent += number
            deferred |= {each.id for each in later}
        completed = [row.id for row in rows if row.id not in deferred]
        update = scope.update(ApprovalRow, notified_at=clock.now_ms()).where(ApprovalRow.id.in_(completed))
        if completed:
            db.write(update.execute)
        return sent

    def _recipients(self, scope: TenantScope, requests: Sequence[Approval]) -> dict[str, list[Recipient]]:
        """The readers of each request; requests with the same approvers and askers share one lookup."""
        by_audience: dict[Audience, list[Recipient]] = {}
        for each in requests:
            if (audience := each.audience) not in by_audience:
                deciders = find_deciders(scope, audience)
                recipients = [Recipient(one.user_id, email, one.language) for one in deciders if (email := parse_email(one.login))]
                by_audience[audience] = recipients[:MAX_RECIPIENTS]
        return {each.id: by_audience[each.audience] for each in requests}

    def _already_notified(self, scope: TenantScope, approval_ids: Sequence[str]) -> set[tuple[str, str]]:
        marks = ", ".join("?" for _ in approval_ids) or "NULL"
        sql = f"SELECT approval_id, user_id FROM approval_told WHERE tenant_id = ? AND approval_id IN ({marks})"  # noqa: S608
        return {(str(approval_id), str(user_id)) for approval_id, user_id in db.rows(sql, (scope.tenant_id, *approval_ids))}

    def _is_too_soon(self, scope: TenantScope, recipient: Recipient) -> bool:
        sql = "SELECT 1 FROM approval_told WHERE tenant_id = ? AND user_id = ? AND at > ? LIMIT 1"
        return (
            bool(db.rows(sql, (scope.tenant_id, recipient.user_id, clock.now_ms() - self._pause_ms))) if self._pause_ms else False
        )

    def _queue_email(self, scope: TenantScope, recipient: Recipient, about: Sequence[Approval]) -> tuple[int, Sequence[Approval]]:
        """Queue one e-mail; returns 1 unless that failed, and the requests left for the next.  An e-mail queued before a crash
        is not queued again: its key shows it, but only its first request is known, so the others go into the next."""
        first = about[0]
        with use_language(self._languages.choose(recipient.language)):
            fields = build_email(scope, about, recipient.email)
        key = f"approval/{first.id}/{recipient.user_id}"
        request = ActionRequest(self._integration, "send", fields, idempotency_key=key, seconds=SECONDS)
        sent, later = 1, about[:0]
        try:
            self._executor.enqueue(scope, request)
        except IdempotencyMismatch:
            about, later = about[:1], about[1:]
        except ApplianceError as error:
            sent = 0
            for each in about:
                self._log_failure(scope, each, error.message)
        now = clock.now_ms()
        db.write(lambda: [db.execute(_RECORD_NOTICE, (scope.tenant_id, each.id, recipient.user_id, now)) for each in about])
        return sent, later

    def _log_failure(self, scope: TenantScope, approval: Approval, message: str) -> None:
        message_text = f"the e-mail about the request {approval.id} could not be sent by {self._integration}: {message}"
        fields = {"approval_id": approval.id, "integration": self._integration}
        execution = approval.origin.execution_id or None
        line = Line(
            clock.now_ms(), "error", "approval", message_text, fields, execution_id=execution, step=approval.origin.step or None
        )
        db.write(partial(write_lines, scope, [line]))


def build_email(scope: TenantScope, about: Sequence[Approval], email: str) -> dict[str, Any]:
    """The e-mail, in the current language.  A request's content is only shown where it is decided; the requester's words are
    marked as theirs."""
    tenant = tenants.get_tenant(scope.tenant_id).name
    if len(about) == 1:
        subject, text = _(_SUBJECTS[about[0].request.kind], tenant=tenant), _describe_request(scope, about[0], tenant)
    else:
        subject = ngettext(
            "%(num)s request waits for you in %(tenant)s", "%(num)s requests wait for you in %(tenant)s", len(about), tenant=tenant
        )
        text = _describe_requests(scope, about, subject)
    return {"to": [email], "subject": subject, "text": f"{text}\n{_('Replying to this email decides nothing.')}\n"}


def _describe_request(scope: TenantScope, approval: Approval, tenant: str) -> str:
    about, request = approval.about, approval.request
    lines = [_(_INTRODUCTIONS[request.kind], tenant=tenant), ""]
    if about.heading:
        lines.append(_("The action: %(action)s", action=describe_action(approval) or about.heading))
    if request.title != about.heading:
        lines.append(_('Requester\'s message: "%(title)s"', title=request.title))
    if about.needed > 1:
        lines.append(ngettext("%(num)s person must agree.", "%(num)s different people must agree.", about.needed))
    if request.expires_at is not None:
        lines.append(_("Decide by %(time)s.", time=clock.minute(request.expires_at)))
    return "\n".join([*lines, "", _("Sign in to review and decide:"), "", f"    {review_url(scope, approval.id)}", ""])


def _describe_requests(scope: TenantScope, about: Sequence[Approval], headline: str) -> str:
    """Counts per kind of request; the inbox shows them all."""
    counted = Counter(describe_action(each) or each.about.heading or _(_KIND_LABELS[each.request.kind]) for each in about)
    lines = [f"    {count} x {what}" for what, count in counted.most_common(_MOST_NAMED)]
    if (more := len(counted) - _MOST_NAMED) > 0:
        lines.append(f"    {ngettext('and %(num)s more kind of request', 'and %(num)s more kinds of requests', more)}")
    at = console_url(scope, "/console/approvals")
    return "\n".join([f"{headline}:", "", *lines, "", _("Sign in to review and decide:"), "", f"    {at}", ""])
