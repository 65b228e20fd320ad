"""/api/v1/documents: documents, their contents, revisions and folders."""

from collections.abc import Mapping

from appliance.api.frame.contents import CACHE, answer_content
from appliance.api.frame.routing import Acts, Answer, Call, Json, Upload, route
from appliance.api.tenants.tenants import DeletedView
from appliance.core.database.full_text import parse_search
from appliance.core.errors import Conflict, Gone, InvalidFilter, NotFound, RangeNotSatisfiable, ValidationFailed, VersionConflict
from appliance.core.pages import PageRequest
from appliance.core.sentences import Sentence
from appliance.documents import Document, DocumentFilter, DocumentKept, NewDocument, clean_name, read_metadata
from appliance.documents.contents import Infected, Quarantined, ScanFailed, TextFailed, texts

from .document_views import (
    ChangeDocument,
    ContentQuery,
    DocumentListQuery,
    DocumentView,
    DownloadQuery,
    FolderListQuery,
    FolderView,
    MovedView,
    MoveFolder,
    RevisionListQuery,
    RevisionQuery,
    RevisionView,
    UploadQuery,
    document_view,
    revision_view,
)

FILE = Json("file", "The file itself, or a form with the field `file`.")


def document_answer(document: Document, status: int | None = None) -> Answer:
    headers = {"Location": f"/api/v1/documents/{document.id}"} if status == 201 else {}
    return Answer(document_view(document), status, headers, etag=str(document.version))


def expected_version(call: Call) -> int | None:
    """The version in If-Match, or None without it; VersionConflict for an ETag that this appliance cannot have issued."""
    if call.if_match is None:
        return None
    if not call.if_match.isascii() or not call.if_match.isdigit() or len(call.if_match) > 9:
        raise VersionConflict(
            Sentence(
                "the ETag %(if_match)s is not current; read the resource again and repeat the change",
                if_match=repr(call.if_match[:40]),
            )
        )
    return int(call.if_match)


def merge_parameters(call: Call, *names: str) -> dict[str, str]:
    """Merge the query parameters and the form's fields; ValidationFailed for an unknown field or one that is sent twice."""
    upload: Upload = call.body
    query = {name: value for name, value in call.query.model_dump().items() if value is not None}
    for name in upload.fields:
        if name not in names:
            raise ValidationFailed(
                Sentence(
                    "the form field %(name)s is not known; beside the file, a form may have %(names)s",
                    names=", ".join(names), name=repr(name[:60]),
                ),
                pointer=f"/{name[:60]}",
            )
        if name in query:
            raise ValidationFailed(
                Sentence("`%(name)s` is in the query and in the form; send it once", name=name), pointer=f"/{name}"
            )
        if "\0" in upload.fields[name]:
            raise ValidationFailed(
                Sentence("`%(name)s` contains a NUL character, which is not allowed", name=name), pointer=f"/{name}"
            )
    parameters = query | dict(upload.fields)
    if upload.media_type and "\0" not in upload.media_type:
        parameters.setdefault("media_type", upload.media_type)
    return parameters


@route(
    "GET", "/documents", scope="documents.read", query=DocumentListQuery, returns=DocumentView, listed=True,
    acts=Acts("search_documents"),
    errors=(InvalidFilter, ValidationFailed),
)  # fmt: skip
def list_documents(call: Call) -> object:
    """List or search documents.

    Filters are name, tag, folder, media type and metadata; a document must match all of them. Newest first unless sorted.
    `search` finds documents whose text contains, for each search word, a word that begins with it, or whose name contains the
    search text. `snippet` is escaped HTML with the matches in `<mark>`.
    """
    query: DocumentListQuery = call.query
    metadata = read_metadata(query.metadata) if query.metadata is not None else {}
    filters = DocumentFilter(
        name=query.name, tag=query.tag, folder=query.folder, media_type=query.media_type, metadata=metadata, search=query.search,
        under=query.under,
    )
    page = call.services.documents.files.list_documents(call.scope, filters, query.page)
    snippets: Mapping[str, str] = {}
    if query.search is not None:
        snippets = texts.snippets(call.scope, [each.sha256 for each in page.items], parse_search(query.search))
    return page.map(lambda each: document_view(each, snippets.get(each.sha256)))


@route(
    "POST", "/documents", scope="documents.write", body=FILE, query=UploadQuery, returns=DocumentView, status=201,
    errors=(Conflict, Infected, ScanFailed),
)  # fmt: skip
def create_document(call: Call) -> Answer:
    """Upload a document.

    Send the file as the body with `?name=`, or as the field `file` of a form (`multipart/form-data`). `name`, `folder`, `tags`
    (comma-separated), `media_type` and `metadata` (JSON) are query parameters or form fields. The media type is detected from
    the content; the name and `media_type` only decide between kinds of text and of office files.
    """
    parameters = merge_parameters(call, "name", "folder", "tags", "media_type", "metadata")
    upload: Upload = call.body
    name = parameters.get("name") or (clean_name(upload.filename) if upload.filename else None)
    if name is None:
        raise ValidationFailed("the document has no name; add ?name=, or send a form whose file has a name", pointer="/name")
    tags = tuple(tag.strip() for tag in parameters.get("tags", "").split(",") if tag.strip())
    metadata = read_metadata(parameters["metadata"]) if "metadata" in parameters else {}
    new = NewDocument(name, parameters.get("media_type"), parameters.get("folder", ""), tags, metadata)
    return document_answer(call.services.documents.files.create_document(call.scope, new, upload.content), 201)


