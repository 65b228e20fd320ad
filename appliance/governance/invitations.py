"""Sends invitation links by the tenant's e-mail integration, or returns them to the person who invites."""

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
from appliance.core.texts import pgettext, use_language
from appliance.governance.approvals.email_dependencies import EmailDependencies
from appliance.governance.executor.requests import ActionRequest
from appliance.tenants import SEND_SECONDS, Invitation, InvitationSpec, invitations, people, preferences
from appliance.tenants import service as tenants
from appliance.tenants.sign_in import parse_email
from appliance.tenants.single_sign_on import require_local_accounts

log = logging.getLogger(__name__)
PATH = "/invitation"


@dataclass(frozen=True)
class InvitationDelivery:
    """A new invitation; `link` is empty if it was sent by e-mail, otherwise it is shown this once."""

    invitation: Invitation
    link: str


class Invitations:
    """Creates invitations for every tenant and delivers their links."""

    def __init__(self, config: Config, sealer: Sealer, email: EmailDependencies) -> None:
        self._config, self._sealer = config, sealer
        self._executor, self._integrations, self._languages = email.executor, email.integrations, email.languages

    @property
    def is_enabled(self) -> bool:
        """Whether owners may invite people on this appliance."""
        return self._config.console.invitations == "on" and self._config.sign_in.local_accounts

    def can_send_email(self, scope: TenantScope) -> bool:
        """Whether the tenant has the integration that sends e-mail."""
        slug = self._config.approvals.email_integration
        try:
            return bool(slug) and bool(self._integrations.get_integration(scope, slug))
        except NotFound:
            return False

    def invite(self, scope: TenantScope, spec: InvitationSpec, *, by_email: bool | None = None) -> InvitationDelivery:
        """Invite somebody; with `by_email=None`, send an e-mail where possible and return the link otherwise.

        Errors as `invitations.invite`; ScopeMissing if only the appliance's operator creates accounts; ValidationFailed if the
        e-mail cannot be sent, or for an appliance administrator who has no account yet.
        """
        if not self.is_enabled:
            raise ScopeMissing(
                "invitations are turned off; ask the operator of this appliance to create the account with `gos user add LOGIN`"
            )
        invitations.check_not_reserved(people.check_login(spec.login), self._config.console.administrators)
        can_email = bool(parse_email(spec.login)) and self.can_send_email(scope)
        if by_email and not can_email:
            raise ValidationFailed(
                Sentence(
                    "no e-mail can be sent: the login must be an e-mail address, and the tenant needs the integration "
                    "%(integration)s; pass the link on yourself",
                    integration=repr(self._config.approvals.email_integration),
                )
                if self._config.approvals.email_integration
                else "no e-mail can be sent: this appliance has no integration for e-mail; pass the link on yourself",
                pointer="/by_email",
            )
        send = can_email if by_email is None else by_email
        invitation, token = invitations.invite(scope, self._sealer, spec, "sending" if send else "link")
        link = f"{self._config.base_url}{PATH}?{urlencode({'token': token})}"
        if not send:
            return InvitationDelivery(invitation, link)
        own = tenants.system_scope(scope.tenant_id)
        try:
            self._executor.submit(own, partial(self._send, own, invitation, link, token))
        except ApplianceError as error:
            invitations.record_sending(own, invitation.id, "failed", error.message)
        return InvitationDelivery(invitations.get_invitation(scope, invitation.id), "")

    def accept(self, token: str, password: str) -> tuple[str, str]:
        """As `invitations.accept`, returning the user's id; a link cannot create an administrator of the appliance.

        LocalAccountsOff while people have no passwords.
        """
        require_local_accounts(self._config.sign_in)
        person, tenant_id = invitations.accept(self._sealer, token, password, self._config.console.administrators)
        return person.id, tenant_id

    def _send(self, scope: TenantScope, invitation: Invitation, link: str, token: str) -> None:
        with use_language(self._languages.choose(preferences.language_of(invitation.login))):
            fields = build_email(tenants.get_tenant(scope.tenant_id).name, invitation, link)
        slug = self._config.approvals.email_integration
        request = ActionRequest(
            slug, "send", fields, idempotency_key=f"invitation/{invitation.id}", seconds=SEND_SECONDS, hidden=(token,)
        )  # fmt: skip
        try:
            self._executor.execute(scope, request)
        except ApplianceError as error:
            invitations.record_sending(scope, invitation.id, "failed", error.message)
        except Exception:
            log.exception("the invitation e-mail could not be sent")
            invitations.record_sending(scope, invitation.id, "failed", "an internal error occurred; see the appliance's log")
        else:
            invitations.record_sending(scope, invitation.id, "sent")


def build_email(tenant: str, invitation: Invitation, link: str) -> dict[str, Any]:
    """The e-mail, in the current language; it quotes no person, because their words are unchecked."""
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
