"""Data types of WebApps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from .access.access import PUBLIC, Access

State = Literal["uploading", "ready", "published", "superseded", "failed"]


@dataclass(frozen=True)
class WebApp:
    """A WebApp; `published_version` is the one served. Times in milliseconds."""

    id: str
    name: str
    description: str
    published_version: int | None
    created_at: int
    updated_at: int


@dataclass(frozen=True)
class FileSpec:
    """The content of a file: its sha256 and its size in bytes."""

    sha256: str
    size: int


@dataclass(frozen=True)
class Settings:
    """How a version is served. `redirects` and `headers` have the format of the files `_redirects` and `_headers`, and take
    precedence over them.

    `routes` are validated but kept as written; `smoke` is the result of `parse_smoke`; `access` is the input of `parse_access`.
    """

    spa: bool = False
    redirects: str = ""
    headers: str = ""
    routes: Sequence[Mapping[str, Any]] = ()
    smoke: Sequence[Mapping[str, Any]] = ()
    access: Any = "public"


@dataclass(frozen=True)
class Source:
    """Where a version comes from, as stated by the uploader."""

    commit: str = ""
    ci_url: str = ""


@dataclass(frozen=True)
class NewVersion:
    """The files and settings of a version to create."""

    files: Mapping[str, FileSpec]
    settings: Settings = Settings()
    message: str = ""
    source: Source = Source()


@dataclass(frozen=True)
class Version:
    """One version; `required` lists the contents still to be uploaded, `reason` says why it failed."""

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
    """The paths that differ between two versions."""

    against: int
    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    unchanged: int


@dataclass(frozen=True)
class ServedFile:
    """A file of a version: its content, and the blobs of its encodings (`identity` for the content itself)."""

    sha256: str
    size: int
    forms: Mapping[str, tuple[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class ServedVersion:
    """Everything needed to serve a version; `rules` are the parsed redirects and headers."""

    number: int
    spa: bool
    rules: Mapping[str, Any]
    files: Mapping[str, ServedFile]
    published_at: int | None
    created_at: int
    routes: Sequence[Mapping[str, Any]] = ()
    access: Access = PUBLIC
