"""/api/v1/documents/{document_id}/shares and /downloads: public links and who used them."""

from typing import Annotated, Any, Literal

from pydantic import Field

from appliance.api.frame.fields import CreatedAt, CreatedBy
from appliance.api.frame.routing import Answer, Body, Call, ListQuery, View, route
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock
from appliance.core.errors import ApiKeyLeaked, Conflict, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.documents.sharing import AudienceChange, Download, NewShare, Share, downloads

from .delivery import RevisionChoice
from .document_views import DocumentId

Sender = Annotated[str, Field(description="Slug of the integration whose action `send` delivers the one-time codes by e-mail.")]
AllowList = Annotated[
    list[str], Field(description="E-mail addresses, and `*@example.com` for everybody of a domain; 1 to 500 entries.")
]
Note = Annotated[str, Field(description="What the share is for, at most 1,000 characters; shown to members only.")]
MaxDownloads = Annotated[int, Field(description="How many downloads end the share; absent for any number.")]


class CreateAudience(Body):
    """`allow` lists e-mail addresses and `*@domain`; the action `send` of `integration` sends their one-time codes."""

    integration: Sender
    allow: AllowList


class ChangeAudience(Body):
    """Members that are left out stay unchanged."""

    integration: Sender = ""
    allow: AllowList = Field(default_factory=list)


class CreateShare(Body):
    """`expires_at` is at most 366 days ahead (default: 14 days); with an `audience`, only those people may download."""

    revision: RevisionChoice = "latest"
    expires_at: Annotated[
        str | None, Field(description="When the link ends: RFC 3339 time at most 366 days ahead; after 14 days if left out.")
    ] = None
    password: Annotated[
        str | None,
        Field(description="What visitors must enter before they can download, 8 to 200 characters; it cannot be read back."),
    ] = None
    max_downloads: Annotated[MaxDownloads, Field(ge=1, le=1_000_000)] | None = None
    audience: Annotated[
        CreateAudience | None, Field(description="The only people who may download; left out, everybody who has the link.")
    ] = None
    note: Note = ""


class UpdateShare(Body):
    """The new audience, in effect at once."""

    audience: Annotated[ChangeAudience, Field(description="What to change about who may download; members left out stay.")]


class AudienceView(View):
    """Who may download, and the integration that sends their one-time codes."""

    integration: Sender
    allow: AllowList


class ShareView(View):
    """A share without its link."""

    id: Annotated[str, Field(description="Identifies the share; `shr_…`. It is not part of the link.")]
    document_id: DocumentId
    revision: RevisionChoice
    state: Annotated[
        Literal["active", "expired", "used_up", "revoked"],
        Field(description="Whether the link works; if not: its time is over, `max_downloads` is reached, or a member ended it."),
    ]
    expires_at: Annotated[str, Field(description="When the link stops working by itself, RFC 3339 in UTC.")]
    has_password: Annotated[bool, Field(description="Whether visitors must enter a password.")]
    audience: Annotated[
        AudienceView | None, Field(description="The only people who may download; absent if everybody with the link may.")
    ] = None
    max_downloads: MaxDownloads | None = None
    downloads: Annotated[int, Field(description="Number of downloads so far that delivered at least the first byte.")]
    note: Note
    created_at: CreatedAt
    created_by: CreatedBy
    revoked_at: Annotated[
        str | None, Field(description="When a member ended the share, RFC 3339 in UTC; absent if nobody has.")
    ] = None


class NewShareView(ShareView):
    """The share with its links, which are shown only once: `url` is a page for people, `file_url` the file itself."""

    url: Annotated[
        str | None, Field(description="Link to a page for people; absent when an Idempotency-Key repeats an earlier answer.")
    ] = None
    file_url: Annotated[
        str | None, Field(description="Link straight to the file, for programs; absent when an earlier answer is repeated.")
    ] = None


