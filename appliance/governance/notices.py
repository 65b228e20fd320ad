"""Tells whoever may decide a request of it, by an e-mail with a link: deciding needs the console and a sign-in."""

from functools import partial
from typing import Any

from appliance.core import clock, db
from appliance.core.errors import ApplianceError, NotFound
from appliance.core.scope import TenantScope
from appliance.governance import approvals
from appliance.governance.action_approvals import is_over
from appliance.governance.approvals import Approval
from appliance.governance.deciders import find_deciders
from appliance.governance.executor import GovernedExecutor
from appliance.governance.links import review_url
from appliance.governance.models import ApprovalRow
from appliance.governance.requests import ActionRequest
from appliance.integrations.service import Integrations
from appliance.monitor.logs import Line, write_lines
from appliance.tenants import service as tenants
from appliance.tenants.email_addresses import as_email

MOST_READERS = 50
SECONDS = 30.0
_KINDS = {"approval": "approval", "input": "answer", "choice": "choice"}


class Notices:
    """Sends by the integration of this name, in every tenant that has one; a letter to each person, once per request.

    The letters are queued as calls of the integration: what becomes of each is in its record, and a restart loses none.
    """

    def __init__(self, executor: GovernedExecutor, integrations: Integrations, integration: str) -> None:
        self._executor = executor
        self._integrations = integrations
        self._integration = integration

    def send_due(self) -> int:
        """Queue the letters of requests that nobody was told of yet, the oldest first; answers how many letters."""
        if not self._integration:
            return 0
        found = db.rows("SELECT tenant_id, id FROM approval WHERE status = 'pending' AND notified_at IS NULL ORDER BY id LIMIT 100")
        return sum(self._tell(tenants.system_scope(tenant_id), approval_id) for tenant_id, approval_id in found)

    def _tell(self, scope: TenantScope, approval_id: str) -> int:
        """A letter that was queued before is not queued again: its key says so, should we be stopped before the note."""
        sent = 0
        try:
            asked = approvals.get_approval(scope, approval_id)
            self._integrations.get_integration(scope, self._integration)
            sent = 0 if is_over(asked) else self._write(scope, asked)
        except NotFound:  # it is gone, or the tenant has no such integration and wants no letters
            pass
        told = ApprovalRow.id == approval_id
        db.write(lambda: scope.update(ApprovalRow, notified_at=clock.now_ms()).where(told).execute())
        return sent

    def _write(self, scope: TenantScope, asked: Approval) -> int:
        deciders = find_deciders(scope, asked.request, asked.askers)
        readers = [(each.user_id, email) for each in deciders if (email := as_email(each.login))][:MOST_READERS]
        sent = 0
        for user_id, email in readers:
            key = f"approval/{asked.id}/{user_id}"
            request = ActionRequest(
                self._integration, "send", letter(scope, asked, email), idempotency_key=key, seconds=SECONDS
            )
            try:
                self._executor.enqueue(scope, request)
                sent += 1
            except ApplianceError as error:
                self._note_failure(scope, asked, error.message)
        return sent

    def _note_failure(self, scope: TenantScope, asked: Approval, message: str) -> None:
        told = f"a letter about the request {asked.id} could not be sent by {self._integration}: {message}"
        fields = {"approval_id": asked.id, "integration": self._integration}
        execution = asked.origin.execution_id or None
        line = Line(clock.now_ms(), "error", "approval", told, fields, execution_id=execution, step=asked.origin.step or None)
        db.write(partial(write_lines, scope, [line]))


def letter(scope: TenantScope, asked: Approval, email: str) -> dict[str, Any]:
    """The e-mail.  What the request is about is read where it is decided; the asker's words are marked as theirs."""
    about, request = asked.about, asked.request
    what, tenant = _KINDS[request.kind], tenants.get_tenant(scope.tenant_id).name
    ends = f"It can be decided until {clock.rfc3339(request.expires_at)}.\n" if request.expires_at is not None else ""
    more = f"{about.needed} different people must agree.\n" if about.needed > 1 else ""
    doing = f"The action: {about.heading}\n" if about.heading else ""
    title = "" if request.title == about.heading else f"In the words of the one who asks: \"{request.title}\"\n"
    text = (
        f"Somebody asks for your {what} in {tenant}.\n\n{doing}{title}{more}{ends}\n"
        f"Read it and decide, signed in, at\n\n    {review_url(scope, asked.id)}\n\n"
        "Nothing is decided by answering this e-mail.\n"
    )
    return {"to": [email], "subject": f"Your {what} is asked for in {tenant}", "text": text}
