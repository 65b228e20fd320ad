"""/api/v1/documents/{document_id}/publish, /unpublish, /publication"""

from typing import Annotated, Literal
from urllib.parse import quote

from pydantic import Field

from appliance.api.frame.fields import CreatedAt, CreatedBy
from appliance.api.frame.routing import Body, Call, View, route
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock
from appliance.core.errors import AlreadyExists, ApiKeyLeaked, Conflict
from appliance.documents.sharing import NewPublication, Publication

from .document_views import DocumentId

Number = Annotated[int, Field(ge=1, le=2**31 - 1)]
RevisionChoice = Annotated[
    Number | Literal["latest", "latest_approved"],
    Field(description="Which content is delivered: a fixed number, always the `latest`, or the `latest_approved` by a review."),
]
Cache = Annotated[
    Annotated[int, Field(ge=0, le=31_536_000)] | Literal["immutable", "revalidate"],
    Field(
        description="How long browsers and proxies may keep the file: seconds up to a year, `immutable` (a year, for a numbered "
        "revision "
        "only), or `revalidate` (ask each time)."
    ),
]
PublicPath = Annotated[
    str,
    Field(description="Path on the CDN host without leading slash, such as `reports/2026/summary.pdf`, at most 500 characters."),
]


class PublishDocument(Body):
    """`path` is on the CDN host; `cache: immutable` needs a numbered revision, other cache settings take any revision."""

    path: PublicPath
    revision: RevisionChoice = "latest"
    cache: Cache = "revalidate"


class PublicationView(View):
    """Where a document is public; `serves` is the revision delivered now, absent when no revision may be delivered."""

    document_id: DocumentId
    path: PublicPath
    url: Annotated[str, Field(description="Complete address that anyone can open.")]
    revision: RevisionChoice
    cache: Cache
    serves: Annotated[
        int | None,
        Field(description="Number of the revision delivered now; absent while none may be, and the address answers 404."),
    ] = None
    created_at: CreatedAt
    created_by: CreatedBy


def _view(call: Call, publication: Publication) -> PublicationView:
    url = f"{call.services.config.cdn_url(call.scope.tenant_id)}/{quote(publication.path)}"
    return PublicationView(
        document_id=publication.document_id, path=publication.path, url=url, revision=publication.revision, cache=publication.cache,
        serves=publication.serves, created_at=clock.rfc3339(publication.created_at), created_by=publication.created_by,
    )  # fmt: skip


@route(
    "POST", "/documents/{document_id}/publish", scope="documents.share", body=PublishDocument, returns=PublicationView,
    atomic=False,
    errors=(AlreadyExists, ApiKeyLeaked, Conflict),
)  # fmt: skip
def publish_document(call: Call, document_id: str) -> PublicationView:
    """Publish a document on the CDN host.

    It has one path there; publishing it again replaces path and settings. `revision` is a number, `latest` (default) or
    `latest_approved`; in a folder whose rule requires a review, only approved revisions are delivered. `cache` is `revalidate`
    (default), a number of seconds, or `immutable` for a numbered revision. A change takes effect within a second.
    """
    body: PublishDocument = call.body
    new = NewPublication(body.path, body.revision, body.cache)
    return _view(call, call.services.documents.publications.publish(call.scope, document_id, new))


@route("GET", "/documents/{document_id}/publication", scope="documents.read", returns=PublicationView)
def get_publication(call: Call, document_id: str) -> PublicationView:
    """Show where a document is public.

    The answer has the address and the number of the revision that is delivered now, if one may be.
    """
    return _view(call, call.services.documents.publications.get_publication(call.scope, document_id))


@route("POST", "/documents/{document_id}/unpublish", scope="documents.share", returns=DeletedView)
def unpublish_document(call: Call, document_id: str) -> DeletedView:
    """Unpublish a document.

    Copies that browsers may already cache are not recalled. A document that is not public stays as it is.
    """
    call.services.documents.publications.unpublish(call.scope, document_id)
    return DeletedView(deleted=document_id)
