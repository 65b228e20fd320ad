"""Tells whoever may decide a request of it, by an e-mail with a link: deciding needs the console and a sign-in."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from appliance.core import clock, db
from appliance.core.errors import ApplianceError, IdempotencyMismatch, NotFound
from appliance.core.scope import TenantScope
from appliance.governance import approvals
from appliance.governance.action_approvals import is_over
from appliance.governance.approvals import Approval
from appliance.governance.deciders import find_deciders
from appliance.governance.executor import GovernedExecutor
from appliance.governance.links import console_url, review_url
from appliance.governance.models import ApprovalRow
from appliance.governance.requests import ActionRequest
from appliance.integrations.service import Integrations
from appliance.monitor.logs import Line, write_lines
from appliance.tenants import service as tenants
from appliance.tenants.email_addresses import as_email

MOST_READERS = 50
_MOST_AT_ONCE, _MOST_NAMED = 1_000, 20
_TOLD = "INSERT INTO approval_told (tenant_id, approval_id, user_id, at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
SECONDS = 30.0
_KINDS = {"approval": "approval", "input": "answer", "choice": "choice"}


@dataclass(frozen=True)
class Reader:
    """Somebody who may decide and can be written to."""

    user_id: str
    email: str


class Notices:
    """Sends by the integration of this name, in every tenant that has one; a letter to each person, once per request and one
    in `letter_seconds` at most: what was asked meanwhile is in the next.

    The letters are queued as calls of the integration: what becomes of each is in its record, and a restart loses none.
    """

    def __init__(self, executor: GovernedExecutor, integrations: Integrations, integration: str, letter_seconds: int = 0) -> None:
        self._executor = executor
        self._integrations = integrations
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
                found = [Reader(one.user_id, email) for one in deciders if (email := as_email(one.login))]
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
    """The e-mail.  What a request is about is read where it is decided; the asker's words are marked as theirs."""
    tenant = tenants.get_tenant(scope.tenant_id).name
    if len(about) == 1:
        subject, text = f"Your {_KINDS[about[0].request.kind]} is asked for in {tenant}", _told_of_one(scope, about[0], tenant)
    else:
        subject, text = f"{len(about)} requests wait for you in {tenant}", _told_of_many(scope, about, tenant)
    return {"to": [email], "subject": subject, "text": f"{text}\nNothing is decided by answering this e-mail.\n"}


def _told_of_one(scope: TenantScope, asked: Approval, tenant: str) -> str:
    about, request = asked.about, asked.request
    ends = f"It can be decided until {clock.rfc3339(request.expires_at)}.\n" if request.expires_at is not None else ""
    more = f"{about.needed} different people must agree.\n" if about.needed > 1 else ""
    doing = f"The action: {about.heading}\n" if about.heading else ""
    title = "" if request.title == about.heading else f'In the words of the one who asks: "{request.title}"\n'
    return (
        f"Somebody asks for your {_KINDS[request.kind]} in {tenant}.\n\n{doing}{title}{more}{ends}\n"
        f"Read it and decide, signed in, at\n\n    {review_url(scope, asked.id)}\n"
    )


def _told_of_many(scope: TenantScope, about: Sequence[Approval], tenant: str) -> str:
    """How many of what; the inbox shows them all, and what else waits there."""
    counted = Counter(each.about.heading or f"asked in words, for your {_KINDS[each.request.kind]}" for each in about)
    lines = [f"    {count} x {what}" for what, count in counted.most_common(_MOST_NAMED)]
    if len(counted) > _MOST_NAMED:
        lines.append(f"    and others of {len(counted) - _MOST_NAMED} more kinds")
    shown = "\n".join(lines)
    return (
        f"{len(about)} requests wait for you in {tenant}:\n\n{shown}\n\n"
        f"Read them and decide, signed in, at\n\n    {console_url(scope, '/console/approvals')}\n"
    )


def _alike(asked: Approval) -> object:
    """What decides who may decide it."""
    return asked.request.kind, tuple(asked.request.approvers), asked.askers, bool(asked.origin.execution_id)