class DownloadView(View):
    """A download through a share; `person` is the verified e-mail address where the share has an audience.  Without `share_id`, it
    stands for the `count` deliveries from the public path within one minute."""

    id: Annotated[str, Field(description="Identifies the entry of the download log; `dwl_…`, or `pub_…` for the public path.")]
    at: Annotated[str, Field(description="When the download began, RFC 3339 in UTC; for the public path, the minute it counts.")]
    share_id: Annotated[str | None, Field(description="The share that was used; absent for the public path.")] = None
    revision: Annotated[int, Field(description="Number of the revision that was delivered.")]
    count: Annotated[int, Field(description="How many deliveries the entry stands for; 1 for a share.")]
    bytes: Annotated[int, Field(description="Bytes sent in all, including continued downloads.")]
    address: Annotated[
        str,
        Field(
            description="Network of the visitor (/24 for IPv4, /48 for IPv6) instead of the full address; empty for the public "
            "path."
        ),
    ]
    agent: Annotated[
        str, Field(description="Family of the browser or program, such as `Firefox`, `curl` or `bot`; empty for the public path.")
    ]
    outcome: Annotated[
        str,
        Field(
            description="`started`, `complete`, `broken_off`, `failed` before the first byte, or why nothing was sent: "
            "`wrong_password`, "
            "`wrong_code`."
        ),
    ]
    person: Annotated[
        str | None, Field(description="E-mail address that the visitor verified; absent for a share without an audience.")
    ] = None


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
    """List the shares of a document.

    Newest first unless sorted, including ended ones.
    """
    return call.services.documents.shares.list_shares(call.scope, document_id, call.query.page).map(_view)


@route(
    "POST", "/documents/{document_id}/shares", scope="documents.share", body=CreateShare, returns=NewShareView, status=201,
    atomic=False,
    errors=(ApiKeyLeaked, Conflict),
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
        call.services.documents.files.get_document(call.scope, document_id)  # A missing document comes before errors in the body.
        audience = AudienceChange(_check_sender(call, body.audience.integration), body.audience.allow)
    expires_at = None if body.expires_at is None else clock.parse_rfc3339(body.expires_at, pointer="/expires_at")
    new = NewShare(body.revision, expires_at, body.password, body.max_downloads, body.note, audience)
    share, token = call.services.documents.shares.create_share(call.scope, document_id, new)
    url = f"{call.services.config.cdn_url(call.scope.tenant_id)}/s/{token}"
    view = NewShareView(**_members(share), url=url, file_url=f"{url}/file")
    headers = {"Location": f"/api/v1/documents/{document_id}/shares/{share.id}"}
    return Answer(view, 201, headers, replay=NewShareView(**_members(share)))


@route("GET", "/documents/{document_id}/shares/{share_id}", scope="documents.read", returns=ShareView)
def get_share(call: Call, document_id: str, share_id: str) -> ShareView:
    """Show a share.

    Its state, limits and number of downloads; the link is shown only when the share is made.
    """
    return _view(call.services.documents.shares.get_share(call.scope, document_id, share_id))


@route(
    "PATCH", "/documents/{document_id}/shares/{share_id}", scope="documents.share", body=UpdateShare, returns=ShareView
)  # fmt: skip
def update_share(call: Call, document_id: str, share_id: str) -> ShareView:
    """Change who may use a share.

    Everyone verifies their address again, and people no longer listed lose access, both at once.
    """
    call.services.documents.shares.get_share(call.scope, document_id, share_id)
    audience: ChangeAudience = call.body.audience
    integration = _check_sender(call, audience.integration) if "integration" in audience.model_fields_set else None
    change = AudienceChange(integration, audience.allow if "allow" in audience.model_fields_set else None)
    return _view(call.services.documents.shares.change_audience(call.scope, document_id, share_id, change))


@route("DELETE", "/documents/{document_id}/shares/{share_id}", scope="documents.share", returns=DeletedView)
def revoke_share(call: Call, document_id: str, share_id: str) -> DeletedView:
    """End a share at once.

    Its link stops working for everyone. The share stays in the list as `revoked`.
    """
    call.services.documents.shares.revoke_share(call.scope, document_id, share_id)
    return DeletedView(deleted=share_id)


@route("GET", "/documents/{document_id}/downloads", scope="documents.read", query=ListQuery, returns=DownloadView, listed=True)
def list_downloads(call: Call, document_id: str) -> object:
    """List the downloads of a document, newest first.

    Those through shares have one entry each; those from the public address are counted by the minute.
    """
    return downloads.list_downloads(call.scope, document_id, call.query.page).map(_download_view)


@route("GET", "/documents/{document_id}/downloads/export", scope="documents.read", media="text/csv")
def export_downloads(call: Call, document_id: str) -> Answer:
    """Export the downloads of a document as CSV.

    Oldest first, with a header line; at most 100,000 entries.
    """
    data = "".join(downloads.export_downloads(call.scope, document_id)).encode()
    return Answer(data, headers={"Content-Disposition": f'attachment; filename="downloads-{document_id}.csv"'})
