"""/api/v1/documents/{document_id}/preview"""

from typing import Annotated, Literal

from pydantic import Field
from werkzeug.http import parse_etags

from appliance.api.frame.contents import CACHE
from appliance.api.frame.routing import Answer, Call, route
from appliance.documents.contents import MEDIA_TYPE, MOST_PAGE

from .documents import ContentQuery

LASTING = "private, max-age=86400, immutable"


class PreviewQuery(ContentQuery):
    """The first page is 1; pictures other than TIFF have one.  `width` is in pixels; nothing is enlarged."""

    page: Annotated[int, Field(ge=1, le=MOST_PAGE)] = 1
    width: Literal["160", "320", "640", "1280"] = "320"


@route(
    "GET", "/documents/{document_id}/preview", scope="documents.read", query=PreviewQuery, media=MEDIA_TYPE, also={304: bytes}
)  # fmt: skip
def get_document_preview(call: Call, document_id: str) -> Answer:
    """Show a picture (PNG, JPEG, WebP, GIF, TIFF, BMP) or a page of a PDF as a small WebP, made on the first request.

    With `revision` the answer may be kept and never asked for again, else it is asked for anew with its ETag. 404 for contents of
    other kinds, SVG and HTML among them; 422 `preview_failed` with a `reason` for what is broken, locked or too large.
    """
    query: PreviewQuery = call.query
    found = call.services.previews.get_preview(call.scope, document_id, query.page, int(query.width), query.revision)
    told = {"ETag": f'"{found.sha256}"', "Cache-Control": CACHE if query.revision is None else LASTING}
    if parse_etags(call.headers.get("if-none-match")).contains_weak(found.sha256):
        return Answer(b"", 304, told)
    told |= {"Content-Type": MEDIA_TYPE, "Content-Security-Policy": "default-src 'none'; sandbox"}
    return Answer(found.data, 200, told)
