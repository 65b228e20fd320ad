"""Data types of documents."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from appliance.core.scope import TenantScope

Event = Literal["created", "updated", "deleted"]


@dataclass(frozen=True)
class Document:
    """A document; `media_type`, `size`, `sha256` and `review` are those of its newest revision. Times in milliseconds."""

    id: str
    name: str
    folder: str
    tags: tuple[str, ...]
    media_type: str
    size: int
    sha256: str
    revision: int
    version: int
    created_at: int
    created_by: str
    updated_at: int
    metadata: Mapping[str, Any]
    review: Literal["none", "pending", "approved", "rejected"] = "none"
    approved_revision: int | None = None
    text_state: Literal["none", "pending", "ready", "failed"] = "none"


@dataclass(frozen=True)
class Revision:
    """One revision of a document's content; numbers start at 1."""

    document_id: str
    number: int
    sha256: str
    size: int
    media_type: str
    comment: str
    created_at: int
    created_by: str


@dataclass(frozen=True)
class NewDocument:
    """A document to create; `media_type` is what the uploader declared, which the content may override."""

    name: str
    media_type: str | None = None
    folder: str = ""
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Changes:
    """Changes to a document; None keeps the current value. `metadata` is merged (RFC 7396)."""

    name: str | None = None
    folder: str | None = None
    tags: Sequence[str] | None = None
    media_type: str | None = None
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class DocumentFilter:
    """Filters of a document list: part of the name, a tag, an exact folder, a media type (`image/png` or `image/*`), metadata,
    words in the text or name, and a folder including those below it (`under`)."""

    name: str | None = None
    tag: str | None = None
    folder: str | None = None
    media_type: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    search: str | None = None
    under: str | None = None


@dataclass(frozen=True)
class Content:
    """A content that can be read, in three ways, or downloaded elsewhere.

    `pieces(start, end)` yields bytes as stored; `read(most)` returns everything, verified against the sha256, or raises
    PayloadTooLarge beyond `most` bytes; `copy_to(path)` writes everything, verified, to a new file. `address()` is one at which the
    bucket sends it as an attachment, for a minute to anyone; None when the operator does not allow that, or it is too small.
    """

    document_id: str
    revision: int
    name: str
    media_type: str
    size: int
    sha256: str
    created_at: int
    pieces: Callable[[int, int], Iterator[bytes]]
    read: Callable[[int], bytes]
    copy_to: Callable[[Path], None]
    address: Callable[[], str | None]


@dataclass(frozen=True)
class DocumentChanged:
    """A document was changed, a deleted one with its last state; a new revision is `updated`.  Published inside the write."""

    scope: TenantScope
    event: Event
    document: Document
