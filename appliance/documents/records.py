"""What crosses the border of this domain."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from appliance.core.scope import TenantScope

Event = Literal["created", "updated", "deleted"]


@dataclass(frozen=True)
class Document:
    """A document; size, sha256 and media_type and review are of its newest revision.  Times in milliseconds."""

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
    """One content of a document; numbers begin at 1."""

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
    """What a document is to be called; `media_type` is the sender's word, which the content may overrule."""

    name: str
    media_type: str | None = None
    folder: str = ""
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Changes:
    """What is to be different; None leaves it.  `metadata` is merged into what there is (RFC 7396)."""

    name: str | None = None
    folder: str | None = None
    tags: tuple[str, ...] | None = None
    media_type: str | None = None
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Wanted:
    """What a list shows: a part of the name, a tag, exactly this folder, `image/png` or `image/*`, equal metadata,
    words that its text or its name has, this folder (`under`) or one below it."""

    name: str | None = None
    tag: str | None = None
    folder: str | None = None
    media_type: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    search: str | None = None
    under: str | None = None


@dataclass(frozen=True)
class Content:
    """One content to be read: what it is, and three ways to its bytes.

    `pieces(start, end)` as they are on the disk; `read(most)` all of it, checked against the sha256, PayloadTooLarge
    when that is more than `most`; `copy_to(path)` all of it, checked, into a new file.
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


class Listener(Protocol):
    """Told of every change inside its transaction; of a deleted document, as it was.  A new revision is `updated`."""

    def __call__(self, scope: TenantScope, event: Event, document: Document) -> None: ...
