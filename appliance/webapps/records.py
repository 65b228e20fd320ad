"""What crosses the border of this domain."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from .access.access import PUBLIC, Access

State = Literal["uploading", "ready", "published", "superseded", "failed"]


@dataclass(frozen=True)
class WebApp:
    """A WebApp; `published_version` is served.  Times in milliseconds."""

    id: str
    name: str
    description: str
    published_version: int | None
    created_at: int
    updated_at: int


@dataclass(frozen=True)
class FileSpec:
    """A file of a version: the sha256 and the bytes of its content."""

    sha256: str
    size: int


@dataclass(frozen=True)
class Settings:
    """How a version is served; the lines are as in `_redirects` and `_headers`, and come before those of the files.

    `routes` are as they were written, and valid; `smoke` are the checks, as `smoke.parse_smoke` answers them; `access` is what
    `access.parse_access` reads.
    """

    spa: bool = False
    redirects: str = ""
    headers: str = ""
    routes: Sequence[Mapping[str, Any]] = ()
    smoke: Sequence[Mapping[str, Any]] = ()
    access: Any = "public"


@dataclass(frozen=True)
class Source:
    """Where a version comes from, as its sender says."""

    commit: str = ""
    ci_url: str = ""


@dataclass(frozen=True)
class NewVersion:
    """What a version is to hold, and how it is to be served."""

    files: Mapping[str, FileSpec]
    settings: Settings = Settings()
    message: str = ""
    source: Source = Source()


@dataclass(frozen=True)
class Version:
    """One version; `required` are the contents nobody has sent yet, `reason` why it failed."""

    app: str
    number: int
    state: State
    message: str
    source: Source
    settings: Settings
    files: int
    bytes: int
    reason: str | None
    created_at: int
    created_by: str
    published_at: int | None
    required: tuple[str, ...] = ()


@dataclass(frozen=True)
class Difference:
    """What a version has that another has not: paths."""

    against: int
    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    unchanged: int


@dataclass(frozen=True)
class ServedFile:
    """A file of a published version: its content and the blobs it may be sent as, by encoding (`identity` for itself)."""

    sha256: str
    size: int
    forms: Mapping[str, tuple[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class ServedVersion:
    """Everything that serving a version takes; `rules` are the parsed redirects and headers."""

    number: int
    spa: bool
    rules: Mapping[str, Any]
    files: Mapping[str, ServedFile]
    published_at: int | None
    created_at: int
    routes: Sequence[Mapping[str, Any]] = ()
    access: Access = PUBLIC
