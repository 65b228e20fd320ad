"""/api/v1/uploads: resumable uploads, sent in parts that each continue where the last one ended."""

import asyncio
import logging
import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from appliance.api.frame.fields import CreatedAt
from appliance.api.frame.routing import Answer, Body, Call, Json, View, route
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock
from appliance.core.errors import ApplianceError, Conflict, InvalidRequest, NotFound, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.documents import LIFETIME_MS, NewDocument, NewUpload, Part, Upload, offset_header
from appliance.documents.contents import Infected, ScanFailed

from .document_views import DocumentId, Folder, MediaType, Metadata, Name, Tags

log = logging.getLogger(__name__)

Sha256 = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9a-f]{64}$"),
    Field(description="SHA-256 of the whole content, 64 lower-case hexadecimal digits; other content is refused at the end."),
]
_OFFSET = re.compile(r"[0-9]{1,18}", re.ASCII)


class OpenUpload(Body):
    """What will be uploaded: a new document (`name`, `folder`, `tags`, `media_type`, `metadata`), or the next revision of
    `document_id` (`media_type`, `comment`)."""

    size: Annotated[
        int,
        Field(ge=0, le=2**50, description="Length of the whole content in bytes, at most `limits.document_mb` of the appliance."),
    ]
    sha256: Sha256 | None = None
    name: Name | None = None
    folder: Folder | None = None
    tags: Tags | None = None
    metadata: Metadata | None = None
    document_id: Annotated[
        str,
        StringConstraints(max_length=80),
        Field(description="The document that gets a further revision; instead of `name`, `folder`, `tags` and `metadata`."),
    ] | None = None
    comment: Annotated[
        str | None, Field(description="What changed in the revision, at most 1,000 characters; only with `document_id`.")
    ] = None
    media_type: MediaType | None = None


class UploadView(View):
    """An upload; `offset` of `size` bytes have been received. `document_id` and `revision` name the finished document."""

    id: Annotated[str, Field(description="Identifies the upload; `upl_…`.")]
    name: Annotated[str, Field(description="File name of the document that is created or gets a revision.")]
    size: Annotated[int, Field(description="Length of the whole content in bytes, as announced.")]
    offset: Annotated[int, Field(description="Number of bytes received so far, where the next part begins.")]
    state: Annotated[
        Literal["open", "done", "refused"],
        Field(
            description="`open` takes further bytes, `done` has become a document, `refused` was infected, or not the content of "
            "the announced SHA-256."
        ),
    ]
    document_id: Annotated[
        DocumentId | None, Field(description="The finished document, or the one that gets a revision; `doc_…`. Absent before.")
    ] = None
    revision: Annotated[int | None, Field(description="Number of the revision that was created; absent until then.")] = None
    created_at: CreatedAt
    expires_at: Annotated[
        str, Field(description="When the upload is deleted unless continued: 24 hours after the last part, RFC 3339 in UTC.")
    ]


def upload_view(upload: Upload) -> UploadView:
    return UploadView(
        id=upload.id, name=upload.name, size=upload.size, offset=upload.received, state=upload.state,
        document_id=upload.document_id, revision=upload.revision, created_at=clock.rfc3339(upload.created_at),
        expires_at=clock.rfc3339(upload.expires_at),
    )  # fmt: skip


def _upload_answer(call: Call, upload: Upload, status: int | None = None) -> Answer:
    headers = {
        **offset_header(upload.received), "Upload-Complete": "?1" if upload.state == "done" else "?0",
        "Upload-Length": str(upload.size),
        "Upload-Limit": f"max-size={call.services.documents.uploads.most}, max-age={LIFETIME_MS // 1000}",
    }  # fmt: skip
    if status == 201:
        headers["Location"] = f"/api/v1/uploads/{upload.id}"
    return Answer(upload_view(upload), status, headers)


