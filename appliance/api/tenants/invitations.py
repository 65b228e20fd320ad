"""/api/v1/invitations: invite people who have no account yet."""

from typing import Annotated

from pydantic import Field

from appliance.api.frame.fields import CreatedAt
from appliance.api.frame.routing import Answer, Body, Call, View, route
from appliance.core import clock
from appliance.core.errors import AlreadyExists, Conflict
from appliance.core.pages import Page
from appliance.tenants import Invitation, InvitationSpec, invitations

from .tenants import Approver, DeletedView, Login, NoQuery, Role, RoleName


class Invite(Body):
    login: Annotated[Login, Field(min_length=1, max_length=254)]
    role: Role
    approver: Approver = False
    days: Annotated[int, Field(ge=1, le=invitations.MAX_DAYS, description="How many days the link works.")] = 7
    by_email: Annotated[
        bool | None,
        Field(
            description="Whether the link is sent to `login` by e-mail instead of returned; by default if the tenant can send "
            "e-mails."
        ),
    ] = None


class InvitationView(View):
    """An invitation to a role; `link` is shown only once, if the invitation is not sent by e-mail."""

    id: Annotated[str, Field(description="Identifies the invitation; `inv_…`. It is not part of the link.")]
    login: Login
    role: RoleName
    approver: Approver
    state: Annotated[str, Field(description="`open` while the link works, `expired` for 30 days after that.")]
    sending: Annotated[
        str,
        Field(description="State of the e-mail: `sending`, `sent` or `failed`; `link` if there is none and you pass the link on."),
    ]
    problem: Annotated[str | None, Field(description="Why the e-mail could not be sent, as a sentence; else absent.")] = None
    invited_by: Annotated[str, Field(description="Who made the invitation: `user:…`, `key:…` or `system`.")]
    created_at: CreatedAt
    expires_at: Annotated[str, Field(description="When the link stops working, RFC 3339 in UTC.")]
    link: Annotated[
        str | None,
        Field(description="Address for the invited person; only in the answer that made it, and not if it was sent by e-mail."),
    ] = None


def invitation_view(row: Invitation, link: str = "") -> InvitationView:
    return InvitationView(
        id=row.id, login=row.login, role=row.role, approver=row.approver, state=row.state, sending=row.sending,
        problem=row.problem or None, invited_by=row.invited_by, created_at=clock.rfc3339(row.created_at),
        expires_at=clock.rfc3339(row.expires_at), link=link or None,
    )  # fmt: skip


@route("GET", "/invitations", scope="keys.read", returns=InvitationView, listed=True, query=NoQuery)
def list_invitations(call: Call) -> Page[InvitationView]:
    """List pending invitations.

    Those that have not been accepted; expired ones stay listed for 30 days. The list has no pages.
    """
    return Page([invitation_view(each) for each in invitations.list_invitations(call.scope)])


@route(
    "POST", "/invitations", scope="keys.write", body=Invite, returns=InvitationView, status=201, errors=(AlreadyExists, Conflict)
)  # fmt: skip
def make_invitation(call: Call) -> Answer:
    """Invite a person to this tenant.

    The person has no account yet. Whoever opens the link chooses a password and becomes a member. The link works once and
    replaces earlier ones for the same login. Without `by_email`, it is sent by e-mail if the tenant can send e-mails, and
    otherwise returned as `link`.
    """
    body: Invite = call.body
    spec = InvitationSpec(body.login, body.role, body.approver, body.days)
    sent = call.services.governance.invitations.invite(call.scope, spec, by_email=body.by_email)
    row = sent.invitation
    headers = {"Location": f"/api/v1/invitations/{row.id}"}
    return Answer(invitation_view(row, sent.link), headers=headers, replay=invitation_view(row))


@route("GET", "/invitations/{invitation_id}", scope="keys.read", returns=InvitationView)
def get_invitation(call: Call, invitation_id: str) -> InvitationView:
    """Show one invitation.

    Its state, and whether the e-mail was sent; the link is shown only when the invitation is made.
    """
    return invitation_view(invitations.get_invitation(call.scope, invitation_id))


@route("DELETE", "/invitations/{invitation_id}", scope="keys.write", returns=DeletedView)
def revoke_invitation(call: Call, invitation_id: str) -> DeletedView:
    """Revoke an invitation; its link stops working.

    People who have accepted theirs remain members.
    """
    return DeletedView(deleted=invitations.revoke_invitation(call.scope, invitation_id).id)
