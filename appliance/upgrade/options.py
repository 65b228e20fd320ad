"""What is asked of an upgrade, and its result."""

from collections.abc import Callable
from dataclasses import dataclass

from appliance.blobs import Places
from appliance.core.config import Config

PlacesOf = Callable[[Config, str], Places]
Report = Callable[[str, str], None]
"""Gets the name of a step that is done, and a sentence about it."""


@dataclass(frozen=True)
class UpgradeOptions:
    """`places_of` opens the store of contents, `report` is told about each step.

    `despite_problems`: connectors that cannot be used, and damaged contents or audit trails, are reported without ending the
    upgrade, which neither causes nor repairs them.  `in_file`: a database on a server is rehearsed in an SQLite file only.
    """

    places_of: PlacesOf
    report: Report
    despite_problems: bool = False
    in_file: bool = False


@dataclass(frozen=True)
class UpgradeResult:
    """The last migrations before and after, those between, and how long it took; `is_changed` says whether anything was.

    `down_ms` is the time for which the appliance is, or for a rehearsal will be, stopped.
    """

    from_number: int
    to_number: int
    migrations: tuple[str, ...]
    is_changed: bool
    rows: int = 0
    migrate_ms: int = 0
    start_ms: int = 0
    down_ms: int = 0
    problems: tuple[str, ...] = ()
