"""/api/v1/documents"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from appliance.api.frame.contents import CACHE, answer_content
from appliance.api.frame.routing import Acts, Answer, Body, Call, Json, ListQuery, Query, Upload, View, route
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock
from appliance.core.database.full_text import search_words
from appliance.core.errors import ValidationFailed, VersionConflict
from appliance.core.pages import DEFAULT_LIMIT, PageRequest
from appliance.core.sentences import Sentence
from appliance.documents import Changes, Document, NewDocument, Revision, Wanted, clean_name, read_metadata
from appliance.documents.contents import texts

MediaType = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9!#$&^_.+-]{1,100}/[A-Za-z0-9!#$&^_.+*-]{1,100}$")]
FILE = Json("file", "The file itself, or a form with the field `file`.")


class DocumentView(View):
    """A document; `size`, `sha256` and `media_type` are of its newest `revision`."""

    id: str
    name: str
    folder: str
    tags: list[str]
    media_type: str
    size: int
    sha256: str
    revision: int
    version: int
    created_at: str
    created_by: str
    updated_at: str
    metadata: dict[str, Any]
    review: Literal["none", "pending", "approved", "rejected"]
    approved_revision: int | None = None
    text_state: Literal["none", "pending", "ready", "failed"]
    snippet: str | None = None


class FolderView(View):
    """A folder; `documents` are in it, `total` in it and below."""

    path: str
    documents: int
    total: int


class MovedView(View):
    moved: int


class RevisionView(View):
    """One content a document has had."""

    number: int
    media_type: str
    size: int
    sha256: str
    comment: str
    created_at: str
    created_by: str


class DocumentListQuery(ListQuery):
    """`name` is a part of it, `folder` exactly the folder, `under` the folder and all below it, `media_type` like `image/png` or
    `image/*`; `metadata` is a JSON object whose members the document's metadata has: `{"customer": "ACME"}`; `search` are words
    that its text has, or a part of its name."""

    name: str | None = None
    tag: str | None = None
    folder: str | None = None
    under: str | None = None
    media_type: MediaType | None = None
    metadata: str | None = None
    search: Annotated[str, StringConstraints(max_length=500)] | None = None


class FolderListQuery(Query):
    """The folders below `under`; all when it is not given."""

    under: str = ""
    limit: int = DEFAULT_LIMIT
    cursor: str | None = None
    count: Literal["exact"] | None = None


class UploadQuery(Query):
    """What the document is called; `tags` has commas between, `metadata` is a JSON object.  A form may give the same as its
    fields."""

    name: str | None = None
    folder: str | None = None
    tags: str | None = None
    media_type: MediaType | None = None
    metadata: str | None = None


class RevisionQuery(Query):
    comment: str | None = None
    media_type: MediaType | None = None


class ContentQuery(Query):
    revision: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None


class RevisionListQuery(Query):
    limit: int = DEFAULT_LIMIT
    cursor: str | None = None


class ChangeDocument(Body):
    """RFC 7396 merge, also of `metadata`, in which null takes a member away; `tags` is the whole new list."""

    name: str | None = None
    folder: str | None = None
    tags: list[str] | None = None
    media_type: MediaType | None = None
    metadata: dict[str, Any] | None = None


class MoveFolder(Body):
    """From one path to another: `{"from": "inbox/2026", "to": "archive/2026"}`."""

    source: Annotated[str, Field(alias="from")]
    target: Annotated[str, Field(alias="to")]


def document_view(document: Document, snippet: str | None = None) -> DocumentView:
    return DocumentView(
        id=document.id, name=document.name, folder=document.folder, tags=list(document.tags), media_type=document.media_type,
        size=document.size, sha256=document.sha256, revision=document.revision, version=document.version,
        created_at=clock.rfc3339(document.created_at), created_by=document.created_by,
        updated_at=clock.rfc3339(document.updated_at), metadata=dict(document.metadata),
        review=document.review, approved_revision=document.approved_revision, text_state=document.text_state, snippet=snippet,
    )  # fmt: skip


def revision_view(revision: Revision) -> RevisionView:
    return RevisionView(
        number=revision.number, media_type=revision.media_type, size=revision.size, sha256=revision.sha256,
        comment=revision.comment, created_at=clock.rfc3339(revision.created_at), created_by=revision.created_by,
    )  # fmt: skip


def shown(document: Document, status: int | None = None) -> Answer:
    headers = {"Location": f"/api/v1/documents/{document.id}"} if status == 201 else {}
    return Answer(document_view(document), status, headers, etag=str(document.version))


def wanted_version(call: Call) -> int | None:
    """The version in If-Match; an ETag that cannot be ours matches nothing."""
    if call.if_match is None:
        return None
    if not call.if_match.isascii() or not call.if_match.isdigit() or len(call.if_match) > 9:
        raise VersionConflict(
            Sentence("the ETag %(if_match)s is not current; read again and repeat the change", if_match=repr(call.if_match[:40]))
        )
    return int(call.if_match)


def said(call: Call, *names: str) -> dict[str, str]:
    """What the query and the form's fields say; ValidationFailed for what is unknown or said twice."""
    upload: Upload = call.body
    query = {name: value for name, value in call.query.model_dump().items() if value is not None}
    for name in upload.fields:
        if name not in names:
            raise ValidationFailed(
                Sentence("a form may have %(names)s beside its file, not %(name)s", names=", ".join(names), name=repr(name[:60])),
                pointer=f"/{name[:60]}",
            )
        if name in query:
            raise ValidationFailed(
                Sentence("%(name)s is in the query and in the form; give it once", name=name), pointer=f"/{name}"
            )
        if "\0" in upload.fields[name]:
            raise ValidationFailed(Sentence("%(name)s holds a NUL character, which no text may", name=name), pointer=f"/{name}")
    found = query | dict(upload.fields)
    if upload.media_type and "\0" not in upload.media_type:
        found.setdefault("media_type", upload.media_type)
    return found


