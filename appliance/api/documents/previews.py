"""/api/v1/documents/{document_id}/preview: small pictures of images and PDF pages."""

from typing import Annotated, Literal

from pydantic import Field
from werkzeug.http import parse_etags

from appliance.api.frame.contents import CACHE
from appliance.api.frame.routing import Answer, Call, route
from appliance.documents.contents import MEDIA_TYPE, MOST_PAGE, PreviewFailed, Quarantined

from .document_views import ContentQuery

LASTING = "private, max-age=86400, immutable"


class PreviewQuery(ContentQuery):
    """Pages count from 1; images other than TIFF have one page.  `width` is in pixels; smaller images are not enlarged."""

    page: Annotated[int, Field(ge=1, le=MOST_PAGE, description="Which page of a PDF or TIFF, counted from 1.")] = 1
    width: Annotated[
        Literal["160", "320", "640", "1280"], Field(description="Width of the picture in pixels; a smaller original keeps its own.")
    ] = "320"


@route(
    "GET", "/documents/{document_id}/preview", scope="documents.read", query=PreviewQuery, media=MEDIA_TYPE, also={304: bytes},
    errors=(PreviewFailed, Quarantined),
)  # fmt: skip
def get_document_preview(call: Call, document_id: str) -> Answer:
    """Show a small picture of a document.

    An image (PNG, JPEG, WebP, GIF, TIFF, BMP) or a page of a PDF becomes a WebP, rendered on the first request. With `revision`
    the answer may be cached for a day; without it, revalidate with the ETag. 404 for other kinds of content, SVG and HTML
    included; 422 `preview_failed` with a `reason` when the content is broken, encrypted or too large.
    """
    query: PreviewQuery = call.query
    preview = call.services.documents.previews.get_preview(call.scope, document_id, query.page, int(query.width), query.revision)
    headers = {"ETag": f'"{preview.sha256}"', "Cache-Control": CACHE if query.revision is None else LASTING}
    if parse_etags(call.headers.get("if-none-match")).contains_weak(preview.sha256):
        return Answer(b"", 304, headers)
    headers |= {"Content-Type": MEDIA_TYPE, "Content-Security-Policy": "default-src 'none'; sandbox"}
    return Answer(preview.data, 200, headers)
