"""What every connector of this package can do with its place, each in its own protocol."""

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
Take = Callable[[Iterable[bytes]], str]
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

    def told(self) -> dict[str, Any]:
        """As JSON; the time in RFC 3339, null where the server does not know it."""
        moment = None if self.modified is None else datetime.fromtimestamp(self.modified, UTC)
        stamp = None if moment is None else moment.isoformat(timespec="seconds").replace("+00:00", "Z")
        return {"path": self.path, "name": self.name, "kind": self.kind, "size": self.size, "modified": stamp}


@dataclass(frozen=True)
class Page:
    """Some entries of a folder by name; `after` asks for the next page, None when this is the last."""

    entries: list[Entry]
    after: str | None = None


class Store(ABC):
    """One place during one call; paths are clean.  Every verb raises errors of the contract."""

    @abstractmethod
    def page(self, folder: str, after: str | None, limit: int) -> Page:
        """Entries of a folder; Rejected when there is no such folder."""

    @abstractmethod
    def stat(self, path: str) -> Entry | None:
        """What is there, None when nothing is."""

    @abstractmethod
    def read(self, path: str, most: int) -> bytes:
        """The whole file; Rejected when there is none or it is larger than `most` bytes."""

    @abstractmethod
    def write(self, path: str, content: bytes, key: str) -> None:
        """Make it the file's content, all at once where the protocol can; `key` names what is on its way."""

    def read_through(self, path: str, take: Take) -> str:
        """What `take` answers for the file's bytes; a store that can hands them on as they come."""
        return take([self.read(path, MOST_AT_ONCE)])

    def write_through(self, path: str, content: DocumentContent, key: str) -> None:
        """`write` from a document; a store that can does so a piece at a time."""
        if content.size > MOST_AT_ONCE:
            raise ConfigError(f"{content.name!r} is {content.size} bytes; here a document of up to {MOST_AT_ONCE} can be written.")
        self.write(path, b"".join(content.chunks()), key)

    @abstractmethod
    def move(self, source: str, target: str) -> None:
        """Rename; Rejected when the source is missing or the target is there."""

    @abstractmethod
    def delete(self, path: str) -> bool:
        """Remove a file or an empty folder; False when nothing was there."""

    @abstractmethod
    def make_folder(self, path: str) -> bool:
        """Make a folder with those above it; False when it was there."""


def page_of(entries: Iterable[Entry], after: str | None, limit: int) -> Page:
    """A page of a folder whose entries are all known."""
    rest = sorted((each for each in entries if after is None or each.name > after), key=lambda each: each.name)
    return Page(rest[:limit], rest[limit - 1].name if len(rest) > limit else None)


def draft_of(path: str, key: str) -> str:
    """The name beside the file under which its content grows: the same when the call of this key is repeated."""
    name = path.rpartition("/")[2]
    mark = hashlib.sha256(f"{key}\n{name}".encode()).hexdigest()[:16]
    return f".gos-{mark}.part"


def is_draft(name: str) -> bool:
    """Whether the name is one that `draft_of` gives."""
    return _DRAFT.fullmatch(name) is not None


class Missing(Rejected):
    """There is nothing at the path."""

    def __init__(self, path: str) -> None:
        super().__init__(f"There is no {path!r}; list its folder to see what is there.")


def too_large(path: str, size: int, most: int) -> Rejected:
    """The file does not fit into an answer."""
    return Rejected(
        f"{path!r} is {size} bytes, more than the {most} that may be read; raise `most_bytes` or make the file smaller.",
        details={"size": size},
    )


def too_full() -> Rejected:
    """The folder has more entries than are read."""
    return Rejected(f"The folder holds more than {MOST_IN_FOLDER} entries; move away what is done.")


def in_the_way(path: str) -> Rejected:
    """The target of a move exists."""
    return Rejected(f"{path!r} already exists; delete it first or choose another name.")
