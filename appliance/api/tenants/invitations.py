"""/api/v1/invitations: invite people who have no account yet."""

from typing import Annotated, Literal

from pydantic import Field

from appliance.api.frame.routing import Answer, Body, Call, View, route
from appliance.core import clock
from appliance.core.pages import Page
from appliance.tenants import Invitation, InvitationSpec, invitations

from .tenants import DeletedView, NoQuery


class Invite(Body):
    login: Annotated[str, Field(min_length=1, max_length=254)]
    role: Literal["viewer", "operator", "builder", "owner"]
    approver: bool = False
    days: Annotated[int, Field(ge=1, le=invitations.MAX_DAYS)] = 7
    by_email: bool | None = None


class InvitationView(View):
    """An invitation to a role; `link` is shown only once, if the invitation is not sent by e-mail."""

    id: str
    login: str
    role: str
    approver: bool
    state: str
    sending: str
    problem: str | None = None
    invited_by: str
    created_at: str
    expires_at: str
    link: str | None = None


def invitation_view(row: Invitation, link: str = "") -> InvitationView:
    return InvitationView(
        id=row.id, login=row.login, role=row.role, approver=row.approver, state=row.state, sending=row.sending,
        problem=row.problem or None, invited_by=row.invited_by, created_at=clock.rfc3339(row.created_at),
        expires_at=clock.rfc3339(row.expires_at), link=link or None,
    )  # fmt: skip


@route("GET", "/invitations", scope="keys.read", returns=InvitationView, listed=True, query=NoQuery)
def list_invitations(call: Call) -> Page[InvitationView]:
    """List the invitations that have not been accepted yet."""
    return Page([invitation_view(each) for each in invitations.list_invitations(call.scope)])


@route("POST", "/invitations", scope="keys.write", body=Invite, returns=InvitationView, status=201)
def make_invitation(call: Call) -> Answer:
    """Invite a person who has no account yet to this tenant.

    Whoever opens the link chooses a password and becomes a member. The link works once and replaces earlier ones for the same
    login. Without `by_email`, it is sent by e-mail if the tenant can send e-mails, and otherwise returned as `link`.
    """
    body: Invite = call.body
    spec = InvitationSpec(body.login, body.role, body.approver, body.days)
    sent = call.services.invitations.invite(call.scope, spec, by_email=body.by_email)
    row = sent.invitation
    headers = {"Location": f"/api/v1/invitations/{row.id}"}
    return Answer(invitation_view(row, sent.link), headers=headers, replay=invitation_view(row))


@route("GET", "/invitations/{invitation_id}", scope="keys.read", returns=InvitationView)
def get_invitation(call: Call, invitation_id: str) -> InvitationView:
    """Show one invitation."""
    return invitation_view(invitations.get_invitation(call.scope, invitation_id))


@route("DELETE", "/invitations/{invitation_id}", scope="keys.write", returns=DeletedView)
def revoke_invitation(call: Call, invitation_id: str) -> DeletedView:
    """Revoke an invitation; its link stops working."""
    return DeletedView(deleted=invitations.revoke_invitation(call.scope, invitation_id).id)