@route(
    "GET", "/documents", scope="documents.read", query=DocumentListQuery, returns=DocumentView, listed=True,
    acts=Acts("search_documents"),
)  # fmt: skip
def list_documents(call: Call) -> object:
    """List documents: filter by name, tag, folder, media type and metadata; newest first unless sorted.

    `search` finds documents whose text has a word that begins so, for each of its words, or whose name holds it; `snippet` is
    HTML, escaped, with the found words in `<mark>`.
    """
    query: DocumentListQuery = call.query
    metadata = read_metadata(query.metadata) if query.metadata is not None else {}
    wanted = Wanted(query.name, query.tag, query.folder, query.media_type, metadata, query.search, query.under)
    page = call.services.documents.list_documents(call.scope, wanted, query.page)
    found: Mapping[str, str] = {}
    if query.search is not None:
        found = texts.snippets(call.scope, [each.sha256 for each in page.items], search_words(query.search))
    return page.map(lambda each: document_view(each, found.get(each.sha256)))


@route("POST", "/documents", scope="documents.write", body=FILE, query=UploadQuery, returns=DocumentView, status=201)
def create_document(call: Call) -> Answer:
    """Upload a document.

    Send the file as the body with `?name=`, or a form (`multipart/form-data`) whose field `file` holds it; `name`, `folder`,
    `tags` (commas between), `media_type` and `metadata` (JSON) are parameters of the query or fields of the form. The media
    type is what the content shows; a name or a given type only chooses among kinds of text and of office files.
    """
    words = said(call, "name", "folder", "tags", "media_type", "metadata")
    upload: Upload = call.body
    name = words.get("name") or (clean_name(upload.filename) if upload.filename else None)
    if name is None:
        raise ValidationFailed("name the document with ?name=, or send a form whose file has a name", pointer="/name")
    tags = tuple(tag.strip() for tag in words.get("tags", "").split(",") if tag.strip())
    metadata = read_metadata(words["metadata"]) if "metadata" in words else {}
    new = NewDocument(name, words.get("media_type"), words.get("folder", ""), tags, metadata)
    return shown(call.services.documents.create_document(call.scope, new, upload.content), 201)


@route("GET", "/documents/folders", scope="documents.read", query=FolderListQuery, returns=FolderView, listed=True)
def list_folders(call: Call) -> object:
    """List the folders that hold documents, with how many are in each, by path."""
    query: FolderListQuery = call.query
    page = PageRequest(query.limit, query.cursor, count=query.count == "exact")
    found = call.services.documents.list_folders(call.scope, query.under, page)
    return found.map(lambda folder: FolderView(path=folder.path, documents=folder.documents, total=folder.total))


