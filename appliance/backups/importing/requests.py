"""What is to be imported, and what became of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class ImportRequest:
    """The options of an import.

    `name` is the tenant's new id, None to keep its id; with `active` its triggers are not paused.  `title` is its display
    name, empty to keep the name; `owner` is the login of an additional owner; `actor` is the importing person.  `quotas` are those
    that the tenant gets of its own, by name, as people write them.
    """

    path: Path
    passphrase: str | None = None
    name: str | None = None
    active: bool = False
    title: str = ""
    owner: str = ""
    actor: str = "system"
    quotas: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ImportResult:
    """The result of an import: `paused` counts processes, `unknown_logins` are logins without an account here."""

    tenant_id: str
    manifest: dict[str, Any]
    paused: int
    unknown_logins: tuple[str, ...]

    @property
    def rows(self) -> int:
        return sum(self.manifest["tables"].values())


@dataclass(frozen=True)
class UnpackedExport:
    """An export that was read and checked completely, unpacked in its own folder."""

    folder: Path
    manifest: dict[str, Any]
