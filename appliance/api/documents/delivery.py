"""/api/v1/documents/{document_id}/publish, /unpublish, /publication"""

from typing import Annotated, Literal
from urllib.parse import quote

from pydantic import Field

from appliance.api.frame.routing import Body, Call, View, route
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock
from appliance.documents.sharing import NewPublication, Publication

Number = Annotated[int, Field(ge=1, le=2**31 - 1)]
RevisionChoice = Number | Literal["latest", "latest_approved"]
Cache = Annotated[int, Field(ge=0, le=31_536_000)] | Literal["immutable", "revalidate"]


class PublishDocument(Body):
    """`path` is on the CDN host; `cache: immutable` needs a numbered revision, other cache settings take any revision."""

    path: str
    revision: RevisionChoice = "latest"
    cache: Cache = "revalidate"


class PublicationView(View):
    """Where a document is public; `serves` is the revision delivered now, absent when no revision may be delivered."""

    document_id: str
    path: str
    url: str
    revision: RevisionChoice
    cache: Cache
    serves: int | None = None
    created_at: str
    created_by: str


def _view(call: Call, publication: Publication) -> PublicationView:
    url = f"{call.services.config.cdn_url(call.scope.tenant_id)}/{quote(publication.path)}"
    return PublicationView(
        document_id=publication.document_id, path=publication.path, url=url, revision=publication.revision, cache=publication.cache,
        serves=publication.serves, created_at=clock.rfc3339(publication.created_at), created_by=publication.created_by,
    )  # fmt: skip


@route(
    "POST", "/documents/{document_id}/publish", scope="documents.share", body=PublishDocument, returns=PublicationView,
    atomic=False,
)  # fmt: skip
def publish_document(call: Call, document_id: str) -> PublicationView:
    """Publish a document on the CDN host at one path.

    `revision` is a number, `latest` (default) or `latest_approved`; in a folder whose rule requires a review, only approved
    revisions are delivered. `cache` is `revalidate` (default), a number of seconds, or `immutable` for a numbered revision.
    A change takes effect within a second.
    """
    body: PublishDocument = call.body
    new = NewPublication(body.path, body.revision, body.cache)
    return _view(call, call.services.publications.publish(call.scope, document_id, new))


@route("GET", "/documents/{document_id}/publication", scope="documents.read", returns=PublicationView)
def get_publication(call: Call, document_id: str) -> PublicationView:
    """Show where a document is public."""
    return _view(call, call.services.publications.get_publication(call.scope, document_id))


@route("POST", "/documents/{document_id}/unpublish", scope="documents.share", returns=DeletedView)
def unpublish_document(call: Call, document_id: str) -> DeletedView:
    """Unpublish a document; copies that browsers may already cache are not recalled."""
    call.services.publications.unpublish(call.scope, document_id)
    return DeletedView(deleted=document_id)
