"""The operations each file protocol implements, and what the implementations share."""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from appliance.connectors.contract import ConfigError, DocumentContent, Rejected

Kind = Literal["file", "folder", "other"]
MOST_IN_FOLDER = 50_000
MOST_AT_ONCE = 5 * 1024 * 1024
Consumer = Callable[[Iterable[bytes]], str]
_DRAFT = re.compile(r"\.gos-[0-9a-f]{16}\.part")


@dataclass(frozen=True)
class Entry:
    """A file or folder; `size` in bytes, `modified` in seconds since 1970, `version` changes when the content does."""

    path: str
    kind: Kind
    size: int = 0
    modified: float | None = None
    tag: str = ""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def version(self) -> str:
        return f"{self.modified or 0:.0f}:{self.size}" + (f":{self.tag}" if self.tag else "")

    def to_view(self) -> dict[str, Any]:
        """Return the entry as JSON; `modified` is in RFC 3339, null if the server does not report it."""
        moment = None if self.modified is None else datetime.fromtimestamp(self.modified, UTC)
        stamp = None if moment is None else moment.isoformat(timespec="seconds").replace("+00:00", "Z")
        return {"path": self.path, "name": self.name, "kind": self.kind, "size": self.size, "modified": stamp}


@dataclass(frozen=True)
class Page:
    """Some entries of a folder, sorted by name; `after` requests the next page, None on the last page."""

    entries: list[Entry]
    after: str | None = None


class Store(ABC):
    """Access to files during one call.  Paths have been checked by `clean`; every method raises errors of the contract."""

    @abstractmethod
    def page(self, folder: str, after: str | None, limit: int) -> Page:
        """Return up to `limit` entries of a folder; Rejected when it does not exist."""

    @abstractmethod
    def stat(self, path: str) -> Entry | None:
        """Return the entry at a path, None when it does not exist."""

    @abstractmethod
    def read(self, path: str, most: int) -> bytes:
        """Return the whole file; Rejected when it does not exist or is larger than `most` bytes."""

    @abstractmethod
    def write(self, path: str, content: bytes, key: str) -> None:
        """Replace the file's content, atomically where the protocol can; `key` names the draft of the upload."""

    def read_through(self, path: str, consume: Consumer) -> str:
        """Pass the file's bytes to `consume` and return its result; a store may stream them."""
        return consume([self.read(path, MOST_AT_ONCE)])

    def write_through(self, path: str, content: DocumentContent, key: str) -> None:
        """Write the content of a document; a store may stream it."""
        if content.size > MOST_AT_ONCE:
            raise ConfigError(f"{content.name!r} is {content.size} bytes; this connector writes documents up to {MOST_AT_ONCE}.")
        self.write(path, b"".join(content.chunks()), key)

    @abstractmethod
    def move(self, source: str, target: str) -> None:
        """Rename; Rejected when the source does not exist or the target does."""

    @abstractmethod
    def delete(self, path: str) -> bool:
        """Remove a file or an empty folder; return False when it did not exist."""

    @abstractmethod
    def make_folder(self, path: str) -> bool:
        """Create a folder and its parents; return False when it already existed."""


def page_of(entries: Iterable[Entry], after: str | None, limit: int) -> Page:
    """Return one page of a complete list of entries."""
    rest = sorted((each for each in entries if after is None or each.name > after), key=lambda each: each.name)
    return Page(rest[:limit], rest[limit - 1].name if len(rest) > limit else None)


def draft_of(path: str, key: str) -> str:
    """Return the name, beside the file, of the upload's draft; a retried call with the same key gets the same name."""
    name = path.rpartition("/")[2]
    digest = hashlib.sha256(f"{key}\n{name}".encode()).hexdigest()[:16]
    return f".gos-{digest}.part"


def is_draft(name: str) -> bool:
    """Return whether the name is one that `draft_of` returns."""
    return _DRAFT.fullmatch(name) is not None


class Missing(Rejected):
    """Raised when a path does not exist."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path!r} does not exist; list its folder to see what does.")


def too_large(path: str, size: int, most: int) -> Rejected:
    """Build the error for a file larger than `most` bytes."""
    return Rejected(
        f"{path!r} is {size} bytes, more than the {most} that may be read; raise `most_bytes` or make the file smaller.",
        details={"size": size},
    )


def folder_too_full() -> Rejected:
    """Build the error for a folder with more entries than are read."""
    return Rejected(f"The folder contains more than {MOST_IN_FOLDER} entries; move processed files elsewhere.")


def already_exists(path: str) -> Rejected:
    """Build the error for a target that already exists."""
    return Rejected(f"{path!r} already exists; delete it first or choose another name.")
