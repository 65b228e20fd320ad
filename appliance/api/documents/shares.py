"""/api/v1/documents/{document_id}/shares and /downloads: public links and who used them."""

from typing import Annotated, Any, Literal

from pydantic import Field

from appliance.api.frame.routing import Answer, Body, Call, ListQuery, View, route
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock
from appliance.core.errors import ValidationFailed
from appliance.core.sentences import Sentence
from appliance.documents.sharing import AudienceChange, Download, NewShare, Share, downloads

from .delivery import RevisionChoice


class CreateAudience(Body):
    """`allow` lists e-mail addresses and `*@domain`; the action `send` of `integration` sends their one-time codes."""

    integration: str
    allow: list[str]


class ChangeAudience(Body):
    """Members that are left out stay unchanged."""

    integration: str = ""
    allow: list[str] = Field(default_factory=list)


class CreateShare(Body):
    """`expires_at` is at most 366 days ahead (default: 14 days); with an `audience`, only those people may download."""

    revision: RevisionChoice = "latest"
    expires_at: str | None = None
    password: str | None = None
    max_downloads: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    audience: CreateAudience | None = None
    note: str = ""


class UpdateShare(Body):
    """The new audience, in effect at once."""

    audience: ChangeAudience


class AudienceView(View):
    """Who may download, and the integration that sends their one-time codes."""

    integration: str
    allow: list[str]


class ShareView(View):
    """A share without its link."""

    id: str
    document_id: str
    revision: RevisionChoice
    state: Literal["active", "expired", "used_up", "revoked"]
    expires_at: str
    has_password: bool
    audience: AudienceView | None = None
    max_downloads: int | None = None
    downloads: int
    note: str
    created_at: str
    created_by: str
    revoked_at: str | None = None


class NewShareView(ShareView):
    """The share with its links, which are shown only once: `url` is a page for people, `file_url` the file itself."""

    url: str | None = None
    file_url: str | None = None


class DownloadView(View):
    """A download through a share; `person` is the verified e-mail address where the share has an audience.  Without `share_id`, it
    stands for the `count` deliveries from the public path within one minute."""

    id: str
    at: str
    share_id: str | None = None
    revision: int
    count: int
    bytes: int
    address: str
    agent: str
    outcome: str
    person: str | None = None


def _members(share: Share) -> dict[str, Any]:
    audience = share.audience
    return {
        "id": share.id, "document_id": share.document_id, "revision": share.revision, "state": share.state,
        "expires_at": clock.rfc3339(share.expires_at), "has_password": share.has_password,
        "max_downloads": share.max_downloads, "downloads": share.downloads, "note": share.note,
        "created_at": clock.rfc3339(share.created_at), "created_by": share.created_by,
        "revoked_at": clock.optional_rfc3339(share.revoked_at),
        "audience": AudienceView(integration=audience.integration, allow=list(audience.allow)) if audience else None,
    }  # fmt: skip


def _check_sender(call: Call, slug: str) -> str:
    """The slug, checked to be an integration that can send e-mails, so that a mistake shows now and not to whoever needs a code."""
    if "send" not in (call.services.integrations.find_actions(call.scope, slug) or ()):
        message = Sentence(
            "there is no integration %(slug)s with an action `send`; create one with the connector `email`", slug=repr(slug[:80])
        )
        raise ValidationFailed(message, pointer="/audience/integration")
    return slug


def _view(share: Share) -> ShareView:
    return ShareView(**_members(share))


def _download_view(download: Download) -> DownloadView:
    return DownloadView(
        id=download.id, at=clock.rfc3339(download.at), share_id=download.share_id, revision=download.revision,
        count=download.count, bytes=download.bytes, address=download.address, agent=download.agent, outcome=download.outcome,
        person=download.person or None,
    )  # fmt: skip


@route("GET", "/documents/{document_id}/shares", scope="documents.read", query=ListQuery, returns=ShareView, listed=True)
def list_shares(call: Call, document_id: str) -> object:
    """List the shares of a document, newest first, including ended ones."""
    return call.services.shares.list_shares(call.scope, document_id, call.query.page).map(_view)


@route(
    "POST", "/documents/{document_id}/shares", scope="documents.share", body=CreateShare, returns=NewShareView, status=201,
    atomic=False,
)  # fmt: skip
def create_share(call: Call, document_id: str) -> Answer:
    """Create a link to a document.

    It serves `revision` (a number, `latest` or `latest_approved`) and ends at `expires_at`. It may require a `password`, allow
    only an `audience` whose members verify their e-mail addresses with a one-time code, and end after `max_downloads`. `url`
    and `file_url` are shown only in this answer.
    """
    body: CreateShare = call.body
    audience = None
    if body.audience is not None:
        call.services.documents.get_document(call.scope, document_id)  # A missing document is reported before errors in the body.
        audience = AudienceChange(_check_sender(call, body.audience.integration), body.audience.allow)
    expires_at = None if body.expires_at is None else clock.parse_rfc3339(body.expires_at, pointer="/expires_at")
    new = NewShare(body.revision, expires_at, body.password, body.max_downloads, body.note, audience)
    share, token = call.services.shares.create_share(call.scope, document_id, new)
    url = f"{call.services.config.cdn_url(call.scope.tenant_id)}/s/{token}"
    view = NewShareView(**_members(share), url=url, file_url=f"{url}/file")
    headers = {"Location": f"/api/v1/documents/{document_id}/shares/{share.id}"}
    return Answer(view, 201, headers, replay=NewShareView(**_members(share)))


@route("GET", "/documents/{document_id}/shares/{share_id}", scope="documents.read", returns=ShareView)
def get_share(call: Call, document_id: str, share_id: str) -> ShareView:
    """Show a share."""
    return _view(call.services.shares.get_share(call.scope, document_id, share_id))


@route(
    "PATCH", "/documents/{document_id}/shares/{share_id}", scope="documents.share", body=UpdateShare, returns=ShareView
)  # fmt: skip
def update_share(call: Call, document_id: str, share_id: str) -> ShareView:
    """Change the audience of a share; everyone verifies their address again, and people no longer listed lose access."""
    call.services.shares.get_share(call.scope, document_id, share_id)
    audience: ChangeAudience = call.body.audience
    integration = _check_sender(call, audience.integration) if "integration" in audience.model_fields_set else None
    change = AudienceChange(integration, audience.allow if "allow" in audience.model_fields_set else None)
    return _view(call.services.shares.change_audience(call.scope, document_id, share_id, change))


@route("DELETE", "/documents/{document_id}/shares/{share_id}", scope="documents.share", returns=DeletedView)
def revoke_share(call: Call, document_id: str, share_id: str) -> DeletedView:
    """End a share at once; it stays in the list."""
    call.services.shares.revoke_share(call.scope, document_id, share_id)
    return DeletedView(deleted=share_id)


@route("GET", "/documents/{document_id}/downloads", scope="documents.read", query=ListQuery, returns=DownloadView, listed=True)
def list_downloads(call: Call, document_id: str) -> object:
    """List the downloads of a document, newest first."""
    return downloads.list_downloads(call.scope, document_id, call.query.page).map(_download_view)


@route("GET", "/documents/{document_id}/downloads/export", scope="documents.read", media="text/csv")
def export_downloads(call: Call, document_id: str) -> Answer:
    """Export the downloads of a document as CSV, oldest first."""
    data = "".join(downloads.export_downloads(call.scope, document_id)).encode()
    return Answer(data, headers={"Content-Disposition": f'attachment; filename="downloads-{document_id}.csv"'})
