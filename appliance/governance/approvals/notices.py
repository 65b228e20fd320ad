"""Tells whoever may decide a request of it, by an e-mail with a link: deciding needs the console and a sign-in."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ApplianceError, IdempotencyMismatch, NotFound
from appliance.core.scope import TenantScope
from appliance.core.texts import gettext as _
from appliance.core.texts import mark, ngettext, speaking
from appliance.governance.approvals import approvals
from appliance.governance.approvals.action_approvals import is_over
from appliance.governance.approvals.approvals import Approval
from appliance.governance.approvals.deciders import find_deciders
from appliance.governance.approvals.links import console_url, review_url
from appliance.governance.approvals.wording import action_of
from appliance.governance.approvals.writing import Writing
from appliance.governance.executor.requests import ActionRequest
from appliance.governance.models import ApprovalRow
from appliance.monitor import Line, write_lines
from appliance.tenants import service as tenants
from appliance.tenants.sign_in import as_email

MOST_READERS = 50
_MOST_AT_ONCE, _MOST_NAMED = 1_000, 20
_TOLD = "INSERT INTO approval_told (tenant_id, approval_id, user_id, at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
SECONDS = 30.0
_SUBJECTS = {
    "approval": mark("Your approval is needed in %(tenant)s"),
    "input": mark("Your answer is needed in %(tenant)s"),
    "choice": mark("Your choice is needed in %(tenant)s"),
}
_ASKED = {
    "approval": mark("Someone requested your approval in %(tenant)s."),
    "input": mark("Someone requested your answer in %(tenant)s."),
    "choice": mark("Someone requested your choice in %(tenant)s."),
}
_IN_WORDS = {
    "approval": mark("a request for your approval"),
    "input": mark("a request for your answer"),
    "choice": mark("a request for your choice"),
}


@dataclass(frozen=True)
class Reader:
    """Somebody who may decide and can be written to, in the `language` of their choice where there is one."""

    user_id: str
    email: str
    language: str


class Notices:
    """Sends by the integration of this name, in every tenant that has one; a letter to each person, once per request and one
    in `letter_seconds` at most: what was asked meanwhile is in the next.  Each is in its reader's language.

    The letters are queued as calls of the integration: what becomes of each is in its record, and a restart loses none.
    """

    def __init__(self, writing: Writing, integration: str, letter_seconds: int = 0) -> None:
        self._executor, self._integrations, self._languages = writing.executor, writing.integrations, writing.languages
        self._integration = integration
        self._pause_ms = letter_seconds * 1000

    def send_due(self) -> int:
        """Queue the letters about requests that somebody was not told of yet, the oldest first; answers how many letters."""
        if not self._integration:
            return 0
        found = db.rows("SELECT DISTINCT tenant_id FROM approval WHERE status = 'pending' AND notified_at IS NULL")
        return sum(self._tell(tenants.system_scope(tenant_id)) for (tenant_id,) in found)

    def _tell(self, scope: TenantScope) -> int:
        untold = (ApprovalRow.status == "pending") & ApprovalRow.notified_at.is_null()
        rows = scope.select(ApprovalRow).where(untold).order_by(ApprovalRow.id).limit(_MOST_AT_ONCE)
        asked = [each for each in approvals.read_rows(scope, list(rows)) if not is_over(each)]
        try:
            self._integrations.get_integration(scope, self._integration)
        except NotFound:  # the tenant wants no letters
            asked = []
        readers = self._readers(scope, asked)
        told = self._told(scope, [each.id for each in asked])
        letters: dict[Reader, list[Approval]] = {}
        for each in asked:
            for reader in readers[each.id]:
                if (each.id, reader.user_id) not in told:
                    letters.setdefault(reader, []).append(each)
        waiting = {reader for reader in letters if self._is_too_soon(scope, reader)}
        sent, held = 0, {each.id for reader in waiting for each in letters[reader]}
        for reader in letters.keys() - waiting:
            number, later = self._write(scope, reader, letters[reader])
            sent += number
            held |= {each.id for each in later}
        done = [row.id for row in rows if row.id not in held]
        noted = scope.update(ApprovalRow, notified_at=clock.now_ms()).where(ApprovalRow.id.in_(done))
        if done:
            db.write(noted.execute)
        return sent

    def _readers(self, scope: TenantScope, asked: Sequence[Approval]) -> dict[str, list[Reader]]:
        """Who is told of each request; the same question about the same approvers and askers is looked up once."""
        known: dict[object, list[Reader]] = {}
        for each in asked:
            if (alike := _alike(each)) not in known:
                deciders = find_deciders(scope, each.request, each.askers)
                found = [Reader(one.user_id, email, one.language) for one in deciders if (email := as_email(one.login))]
                known[alike] = found[:MOST_READERS]
        return {each.id: known[_alike(each)] for each in asked}

    def _told(self, scope: TenantScope, approval_ids: Sequence[str]) -> set[tuple[str, str]]:
        marks = ", ".join("?" for _ in approval_ids) or "NULL"
        sql = f"SELECT approval_id, user_id FROM approval_told WHERE tenant_id = ? AND approval_id IN ({marks})"  # noqa: S608
        return {(str(approval_id), str(user_id)) for approval_id, user_id in db.rows(sql, (scope.tenant_id, *approval_ids))}

    def _is_too_soon(self, scope: TenantScope, reader: Reader) -> bool:
        sql = "SELECT 1 FROM approval_told WHERE tenant_id = ? AND user_id = ? AND at > ? LIMIT 1"
        return bool(db.rows(sql, (scope.tenant_id, reader.user_id, clock.now_ms() - self._pause_ms))) if self._pause_ms else False

    def _write(self, scope: TenantScope, reader: Reader, about: Sequence[Approval]) -> tuple[int, Sequence[Approval]]:
        """Queue one letter; answers 1 unless it could not be, and what is left for the next.  One that was queued before a crash
        is not queued again: its key, of its first request, says so, and nobody knows what else it told."""
        first = about[0]
        with speaking(self._languages.choose(reader.language)):
            given = letter(scope, about, reader.email)
        key = f"approval/{first.id}/{reader.user_id}"
        request = ActionRequest(self._integration, "send", given, idempotency_key=key, seconds=SECONDS)
        sent, later = 1, about[:0]
        try:
            self._executor.enqueue(scope, request)
        except IdempotencyMismatch:
            about, later = about[:1], about[1:]
        except ApplianceError as error:
            sent = 0
            for each in about:
                self._note_failure(scope, each, error.message)
        now = clock.now_ms()
        db.write(lambda: [db.execute(_TOLD, (scope.tenant_id, each.id, reader.user_id, now)) for each in about])
        return sent, later

    def _note_failure(self, scope: TenantScope, asked: Approval, message: str) -> None:
        told = f"a letter about the request {asked.id} could not be sent by {self._integration}: {message}"
        fields = {"approval_id": asked.id, "integration": self._integration}
        execution = asked.origin.execution_id or None
        line = Line(clock.now_ms(), "error", "approval", told, fields, execution_id=execution, step=asked.origin.step or None)
        db.write(partial(write_lines, scope, [line]))


def letter(scope: TenantScope, about: Sequence[Approval], email: str) -> dict[str, Any]:
    """The e-mail, in the language spoken now.  What a request is about is read where it is decided; the asker's words are
    marked as theirs."""
    tenant = tenants.get_tenant(scope.tenant_id).name
    if len(about) == 1:
        subject, text = _(_SUBJECTS[about[0].request.kind], tenant=tenant), _told_of_one(scope, about[0], tenant)
    else:
        subject = ngettext(
            "%(num)s request waits for you in %(tenant)s", "%(num)s requests wait for you in %(tenant)s", len(about), tenant=tenant
        )
        text = _told_of_many(scope, about, subject)
    return {"to": [email], "subject": subject, "text": f"{text}\n{_('Replying to this email decides nothing.')}\n"}


def _told_of_one(scope: TenantScope, asked: Approval, tenant: str) -> str:
    about, request = asked.about, asked.request
    said = [_(_ASKED[request.kind], tenant=tenant), ""]
    if about.heading:
        said.append(_("The action: %(action)s", action=action_of(asked) or about.heading))
    if request.title != about.heading:
        said.append(_('Requester\'s message: "%(title)s"', title=request.title))
    if about.needed > 1:
        said.append(ngettext("%(num)s person must agree.", "%(num)s different people must agree.", about.needed))
    if request.expires_at is not None:
        said.append(_("Decide by %(time)s.", time=clock.minute(request.expires_at)))
    return "\n".join([*said, "", _("Sign in to review and decide:"), "", f"    {review_url(scope, asked.id)}", ""])


def _told_of_many(scope: TenantScope, about: Sequence[Approval], told: str) -> str:
    """How many of what; the inbox shows them all, and what else waits there."""
    counted = Counter(action_of(each) or each.about.heading or _(_IN_WORDS[each.request.kind]) for each in about)
    lines = [f"    {count} x {what}" for what, count in counted.most_common(_MOST_NAMED)]
    if (more := len(counted) - _MOST_NAMED) > 0:
        lines.append(f"    {ngettext('and %(num)s more kind of request', 'and %(num)s more kinds of requests', more)}")
    at = console_url(scope, "/console/approvals")
    return "\n".join([f"{told}:", "", *lines, "", _("Sign in to review and decide:"), "", f"    {at}", ""])


def _alike(asked: Approval) -> object:
    """What decides who may decide it."""
    return asked.request.kind, tuple(asked.request.approvers), asked.askers, bool(asked.origin.execution_id)