@route(
    "POST", "/uploads", scope="documents.write", body=OpenUpload, returns=UploadView, status=201,
    errors=(Conflict, NotFound),
)  # fmt: skip
def open_upload(call: Call) -> Answer:
    """Open a resumable upload.

    It becomes a new document, or the next revision of an existing one. Send the bytes with PATCH to the upload's address.
    Uploads follow the IETF draft Resumable Uploads for HTTP, with a length known from the beginning. An upload that is not
    continued for a day is deleted.
    """
    body: OpenUpload = call.body
    if (body.name is None) == (body.document_id is None):
        raise ValidationFailed("send either the `name` of a new document or the `document_id` of an existing one", pointer="/name")
    if body.document_id is not None:
        _refuse_document_members(body)
    elif body.comment is not None:
        raise ValidationFailed("a `comment` needs the `document_id` of an existing document", pointer="/comment")
    new_document = NewDocument(body.name or "", body.media_type, body.folder or "", tuple(body.tags or ()), body.metadata or {})
    new_upload = NewUpload(body.size, body.sha256, new_document, body.document_id, body.comment or "")
    return _upload_answer(call, call.services.documents.uploads.open_upload(call.scope, new_upload), 201)


def _refuse_document_members(body: OpenUpload) -> None:
    for name in ("folder", "tags", "metadata"):
        if getattr(body, name) is not None:
            raise ValidationFailed(
                Sentence("a revision has no `%(name)s` of its own; change the document's with PATCH", name=name), pointer=f"/{name}"
            )


@route("GET", "/uploads/{upload_id}", scope="documents.write", returns=UploadView)
def get_upload(call: Call, upload_id: str) -> Answer:
    """Show the progress of an upload.

    `offset` is where to continue; `document_id` is the document it became. HEAD returns the same in headers (`Upload-Offset`).
    """
    return _upload_answer(call, call.services.documents.uploads.get_upload(call.scope, upload_id))


@route("DELETE", "/uploads/{upload_id}", scope="documents.write", returns=DeletedView)
def delete_upload(call: Call, upload_id: str) -> DeletedView:
    """Abandon an upload.

    A document it has already created stays.
    """
    call.services.documents.uploads.delete_upload(call.scope, upload_id)
    return DeletedView(deleted=upload_id)


@route(
    "PATCH", "/uploads/{upload_id}", scope="documents.write", returns=UploadView,
    body=Json("stream", "The bytes that follow the offset."),
    errors=(Conflict, Infected, ScanFailed),
)  # fmt: skip
async def append_upload(call: Call, upload_id: str) -> Answer:
    """Send further bytes of an upload.

    They follow `Upload-Offset`; the last ones create the document or revision. After a broken connection, read the upload to
    find out where to continue. A wrong offset, and the slower of two concurrent senders, get 409 with the correct
    `Upload-Offset`.
    """
    uploads, threads, loop = call.services.documents.uploads, call.services.threads, asyncio.get_running_loop()
    offset = _offset(call.headers)
    part: Part = await loop.run_in_executor(threads, uploads.start_part, call.scope, upload_id, offset)
    try:
        async for piece in call.body:
            await loop.run_in_executor(threads, part.write, piece)
    except BaseException:  # The sender disconnected or sent too much; the bytes received before that are kept.
        threads.submit(_save_rest, part)
        raise
    return _upload_answer(call, await loop.run_in_executor(threads, part.finish))


def _save_rest(part: Part) -> None:
    try:
        part.flush()
    except ApplianceError as error:  # another request sends the same upload, or it was deleted meanwhile
        log.info("the received bytes of an interrupted upload were discarded: %s", error.message)
    except Exception:
        log.exception("storing the received bytes of an interrupted upload failed")


def _offset(headers: Mapping[str, str]) -> int:
    text = headers.get("upload-offset", "")
    if not _OFFSET.fullmatch(text):
        raise InvalidRequest(
            "the header Upload-Offset must say where these bytes begin; GET the upload to read its `offset`",
            pointer="/Upload-Offset",
        )
    return int(text)