@route(
    "GET", "/documents/folders", scope="documents.read", query=FolderListQuery, returns=FolderView, listed=True,
    errors=(ValidationFailed,),
)  # fmt: skip
def list_folders(call: Call) -> object:
    """List folders with their numbers of documents.

    Folders exist while they contain documents; they are sorted by path.
    """
    query: FolderListQuery = call.query
    page = PageRequest(query.limit, query.cursor, count=query.count == "exact")
    folders = call.services.documents.files.list_folders(call.scope, query.under, page)
    return folders.map(lambda folder: FolderView(path=folder.path, documents=folder.documents, total=folder.total))


@route(
    "POST", "/documents/folders/move", scope="documents.write", body=MoveFolder, returns=MovedView,
    errors=(Conflict, DocumentKept, NotFound),
)  # fmt: skip
def move_folder(call: Call) -> MovedView:
    """Move a folder with everything in it.

    Either all documents move or none; an existing target folder is merged with it.
    """
    body: MoveFolder = call.body
    return MovedView(moved=call.services.documents.files.move_folder(call.scope, body.source, body.target))


@route("GET", "/documents/{document_id}", scope="documents.read", returns=DocumentView, acts=Acts("read_document"))
def get_document(call: Call, document_id: str) -> Answer:
    """Show a document.

    Its attributes and newest revision, without the content. The ETag names the version that a conditional change expects.
    """
    return document_answer(call.services.documents.files.get_document(call.scope, document_id))


@route(
    "PATCH", "/documents/{document_id}", scope="documents.write", body=ChangeDocument, returns=DocumentView, errors=(DocumentKept,)
)  # fmt: skip
def change_document(call: Call, document_id: str) -> Answer:
    """Change the attributes of a document.

    Name, folder, tags, media type and metadata; its content stays. Takes If-Match.
    """
    body: ChangeDocument = call.body
    files, version = call.services.documents.files, expected_version(call)
    return document_answer(files.update_document(call.scope, document_id, body.to_changes(), if_version=version))


@route("DELETE", "/documents/{document_id}", scope="documents.write", returns=DeletedView, errors=(DocumentKept,))
def delete_document(call: Call, document_id: str) -> DeletedView:
    """Delete a document with all its revisions.

    A document that is retained or under a legal hold is refused with `document_kept`. Takes If-Match.
    """
    call.services.documents.files.delete_document(call.scope, document_id, if_version=expected_version(call))
    return DeletedView(deleted=document_id)


@route(
    "GET", "/documents/{document_id}/content", scope="documents.read", query=DownloadQuery, media="*/*",
    also={206: bytes, 302: bytes, 304: bytes},
    acts=Acts("read_document"),
    errors=(Gone, Quarantined, RangeNotSatisfiable, VersionConflict),
)  # fmt: skip
def download_document(call: Call, document_id: str) -> Answer:
    """Download the content of a document.

    The newest content, or that of `revision`. Takes `Range`, `If-Range`, `If-None-Match` and `If-Modified-Since`. The ETag is
    the content's sha256. The content is delivered as an attachment that browsers do not run. With `direct`, the answer is 302 to an
    address of the bucket, signed for a minute, if the operator allows it for contents of this size.
    """
    content = call.services.documents.files.open_content(call.scope, document_id, call.query.revision)
    return answer_content(content, call.headers, may_redirect=call.query.direct)


@route(
    "GET", "/documents/{document_id}/text", scope="documents.read", query=ContentQuery, media="*/*", also={202: bytes},
    acts=Acts("read_document"),
    errors=(Quarantined, TextFailed),
)  # fmt: skip
def get_document_text(call: Call, document_id: str) -> Answer:
    """Show the text of a document.

    It was extracted from the content, or recognised by OCR; in UTF-8. Answers 202 with `Retry-After` while the text is being
    extracted, 404 when the content has no text, and 422 `text_failed` with a `reason` when the content is encrypted, broken or
    too large.
    """
    text = call.services.documents.files.open_text(call.scope, document_id, call.query.revision)
    headers = {
        "Cache-Control": CACHE, "Content-Security-Policy": "default-src 'none'; sandbox",
        "Content-Type": "text/plain; charset=utf-8",
    }  # fmt: skip
    if text.pieces is None:
        texts.check_available(text)
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
    """List the revisions of a document, newest first.

    Each comes with its number, size, SHA-256 and author.
    """
    page = PageRequest(call.query.limit, call.query.cursor)
    return call.services.documents.files.list_revisions(call.scope, document_id, page).map(revision_view)


@route(
    "POST", "/documents/{document_id}/revisions", scope="documents.write", body=FILE, query=RevisionQuery, returns=DocumentView,
    status=201,
    errors=(Conflict, Infected, ScanFailed),
)  # fmt: skip
def add_revision(call: Call, document_id: str) -> Answer:
    """Upload a new revision of a document.

    Send it as the body or as the field `file` of a form. Takes If-Match. Content equal to that of the newest revision changes
    nothing.
    """
    parameters = merge_parameters(call, "comment", "media_type")
    document = call.services.documents.files.add_revision(
        call.scope, document_id, call.body.content, comment=parameters.get("comment", ""), media_type=parameters.get("media_type"),
        if_version=expected_version(call),
    )  # fmt: skip
    return document_answer(document, 201)
