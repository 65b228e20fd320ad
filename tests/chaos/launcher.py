"""Starts `gos serve` or `gos worker`, optionally with one defence removed: the control that the chaos test must fail."""

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from appliance.app import upkeep
from appliance.blobs import local
from appliance.cli import main
from appliance.core import queue
from appliance.core.database import db, postgresql, sqlite, writers
from appliance.core.database.bulk import short_writes
from appliance.core.leases import Lease, OrphanFinder
from appliance.processes.engine import end_watch, store
from appliance.processes.engine.runner import Runner
from appliance.processes.scheduling import sweeper
from appliance.sites.webapps import webapps


def remove_fence() -> None:
    """Claims and commits no longer ask who holds the execution."""
    unfenced = "tenant_id = ? AND id = ? AND ? >= 0"
    vars(store.LEASES).update(_guarded=unfenced, _in_progress=unfenced, _is_current=f"SELECT 1 FROM execution WHERE {unfenced}")  # noqa: S608
    Runner._claimable = lambda self, row, now: True  # type: ignore[method-assign]

    def requeue(self: sweeper.Sweeper, orphans: list[Lease]) -> None:
        for lost in orphans:
            db.execute("UPDATE execution SET status = 'queued' WHERE tenant_id = ? AND id = ?", lost.key)
            self._wakes.wake(*lost.key)

    sweeper.Sweeper._requeue = requeue  # type: ignore[method-assign]
    # Messages no longer name what is run: without this nobody would ever reach for what another holds.
    OrphanFinder.find = lambda self, now, most: store.LEASES.list_running()[:most]  # type: ignore[method-assign]


def remove_sweeper() -> None:
    """Nobody looks for lost work."""
    sweeper.Sweeper.sweep = lambda self: 0  # type: ignore[method-assign]


def remove_polls() -> None:
    """Beside notices, nobody polls the queue, the ends of executions, and what WebApps serve."""
    webapps.MAX_AGE_SECONDS = 3600.0
    queue.POLL_SECONDS_BESIDE_NOTICES = end_watch.MIN_SECONDS_BESIDE_NOTICES = 3600.0


def remove_full() -> None:
    """Errors of a full disk are not recognised."""
    writers._DISK = re.compile("(?!)")


def remove_room() -> None:
    """Nobody looks whether there is space again."""
    upkeep.check_space = lambda folder: None  # type: ignore[attr-defined]


def remove_syncs() -> None:
    """SQLite's commits do not wait for the disk."""
    sqlite._PRAGMAS = tuple(each.replace("synchronous=FULL", "synchronous=NORMAL") for each in sqlite._PRAGMAS)  # type: ignore[assignment]


def remove_commits() -> None:
    """PostgreSQL answers a commit before it is on the disk."""
    settings = postgresql._WRITER_SETTINGS.replace("synchronous_commit = on", "synchronous_commit = off")
    assert settings != postgresql._WRITER_SETTINGS
    postgresql._WRITER_SETTINGS = settings


def remove_folder_syncs() -> None:
    """New names of contents do not wait for the disk."""
    local._sync_folder = lambda folder: None


def hold_deletions(until: Path) -> None:
    """No defence less: rows of tenants that are reset or deleted are deleted once there is a file at this path."""
    delete, pause = short_writes.delete_each, threading.Event()

    def delete_later(*args: Any) -> int:
        while not until.exists():
            pause.wait(0.02)
        return delete(*args)

    short_writes.delete_each = delete_later  # type: ignore[assignment]


CONTROLS = {
    "none": lambda: None, "fence": remove_fence, "sweeper": remove_sweeper, "polls": remove_polls, "full": remove_full,
    "room": remove_room, "syncs": remove_syncs, "folders": remove_folder_syncs,
    "commits": remove_commits,
}  # fmt: skip


def launch(control: str | Callable[[], None], argv: list[str]) -> int:
    """`gos` with these arguments, without the defence that `control` names, or changed as it does; its exit code."""
    change = CONTROLS[control] if isinstance(control, str) else control
    change()
    return main(argv)
