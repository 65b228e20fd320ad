"""Sends the links of invitations: by the tenant's e-mail integration, or handed to the one who invites."""

import logging
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlencode

from appliance.core import clock
from appliance.core.config import Config
from appliance.core.crypto import Sealer
from appliance.core.errors import ApplianceError, NotFound, ScopeMissing, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.core.texts import gettext as _
from appliance.core.texts import pgettext, speaking
from appliance.governance.approvals.writing import Writing
from appliance.governance.executor.requests import ActionRequest
from appliance.tenants import SEND_SECONDS, Invitation, InvitationSpec, invitations, people, preferences
from appliance.tenants import service as tenants
from appliance.tenants.sign_in import as_email

log = logging.getLogger(__name__)
PATH = "/invitation"


@dataclass(frozen=True)
class Invited:
    """A new invitation; `link` is empty when an e-mail brings it, and is shown this once otherwise."""

    invitation: Invitation
    link: str


class Invitations:
    """Makes invitations of every tenant and brings their links on the way."""

    def __init__(self, config: Config, sealer: Sealer, writing: Writing) -> None:
        self._config, self._sealer = config, sealer
        self._executor, self._integrations, self._languages = writing.executor, writing.integrations, writing.languages

    @property
    def are_offered(self) -> bool:
        """Whether this appliance lets owners invite."""
        return self._config.console.invitations == "on"

    def can_write(self, scope: TenantScope) -> bool:
        """Whether the tenant has the integration that letters go by."""
        slug = self._config.approvals.email_integration
        try:
            return bool(slug) and bool(self._integrations.get_integration(scope, slug))
        except NotFound:
            return False

    def invite(self, scope: TenantScope, spec: InvitationSpec, *, by_email: bool | None = None) -> Invited:
        """Invite somebody; `by_email` None sends a letter where that is possible and answers the link elsewhere.

        Errors as `invitations.invite`; ScopeMissing where the appliance's operator makes every account; ValidationFailed for a
        letter that cannot be sent, and for an administrator of the appliance who has no account yet.
        """
        if not self.are_offered:
            raise ScopeMissing("invitations are off here; whoever runs this appliance makes an account with `gos user add LOGIN`")
        invitations.refuse_reserved(people.check_login(spec.login), self._config.console.administrators)
        possible = bool(as_email(spec.login)) and self.can_write(scope)
        if by_email and not possible:
            told = "no letter can go there: the login must be an e-mail address, and the tenant needs the integration "
            told += f"{self._config.approvals.email_integration!r}" if self._config.approvals.email_integration else "for letters"
            raise ValidationFailed(Sentence("%(told)s; hand the link over yourself", told=told), pointer="/by_email")
        send = possible if by_email is None else by_email
        invitation, token = invitations.invite(scope, self._sealer, spec, "sending" if send else "link")
        link = f"{self._config.base_url}{PATH}?{urlencode({'token': token})}"
        if not send:
            return Invited(invitation, link)
        own = tenants.system_scope(scope.tenant_id)
        try:
            self._executor.submit(own, partial(self._send, own, invitation, link, token))
        except ApplianceError as error:
            invitations.note_sending(own, invitation.id, "failed", error.message)
        return Invited(invitations.get_invitation(scope, invitation.id), "")

    def accept(self, token: str, password: str) -> tuple[str, str]:
        """As `invitations.accept`, with the user's id; nobody becomes an administrator of the appliance by a link."""
        person, tenant_id = invitations.accept(self._sealer, token, password, self._config.console.administrators)
        return person.id, tenant_id

    def _send(self, scope: TenantScope, invitation: Invitation, link: str, token: str) -> None:
        with speaking(self._languages.choose(preferences.language_of(invitation.login))):
            given = letter(tenants.get_tenant(scope.tenant_id).name, invitation, link)
        slug = self._config.approvals.email_integration
        request = ActionRequest(
            slug, "send", given, idempotency_key=f"invitation/{invitation.id}", seconds=SEND_SECONDS, hidden=(token,)
        )  # fmt: skip
        try:
            self._executor.execute(scope, request)
        except ApplianceError as error:
            invitations.note_sending(scope, invitation.id, "failed", error.message)
        except Exception:
            log.exception("the letter of an invitation could not be sent")
            invitations.note_sending(scope, invitation.id, "failed", "something went wrong in the appliance; its log has the rest")
        else:
            invitations.note_sending(scope, invitation.id, "sent")


def letter(tenant: str, invitation: Invitation, link: str) -> dict[str, Any]:
    """The e-mail, in the language spoken now; it names no person, whose words nobody has checked."""
    text = "\n".join([
        _("You are invited to %(tenant)s as %(role)s.", tenant=tenant, role=pgettext("state", invitation.role)), "",
        _("Choose a password to get started:"), "", f"    {link}", "",
        _(
            "The link works once and expires at %(time)s. Anyone who has it can use it, so do not forward it.",
            time=clock.minute(invitation.expires_at),
        ),
        _("If you did not expect this invitation, ignore this email."), "",
    ])  # fmt: skip
    return {"to": [invitation.login], "subject": _("Your invitation to %(tenant)s", tenant=tenant), "text": text}
