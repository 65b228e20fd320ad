"""Sends one-time codes for signing in by e-mail, through an integration of the tenant."""

import logging
from dataclasses import dataclass
from functools import partial
from typing import Any

from appliance.core import clock
from appliance.core.catalogues import Languages
from appliance.core.database import db
from appliance.core.errors import ApplianceError
from appliance.core.texts import gettext as _
from appliance.core.texts import use_language
from appliance.governance.executor import ActionRequest, GovernedExecutor
from appliance.monitor import Line, write_lines
from appliance.tenants import service as tenants
from appliance.tenants.sign_in import CodeTarget, EmailCodes, IssuedCode

log = logging.getLogger(__name__)

SEND_SECONDS = 30.0


@dataclass(frozen=True)
class Purpose:
    """What a code is for: the door it opens, the integration that sends it, the browser's preferred languages, the network
    address of the requester, and the tenant that shares a file, if it is for a share."""

    door: CodeTarget
    integration: str
    languages: str
    address: str
    sharer: str = ""


class CodeEmails:
    """Sends codes in the background, so that the response takes equally long for an address that gets none."""

    def __init__(self, codes: EmailCodes, executor: GovernedExecutor, languages: Languages) -> None:
        self._codes = codes
        self._executor = executor
        self._languages = languages

    def request(self, purpose: Purpose, email: str, *, allowed: bool) -> str:
        """Create a code, and send it if the address is allowed; returns its id. RateLimited."""
        issued = self._codes.issue(purpose.door, email, purpose.address, allowed=allowed)
        try:
            # Submitted without a code too, so that the timing does not reveal whether the address is allowed.
            self._executor.submit(purpose.door.scope, partial(self._send, purpose, issued, email))
        except ApplianceError as error:
            if issued.code:
                self._note_failure(purpose, issued, error.message)
        return issued.id

    def _send(self, purpose: Purpose, issued: IssuedCode, email: str) -> None:
        if not issued.code:
            return
        scope = tenants.system_scope(purpose.door.scope.tenant_id, purpose.door.name)
        with use_language(self._languages.choose("", purpose.languages)):
            email_fields = build_email(email, issued.code, purpose)
        request = ActionRequest(
            purpose.integration, "send", email_fields,
            idempotency_key=f"visit/{issued.id}", seconds=SEND_SECONDS, hidden=(issued.code,),
        )  # fmt: skip
        try:
            self._executor.execute(scope, request)
            self._codes.record_sending(scope, issued.id, "sent")
        except ApplianceError as error:
            self._note_failure(purpose, issued, error.message)
        except Exception:
            log.exception("the e-mail with a one-time code could not be sent")
            self._note_failure(purpose, issued, "an unexpected error; see the appliance log")

    def _note_failure(self, purpose: Purpose, issued: IssuedCode, message: str) -> None:
        kind, _colon, name = purpose.door.name.partition(":")
        text = f"the {kind} {name} could not send a sign-in code with {purpose.integration}: {message}"
        line = Line(clock.now_ms(), "error", kind, text, {kind: name, "integration": purpose.integration})

        def save() -> None:
            self._codes.record_sending(purpose.door.scope, issued.id, "failed")
            write_lines(purpose.door.scope, [line])

        db.write(save)


def build_email(email: str, code: str, purpose: Purpose) -> dict[str, Any]:
    """The e-mail with a code, in the current language."""
    host, sharer = purpose.door.host, purpose.sharer
    subject = _("Your code for %(host)s", host=host)
    if sharer:
        subject = _("Your code for the file that %(tenant)s shares with you on %(host)s", tenant=sharer, host=host)
    hint = _("It is valid for ten minutes, in the browser that requested it. If you did not request it, ignore this email.")
    return {"to": [email], "subject": subject, "text": f"{subject}:\n\n    {code}\n\n{hint}\n"}
