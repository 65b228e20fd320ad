"""Moves a whole installation from one configuration to another."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from appliance.backups.copying import Source
from appliance.backups.creation import refuse_empty
from appliance.blobs import Places, read_installation
from appliance.core.config import Config
from appliance.core.errors import InvalidRequest

from .contents import copy_contents
from .file_targets import FileTarget
from .files import copy_files
from .origins import SQLITE, last_migration, open_origin, refuse_running
from .problems import Report, database_errors
from .rows import Target, begin_or_resume, copy_tables, verify_tables
from .server_targets import ServerTarget

PlacesOf = Callable[[Config, str], Places]


@dataclass(frozen=True)
class Move:
    """From the configuration `current` to `target`; `places_of` opens the store of contents of each."""

    current: Config
    target: Config
    places_of: PlacesOf


@dataclass(frozen=True)
class MoveResult:
    """What is at the target, verified; `damaged` are contents that the source had lost or changed before."""

    tables: int
    rows: int
    files: int
    contents: int
    copied_contents: int
    damaged: tuple[str, ...]
    is_resumed: bool


def move_installation(move: Move, report: Report) -> MoveResult:
    """Copies database, contents and files of a stopped appliance to the places of another configuration, and compares them.

    The source is only read.  A move that was interrupted goes on; until it completes, no appliance starts on the target's
    database.  Raises Conflict while the appliance runs, MoveFailed when the target is not empty or differs.
    """
    current, target = move.current, move.target
    _refuse_same(current, target)
    refuse_empty(current)
    refuse_running(target.data)
    installation = read_installation(current)
    tables = rows = 0
    is_resumed = False
    with database_errors("the move"), open_origin(current.database_url, current.data) as source:
        if current.database_url == target.database_url:
            files, stores = _prepare(move, installation)
            contents = copy_contents(source, *stores, report)
        else:
            with _open_target(target.database_url) as database:
                is_resumed = begin_or_resume(source, database, _identify(source, installation, current.database_url))
                files, stores = _prepare(move, installation)
                copy_tables(source, database, report)
                contents = copy_contents(source, *stores, report)
                tables, rows = verify_tables(source, database, report)
                database.finish()
    return MoveResult(
        tables, rows, files, contents=contents.count, copied_contents=contents.copied, damaged=tuple(contents.damaged),
        is_resumed=is_resumed,
    )  # fmt: skip


def _prepare(move: Move, installation: str) -> tuple[int, tuple[Places, Places]]:
    """Copies the files of the data folder, and opens both stores; returns the number of files and the stores."""
    files = copy_files(move.current.data, move.target.data)
    stores = move.places_of(move.current, installation), move.places_of(move.target, installation)
    stores[1].holds("probe", 0)  # A bucket that refuses should do so before hours of copying.
    return files, stores


@contextmanager
def _open_target(url: str) -> Iterator[Target]:
    target: Target = FileTarget(Path(url.removeprefix(SQLITE))) if url.startswith(SQLITE) else ServerTarget(url)
    try:
        yield target
    finally:
        target.close()


def _identify(source: Source, installation: str, url: str) -> str:
    """What tells this move from one of another database or schema; the URL may contain a password."""
    return f"{installation} {last_migration(source)} {hashlib.sha256(url.encode()).hexdigest()}"


def _refuse_same(current: Config, target: Config) -> None:
    is_same_store = current.blobs == target.blobs and (current.blobs.store == "s3" or current.data == target.data)
    if current.database_url == target.database_url and is_same_store:
        raise InvalidRequest(
            "both configurations name the same database and the same store of contents, so there is nothing to move; change "
            "storage.database or blobs in the new one. A GOS_ variable of the environment overrides both files: unset it"
        )
