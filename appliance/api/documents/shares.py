"""/api/v1/documents/{document_id}/shares, /downloads"""

from typing import Annotated, Any, Literal

from pydantic import Field

from appliance.api.frame.routing import Answer, Body, Call, ListQuery, View, route
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock
from appliance.core.errors import ValidationFailed
from appliance.core.sentences import Sentence
from appliance.documents.sharing import AudienceChange, Download, NewShare, Share, downloads

from .delivery import WantedRevision


class CreateAudience(Body):
    """`allow` are e-mail addresses and `*@domain`; the action `send` of `integration` brings them their codes."""

    integration: str
    allow: list[str]


class ChangeAudience(Body):
    """What is left out stays as it is."""

    integration: str = ""
    allow: list[str] = Field(default_factory=list)


class CreateShare(Body):
    """`expires_at` is at most 366 days ahead (default: 14 days); with an `audience` only those people may fetch."""

    revision: WantedRevision = "latest"
    expires_at: str | None = None
    password: str | None = None
    max_downloads: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    audience: CreateAudience | None = None
    note: str = ""


class UpdateShare(Body):
    """The audience from now on."""

    audience: ChangeAudience


class AudienceView(View):
    """Who may fetch, and the integration that sends their codes."""

    integration: str
    allow: list[str]


class ShareView(View):
    """A share without its link."""

    id: str
    document_id: str
    revision: WantedRevision
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
    """The share with its links, told once: `url` is a page for people, `file_url` the file itself."""

    url: str | None = None
    file_url: str | None = None


class DownloadView(View):
    """A download through a share, by the `person` who proved the address where it has an audience; without `share_id` the
    `count` deliveries of one minute from the public path."""

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
    found = share.audience
    return {
        "id": share.id, "document_id": share.document_id, "revision": share.revision, "state": share.state,
        "expires_at": clock.rfc3339(share.expires_at), "has_password": share.has_password,
        "max_downloads": share.max_downloads, "downloads": share.downloads, "note": share.note,
        "created_at": clock.rfc3339(share.created_at), "created_by": share.created_by,
        "revoked_at": clock.optional_rfc3339(share.revoked_at),
        "audience": AudienceView(integration=found.integration, allow=list(found.allow)) if found else None,
    }  # fmt: skip


def _sender(call: Call, slug: str) -> str:
    """An integration that can send e-mails; a mistake is told now, and not to those who wait for a code."""
    if "send" not in (call.services.integrations.find_actions(call.scope, slug) or ()):
        told = Sentence(
            "there is no integration %(slug)s with an action send; make one of the connector email", slug=repr(slug[:80])
        )
        raise ValidationFailed(told, pointer="/audience/integration")
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
    """List the shares of a document, newest first, ended ones too."""
    return call.services.shares.list_shares(call.scope, document_id, call.query.page).map(_view)


@route(
    "POST", "/documents/{document_id}/shares", scope="documents.share", body=CreateShare, returns=NewShareView, status=201,
    atomic=False,
)  # fmt: skip
def create_share(call: Call, document_id: str) -> Answer:
    """Make a link to a document.

    It leads to `revision` (a number, `latest` or `latest_approved`), ends at `expires_at`, may ask for a `password`, let in
    an `audience` alone, who prove their e-mail addresses by a code, and serve `max_downloads`. `url` and `file_url` are told
    this once.
    """
    body: CreateShare = call.body
    audience = None
    if body.audience is not None:
        call.services.documents.get_document(call.scope, document_id)  # what is not there is told before a mistake in the body
        audience = AudienceChange(_sender(call, body.audience.integration), body.audience.allow)
    expires_at = None if body.expires_at is None else clock.parse_rfc3339(body.expires_at, pointer="/expires_at")
    new = NewShare(body.revision, expires_at, body.password, body.max_downloads, body.note, audience)
    share, token = call.services.shares.create_share(call.scope, document_id, new)
    url = f"{call.services.config.cdn_url(call.scope.tenant_id)}/s/{token}"
    told = NewShareView(**_members(share), url=url, file_url=f"{url}/file")
    headers = {"Location": f"/api/v1/documents/{document_id}/shares/{share.id}"}
    return Answer(told, 201, headers, replay=NewShareView(**_members(share)))


@route("GET", "/documents/{document_id}/shares/{share_id}", scope="documents.read", returns=ShareView)
def get_share(call: Call, document_id: str, share_id: str) -> ShareView:
    """Show a share."""
    return _view(call.services.shares.get_share(call.scope, document_id, share_id))


@route(
    "PATCH", "/documents/{document_id}/shares/{share_id}", scope="documents.share", body=UpdateShare, returns=ShareView
)  # fmt: skip
def update_share(call: Call, document_id: str, share_id: str) -> ShareView:
    """Change the audience of a share: whoever has come in proves the address again, whoever is no longer named is out."""
    call.services.shares.get_share(call.scope, document_id, share_id)
    given: ChangeAudience = call.body.audience
    integration = _sender(call, given.integration) if "integration" in given.model_fields_set else None
    change = AudienceChange(integration, given.allow if "allow" in given.model_fields_set else None)
    return _view(call.services.shares.change_audience(call.scope, document_id, share_id, change))


@route("DELETE", "/documents/{document_id}/shares/{share_id}", scope="documents.share", returns=DeletedView)
def revoke_share(call: Call, document_id: str, share_id: str) -> DeletedView:
    """End a share at once; it stays in the list."""
    call.services.shares.revoke_share(call.scope, document_id, share_id)
    return DeletedView(deleted=share_id)


@route("GET", "/documents/{document_id}/downloads", scope="documents.read", query=ListQuery, returns=DownloadView, listed=True)
def list_downloads(call: Call, document_id: str) -> object:
    """List who has downloaded a document, newest first."""
    return downloads.list_downloads(call.scope, document_id, call.query.page).map(_download_view)


@route("GET", "/documents/{document_id}/downloads/export", scope="documents.read", media="text/csv")
def export_downloads(call: Call, document_id: str) -> Answer:
    """Export the downloads of a document as CSV, oldest first."""
    data = "".join(downloads.export_downloads(call.scope, document_id)).encode()
    return Answer(data, headers={"Content-Disposition": f'attachment; filename="downloads-{document_id}.csv"'})