@route("POST", "/documents/folders/move", scope="documents.write", body=MoveFolder, returns=MovedView)
def move_folder(call: Call) -> MovedView:
    """Move a folder with all that is in it, at once or not at all; into a folder that is there it is merged."""
    body: MoveFolder = call.body
    return MovedView(moved=call.services.documents.move_folder(call.scope, body.source, body.target))


@route("GET", "/documents/{document_id}", scope="documents.read", returns=DocumentView, acts=Acts("read_document"))
def get_document(call: Call, document_id: str) -> Answer:
    """Show a document."""
    return shown(call.services.documents.get_document(call.scope, document_id))


@route("PATCH", "/documents/{document_id}", scope="documents.write", body=ChangeDocument, returns=DocumentView)
def change_document(call: Call, document_id: str) -> Answer:
    """Rename, move, tag or describe a document; its content stays. Takes If-Match."""
    body: ChangeDocument = call.body
    tags = None if body.tags is None else tuple(body.tags)
    changes = Changes(body.name, body.folder, tags, body.media_type, body.metadata)
    version = wanted_version(call)
    return shown(call.services.documents.update_document(call.scope, document_id, changes, if_version=version))


@route("DELETE", "/documents/{document_id}", scope="documents.write", returns=DeletedView)
def delete_document(call: Call, document_id: str) -> DeletedView:
    """Delete a document with all its revisions. Takes If-Match."""
    call.services.documents.delete_document(call.scope, document_id, if_version=wanted_version(call))
    return DeletedView(deleted=document_id)


@route(
    "GET", "/documents/{document_id}/content", scope="documents.read", query=ContentQuery, media="*/*",
    also={206: bytes, 304: bytes},
    acts=Acts("read_document"),
)  # fmt: skip
def download_document(call: Call, document_id: str) -> Answer:
    """Download a document's content, the newest unless `revision` says otherwise.

    Takes `Range`, `If-Range`, `If-None-Match`, `If-Modified-Since`. The ETag is the content's sha256. It is
    delivered as an attachment that no browser runs.
    """
    content = call.services.documents.open_content(call.scope, document_id, call.query.revision)
    return answer_content(content, call.headers)


@route(
    "GET", "/documents/{document_id}/text", scope="documents.read", query=ContentQuery, media="*/*", also={202: bytes},
    acts=Acts("read_document"),
)  # fmt: skip
def get_document_text(call: Call, document_id: str) -> Answer:
    """Show the text of a document's content, as it was extracted or recognised, in UTF-8.

    202 while it is being read, with `Retry-After`; 404 when the content has no text; 422 `text_failed` with a `reason` for what is
    encrypted, broken or too large to be read.
    """
    text = call.services.documents.open_text(call.scope, document_id, call.query.revision)
    headers = {
        "Cache-Control": CACHE, "Content-Security-Policy": "default-src 'none'; sandbox",
        "Content-Type": "text/plain; charset=utf-8",
    }  # fmt: skip
    if text.pieces is None:
        texts.refuse_missing(text)
        return Answer(b"", 202, {**headers, "Retry-After": "2"})
    return Answer(b"".join(text.pieces), 200, headers)


@route(
    "GET",
    "/documents/{document_id}/revisions",
    scope="documents.read",
    query=RevisionListQuery,
    returns=RevisionView,
    listed=True,
    acts=Acts("read_document"),
)
def list_revisions(call: Call, document_id: str) -> object:
    """List the contents a document has had, newest first."""
    page = PageRequest(call.query.limit, call.query.cursor)
    return call.services.documents.list_revisions(call.scope, document_id, page).map(revision_view)


@route(
    "POST", "/documents/{document_id}/revisions", scope="documents.write", body=FILE, query=RevisionQuery, returns=DocumentView,
    status=201,
)  # fmt: skip
def add_revision(call: Call, document_id: str) -> Answer:
    """Upload a new content of a document, as the body or as the field `file` of a form; equal to the newest it changes nothing.

    Takes If-Match.
    """
    words = said(call, "comment", "media_type")
    document = call.services.documents.add_revision(
        call.scope, document_id, call.body.content, comment=words.get("comment", ""), media_type=words.get("media_type"),
        if_version=wanted_version(call),
    )  # fmt: skip
    return shown(document, 201)
