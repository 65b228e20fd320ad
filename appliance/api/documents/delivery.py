"""/api/v1/documents/{document_id}/publish, /unpublish, /publication"""

from typing import Annotated, Literal
from urllib.parse import quote

from pydantic import Field

from appliance.api.frame.routing import Body, Call, View, route
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock
from appliance.documents.sharing import NewPublication, Publication

Number = Annotated[int, Field(ge=1, le=2**31 - 1)]
WantedRevision = Number | Literal["latest", "latest_approved"]
Cache = Annotated[int, Field(ge=0, le=31_536_000)] | Literal["immutable", "revalidate"]


class PublishDocument(Body):
    """`path` on the CDN host; `immutable` takes the number of a revision, other caches any."""

    path: str
    revision: WantedRevision = "latest"
    cache: Cache = "revalidate"


class PublicationView(View):
    """Where a document is public; `serves` is the revision delivered now, absent when none may be."""

    document_id: str
    path: str
    url: str
    revision: WantedRevision
    cache: Cache
    serves: int | None = None
    created_at: str
    created_by: str


def _view(call: Call, found: Publication) -> PublicationView:
    url = f"{call.services.config.cdn_url(call.scope.tenant_id)}/{quote(found.path)}"
    return PublicationView(
        document_id=found.document_id, path=found.path, url=url, revision=found.revision, cache=found.cache,
        serves=found.serves, created_at=clock.rfc3339(found.created_at), created_by=found.created_by,
    )  # fmt: skip


@route(
    "POST", "/documents/{document_id}/publish", scope="documents.share", body=PublishDocument, returns=PublicationView,
    atomic=False,
)  # fmt: skip
def publish_document(call: Call, document_id: str) -> PublicationView:
    """Make a document public on the CDN host, at one path.

    `revision` is a number, `latest` (default) or `latest_approved`; in a folder whose rule demands a review only approved
    revisions are delivered. `cache` is `revalidate` (default), a number of seconds, or `immutable` for a numbered revision.
    A change is seen within a second.
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
    """Deliver a document in public no longer; what browsers were allowed to keep, they keep."""
    call.services.publications.unpublish(call.scope, document_id)
    return DeletedView(deleted=document_id)
