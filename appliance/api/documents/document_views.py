"""The bodies, query strings and views of documents, their revisions and folders."""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from appliance.api.frame.fields import CreatedAt, CreatedBy, Cursor, ExactCount, Limit, UpdatedAt
from appliance.api.frame.routing import Body, ListQuery, Query, View
from appliance.core import clock
from appliance.core.pages import DEFAULT_LIMIT
from appliance.documents import Changes, Document, Revision

MediaType = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9!#$&^_.+-]{1,100}/[A-Za-z0-9!#$&^_.+*-]{1,100}$"),
    Field(
        description="What kind of content it is said to be, such as `text/csv`; decides only between kinds of text and of office "
        "files."
    ),
]
MediaTypeFilter = Annotated[
    MediaType,
    Field(description="Only documents whose newest revision has this type, such as `image/png`; `image/*` takes all images."),
]
DocumentId = Annotated[str, Field(description="Identifies the document; `doc_…`.")]
Name = Annotated[
    str,
    Field(description="File name with its extension: 1 to 200 characters, none of `/ \\ : * ? \" < > |` or control characters."),
]
Folder = Annotated[
    str, Field(description="Path of the folder, such as `contracts/2026`, at most 500 characters; empty for the top level.")
]
Tags = Annotated[list[str], Field(description="At most 50 labels of 1 to 60 characters without commas; sorted, each once.")]
Metadata = Annotated[
    dict[str, Any],
    Field(description="Attributes of your own: at most 50 members with names of 1 to 60 characters, 16 KiB as JSON."),
]
Sha256 = Annotated[str, Field(description="SHA-256 digest of the content, 64 lower-case hexadecimal digits.")]
Size = Annotated[int, Field(description="Length of the content in bytes.")]
Comment = Annotated[str, Field(description="What changed in the revision, at most 1,000 characters; empty if nothing was said.")]
RevisionNumber = Annotated[int, Field(ge=1, le=2**31 - 1, description="Which revision, counted from 1; the newest if left out.")]


class DocumentView(View):
    """A document; `size`, `sha256` and `media_type` describe its newest `revision`."""

    id: DocumentId
    name: Name
    folder: Folder
    tags: Tags
    media_type: Annotated[str, Field(description="Kind of content, detected from its bytes, such as `application/pdf`.")]
    size: Size
    sha256: Sha256
    revision: Annotated[int, Field(description="Number of the newest revision; revisions count from 1.")]
    version: Annotated[
        int, Field(description="Grows with every change, of attributes too; its text in quotes is the ETag for If-Match.")
    ]
    created_at: CreatedAt
    created_by: CreatedBy
    updated_at: UpdatedAt
    metadata: Metadata
    review: Annotated[
        Literal["none", "pending", "approved", "rejected"],
        Field(description="How the newest content was reviewed: never (`none`), still open (`pending`), or with this result."),
    ]
    approved_revision: Annotated[
        int | None, Field(description="Number of the newest approved revision; absent while none has been approved.")
    ] = None
    text_state: Annotated[
        Literal["none", "pending", "ready", "failed"],
        Field(
            description="Whether the text of the content can be read and searched: it has none, is being extracted, can, or "
            "cannot."
        ),
    ]
    snippet: Annotated[
        str | None,
        Field(description="Escaped HTML around the match, with the words found in `<mark>`; only in answers to `search`."),
    ] = None


class FolderView(View):
    """A folder; `documents` counts those directly in it, `total` also those in subfolders."""

    path: Folder
    documents: Annotated[int, Field(description="Number of documents directly in the folder.")]
    total: Annotated[int, Field(description="Number of documents in the folder and all folders below.")]


class MovedView(View):
    moved: Annotated[int, Field(description="Number of documents that changed their folder, at most 5,000.")]


class RevisionView(View):
    """One revision of a document's content."""

    number: Annotated[int, Field(description="Position in the document's history, counted from 1.")]
    media_type: Annotated[str, Field(description="Kind of content, detected from its bytes, such as `application/pdf`.")]
    size: Size
    sha256: Sha256
    comment: Comment
    created_at: CreatedAt
    created_by: CreatedBy


