"""/api/v1/documents/uploads: documents that are sent in parts, each continued where the last one ended."""

import asyncio
import logging
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from appliance.api.frame.routing import Answer, Body, Call, Json, View, route
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock
from appliance.core.errors import ApplianceError, InvalidRequest, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.documents import LIFETIME_MS, NewDocument, NewUpload, Part, Upload, offset_told

from .documents import MediaType

log = logging.getLogger(__name__)

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
_OFFSET = re.compile(r"[0-9]{1,18}", re.ASCII)


class OpenUpload(Body):
    """What is to be sent: a new document (`name`, `folder`, `tags`, `media_type`, `metadata`), or the next revision of
    `document_id` (`media_type`, `comment`)."""

    size: Annotated[int, Field(ge=0, le=2**50)]
    sha256: Sha256 | None = None
    name: str | None = None
    folder: str | None = None
    tags: list[str] | None = None
    metadata: dict[str, Any] | None = None
    document_id: Annotated[str, StringConstraints(max_length=80)] | None = None
    comment: str | None = None
    media_type: MediaType | None = None


class UploadView(View):
    """An upload; `offset` bytes of `size` have been acknowledged. `document_id` and `revision` say what it has become."""

    id: str
    name: str
    size: int
    offset: int
    state: Literal["open", "done", "refused"]
    document_id: str | None = None
    revision: int | None = None
    created_at: str
    expires_at: str


def upload_view(upload: Upload) -> UploadView:
    return UploadView(
        id=upload.id, name=upload.name, size=upload.size, offset=upload.received, state=upload.state,
        document_id=upload.document_id, revision=upload.revision, created_at=clock.rfc3339(upload.created_at),
        expires_at=clock.rfc3339(upload.expires_at),
    )  # fmt: skip


def _told(call: Call, upload: Upload, status: int | None = None) -> Answer:
    headers = {
        **offset_told(upload.received), "Upload-Complete": "?1" if upload.state == "done" else "?0",
        "Upload-Length": str(upload.size),
        "Upload-Limit": f"max-size={call.services.uploads.most}, max-age={LIFETIME_MS // 1000}",
    }  # fmt: skip
    if status == 201:
        headers["Location"] = f"/api/v1/documents/uploads/{upload.id}"
    return Answer(upload_view(upload), status, headers)


@route("POST", "/documents/uploads", scope="documents.write", body=OpenUpload, returns=UploadView, status=201)
def open_upload(call: Call) -> Answer:
    """Announce a document that is sent in parts, or its next revision.

    Send the bytes with PATCH to the upload's address. Its rules are those of the IETF draft Resumable Uploads for HTTP,
    with a length that is known from the beginning. An upload that nobody continues for a day is forgotten.
    """
    body: OpenUpload = call.body
    if (body.name is None) == (body.document_id is None):
        raise ValidationFailed("give the `name` of a new document, or the `document_id` of one that is there", pointer="/name")
    if body.document_id is not None:
        _refuse_both(body)
    elif body.comment is not None:
        raise ValidationFailed("a comment is about the revision of a document that is there", pointer="/comment")
    new = NewDocument(body.name or "", body.media_type, body.folder or "", tuple(body.tags or ()), body.metadata or {})
    wanted = NewUpload(body.size, body.sha256, new, body.document_id, body.comment or "")
    return _told(call, call.services.uploads.open_upload(call.scope, wanted), 201)


def _refuse_both(body: OpenUpload) -> None:
    for name in ("folder", "tags", "metadata"):
        if getattr(body, name) is not None:
            raise ValidationFailed(
                Sentence("a revision has no %(name)s of its own; change the document's with PATCH", name=name), pointer=f"/{name}"
            )


@route("GET", "/documents/uploads/{upload_id}", scope="documents.write", returns=UploadView)
def get_upload(call: Call, upload_id: str) -> Answer:
    """Show an upload: where it goes on, and what it has become. HEAD tells the same in headers (`Upload-Offset`)."""
    return _told(call, call.services.uploads.get_upload(call.scope, upload_id))


@route("DELETE", "/documents/uploads/{upload_id}", scope="documents.write", returns=DeletedView)
def delete_upload(call: Call, upload_id: str) -> DeletedView:
    """Give an upload up; a document that it has become stays."""
    call.services.uploads.delete_upload(call.scope, upload_id)
    return DeletedView(deleted=upload_id)


@route(
    "PATCH", "/documents/uploads/{upload_id}", scope="documents.write", returns=UploadView,
    body=Json("stream", "The bytes that follow the offset."),
)  # fmt: skip
async def append_upload(call: Call, upload_id: str) -> Answer:
    """Send bytes of an upload, those that follow `Upload-Offset`; the last of them make the document.

    A connection that breaks loses at most what was on its way: ask where to go on. A wrong offset, and the slower one of
    two senders, get 409 with the right `Upload-Offset`.
    """
    uploads, threads, loop = call.services.uploads, call.services.threads, asyncio.get_running_loop()
    offset = _offset(call.headers)
    part: Part = await loop.run_in_executor(threads, uploads.begin_part, call.scope, upload_id, offset)
    try:
        async for piece in call.body:
            await loop.run_in_executor(threads, part.write, piece)
    except BaseException:  # the sender has left, or sends what does not belong here: what came before is kept
        threads.submit(_keep_rest, part)
        raise
    return _told(call, await loop.run_in_executor(threads, part.finish))


def _keep_rest(part: Part) -> None:
    try:
        part.keep()
    except ApplianceError as error:  # somebody else sends the same upload, or it was deleted meanwhile
        log.info("the rest of a part was not kept: %s", error.message)
    except Exception:
        log.exception("the rest of a part could not be kept")


def _offset(headers: Mapping[str, str]) -> int:
    text = headers.get("upload-offset", "")
    if not _OFFSET.fullmatch(text):
        raise InvalidRequest("say in Upload-Offset where these bytes begin; GET the upload to hear it", pointer="/Upload-Offset")
    return int(text)
