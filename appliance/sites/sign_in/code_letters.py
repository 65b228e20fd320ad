"""The e-mails that bring codes: asked for by whoever wants to get in, sent by an integration of the tenant."""

import logging
from dataclasses import dataclass
from functools import partial
from typing import Any

from appliance.core import clock
from appliance.core.catalogues import Languages
from appliance.core.database import db
from appliance.core.errors import ApplianceError
from appliance.core.texts import gettext as _
from appliance.core.texts import speaking
from appliance.governance.executor import ActionRequest, GovernedExecutor
from appliance.monitor import Line, write_lines
from appliance.tenants import service as tenants
from appliance.tenants.sign_in import Asked, Door, EmailCodes

log = logging.getLogger(__name__)

SEND_SECONDS = 30.0


@dataclass(frozen=True)
class Purpose:
    """What a code is for: the door, the host that it opens or the tenant who shares a file there, the integration that sends,
    and from which network address it is asked for and the languages that the browser wishes for."""

    door: Door
    integration: str
    wishes: str
    address: str
    sharer: str = ""


class CodeLetters:
    """Sends codes beside the answers, which come as soon for an address that gets none."""

    def __init__(self, codes: EmailCodes, executor: GovernedExecutor, languages: Languages) -> None:
        self._codes = codes
        self._executor = executor
        self._languages = languages

    def ask(self, purpose: Purpose, email: str, *, allowed: bool) -> str:
        """The id of a code that is on its way when the address is allowed; RateLimited."""
        made = self._codes.ask(purpose.door, email, purpose.address, allowed=allowed)
        try:
            # Without a code too: what is done here for an address that gets none takes as long.
            self._executor.submit(purpose.door.scope, partial(self._send, purpose, made, email))
        except ApplianceError as error:
            if made.code:
                self._note_failure(purpose, made, error.message)
        return made.id

    def _send(self, purpose: Purpose, made: Asked, email: str) -> None:
        if not made.code:
            return
        scope = tenants.system_scope(purpose.door.scope.tenant_id, purpose.door.name)
        with speaking(self._languages.choose("", purpose.wishes)):
            given = letter(email, made.code, purpose)
        request = ActionRequest(
            purpose.integration, "send", given,
            idempotency_key=f"visit/{made.id}", seconds=SEND_SECONDS, hidden=(made.code,),
        )  # fmt: skip
        try:
            self._executor.execute(scope, request)
            self._codes.note_sending(scope, made.id, "sent")
        except ApplianceError as error:
            self._note_failure(purpose, made, error.message)
        except Exception:
            log.exception("the e-mail with a code could not be sent")
            self._note_failure(purpose, made, "something went wrong in the appliance; its log has the rest")

    def _note_failure(self, purpose: Purpose, made: Asked, message: str) -> None:
        kind, _colon, name = purpose.door.name.partition(":")
        told = f"the {kind} {name} could not send the code of a sign-in by {purpose.integration}: {message}"
        line = Line(clock.now_ms(), "error", kind, told, {kind: name, "integration": purpose.integration})

        def note() -> None:
            self._codes.note_sending(purpose.door.scope, made.id, "failed")
            write_lines(purpose.door.scope, [line])

        db.write(note)


def letter(email: str, code: str, purpose: Purpose) -> dict[str, Any]:
    """The e-mail that brings a code, in the language spoken now."""
    host, sharer = purpose.door.host, purpose.sharer
    subject = _("Your code for %(host)s", host=host)
    if sharer:
        subject = _("Your code for the file that %(tenant)s shares with you on %(host)s", tenant=sharer, host=host)
    told = _("It is valid for ten minutes, in the browser that requested it. If you did not request it, ignore this email.")
    return {"to": [email], "subject": subject, "text": f"{subject}:\n\n    {code}\n\n{told}\n"}