class DocumentListQuery(ListQuery):
    """`name` matches part of the name, `folder` exactly that folder, `under` a folder and its subfolders, `media_type` a type such
    as `image/png` or `image/*`. `metadata` is a JSON object whose members must be in the document's metadata, such as
    `{"customer": "ACME"}`; `search` matches words of the text, or part of the name."""

    name: Annotated[str | None, Field(description="Only documents whose name contains this text, in any case.")] = None
    tag: Annotated[str | None, Field(description="Only documents with exactly this label.")] = None
    folder: Annotated[
        str | None, Field(description="Only documents directly in this folder, such as `contracts/2026`; empty for the top level.")
    ] = None
    under: Annotated[str | None, Field(description="Only documents in this folder or anywhere below it.")] = None
    media_type: MediaTypeFilter | None = None
    metadata: Annotated[
        str | None,
        Field(
            description="A JSON object; only documents whose metadata has all its members with equal values (texts, numbers or "
            'booleans), such as `{"customer": "ACME"}`.'
        ),
    ] = None
    search: Annotated[
        str,
        StringConstraints(max_length=500),
        Field(
            description="Words; only documents whose text has, for each, a word that begins with it, or whose name contains the "
            "whole "
            "search. Case and accents do not matter; the first 200,000 characters of a text are searched."
        ),
    ] | None = None


class FolderListQuery(Query):
    """Only folders below `under`; without it, all folders."""

    under: Annotated[str, Field(description="Path of the folder to look below, such as `contracts`; empty for all folders.")] = ""
    limit: Limit = DEFAULT_LIMIT
    cursor: Cursor = None
    count: ExactCount = None


class UploadQuery(Query):
    """Attributes of the new document; `tags` is comma-separated, `metadata` a JSON object.  A form may send them as fields
    instead."""

    name: Annotated[
        str | None, Field(description="File name with its extension, 1 to 200 characters; by default that of the file in the form.")
    ] = None
    folder: Annotated[
        str | None, Field(description="Path of the folder to store it in, such as `contracts/2026`; the top level if left out.")
    ] = None
    tags: Annotated[str | None, Field(description="Labels separated by commas: at most 50, of 1 to 60 characters each.")] = None
    media_type: MediaType | None = None
    metadata: Annotated[
        str | None, Field(description="Attributes of your own as a JSON object: at most 50 members, 16 KiB.")
    ] = None


class RevisionQuery(Query):
    comment: Annotated[str | None, Field(description="What changed in this revision, at most 1,000 characters.")] = None
    media_type: MediaType | None = None


class ContentQuery(Query):
    revision: RevisionNumber | None = None


class DownloadQuery(ContentQuery):
    direct: Annotated[
        bool, Field(description="The client follows a redirect (302) to the bucket if it gets one, and sends no key there.")
    ] = False


class RevisionListQuery(Query):
    limit: Limit = DEFAULT_LIMIT
    cursor: Cursor = None


class ChangeDocument(Body):
    """A JSON merge patch (RFC 7396), also within `metadata`, where null removes a member; `tags` is the complete new list."""

    name: Name | None = None
    folder: Folder | None = None
    tags: Annotated[
        list[str] | None,
        Field(description="All labels the document has from now on: at most 50, of 1 to 60 characters without commas."),
    ] = None
    media_type: MediaType | None = None
    metadata: Annotated[
        dict[str, Any] | None,
        Field(description="Members to set, or to remove by null; the others stay. At most 50 members and 16 KiB remain."),
    ] = None


    def to_changes(self) -> Changes:
        """The changes to make; a member that was not sent stays as it is."""
        return Changes(**dict(self))


class MoveFolder(Body):
    """The paths before and after: `{"from": "inbox/2026", "to": "archive/2026"}`."""

    source: Annotated[
        str, Field(alias="from", description="Path of the folder whose documents and subfolders move, at most 5,000 documents.")
    ]
    target: Annotated[
        str, Field(alias="to", description="Path it has afterwards, at most 500 characters; an existing folder is merged with it.")
    ]


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
