"""Data folders of an earlier release, with the key that belongs to them, and upgrades of them in processes that die."""

import atexit
import os
import resource
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from appliance import cli
from appliance.app.parts import make_places
from appliance.backups import restoring
from appliance.backups.verification import read_backup
from appliance.core.config import Config, load_config
from appliance.core.database import db
from appliance.upgrade import UpgradeOptions, files, roll_back
from appliance.upgrade import journal as journals
from appliance.upgrade.journal import ROLLING_BACK, SWAPPING, Journal
from appliance.upgrade.swapping import migrate_compared
from tests.upgrade.killing import watch_sqlite
from tests.upgrade.make import FOLDER

BACKUP, KEY = FOLDER / "0075.gosb", FOLDER / "0075.key"


@cache
def _unpacked() -> Path:
    """The data folder of the last development version, unpacked once."""
    parent = mkdtemp(prefix="gos-old-")
    atexit.register(shutil.rmtree, parent)
    folder = Path(parent, "data")
    folder.mkdir(mode=0o700)
    read_backup(BACKUP, None, folder, spare=0)
    for path in (folder / "files").iterdir() if (folder / "files").is_dir() else ():
        path.rename(folder / path.name)
    shutil.copy(KEY, folder / "key")
    (folder / "key").chmod(0o600)
    with closing(sqlite3.connect(folder / "gos.db")) as file:
        file.execute("PRAGMA journal_mode=WAL")
    return folder


def make_old_data(data: Path, url: str = "") -> Config:
    """A data folder of the earlier release, whose rows are in this database, or else in the folder; returns its configuration."""
    shutil.copytree(_unpacked(), data)
    if url:
        db.open_database(url)
        restoring._load(data / "gos.db")
        db.close_database()
        (data / "gos.db").unlink()
    return load_config(environment={}, flags={"storage.data": str(data), "storage.database": url})


class Steps(list[tuple[str, str]]):
    """The steps that were reported."""

    def report(self, step: str, text: str) -> None:
        self.append((step, text))

    def options(self, **choices: Any) -> UpgradeOptions:
        return UpgradeOptions(make_places, self.report, **choices)

    def names(self) -> list[str]:
        return [step for step, _ in self]


# -- processes that die, or whose disk is full


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _dying(real: Callable[..., Any], number: int, *, after: bool) -> Callable[..., Any]:
    """The function, which ends the process at the call of this number, counted from 0."""
    calls = 0

    def call(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number + 1 and not after:
            _die()
        result = real(*args, **options)
        if calls == number + 1:
            _die()
        return result

    return call


def run_until(data: str, words: list[str], place: str, number: int) -> int:
    """Run `gos upgrade`; die at a place: before or after a save of the journal, at a statement of the swap, or while pages are
    written."""
    match place:
        case "page":
            files.PAGES = 16
            files.observe_pages = _dying(files.observe_pages, number, after=False)
        case "statement":
            journals.save_journal = _on_state(SWAPPING, partial(_die_at_statement, number))
        case "save":
            journals.save_journal = _dying(journals.save_journal, number, after=False)
        case "saved":
            journals.save_journal = _dying(journals.save_journal, number, after=True)
    return cli.main(["--data", data, "upgrade", *words])


def run_on_full_disk(data: str, state: str, most: int) -> int:
    """Run `gos upgrade`, which can write no file larger than `most` bytes from the time on when its journal has a state."""
    limits = (most, resource.RLIM_INFINITY)
    journals.save_journal = _on_state(state, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits))
    return cli.main(["--data", data, "upgrade"])


def _on_state(state: str, act: Callable[[], None]) -> Any:
    """What saves the journal, and then acts if it has a state."""
    real = journals.save_journal

    def save(data: Path, journal: Journal) -> None:
        real(data, journal)
        if journal.state == state:
            act()

    return save


def _die_at_statement(number: int) -> None:
    """Die at a statement of this process, counted from 0, reads not counted."""
    left = number

    def is_last(sql: str) -> bool:
        nonlocal left
        left -= not sql.lstrip().upper().startswith(("SELECT", "PRAGMA"))
        return left < 0

    watch_sqlite(is_last)


def _die_on_server(number: int) -> None:
    """Die at a statement to a server, counted from 0, reads not counted."""
    import psycopg

    execute, left = psycopg.ClientCursor.execute, number

    def watched(self: Any, query: Any, params: Any = None, **options: Any) -> Any:
        nonlocal left
        if not str(query).lstrip().upper().startswith(("SELECT", "DECLARE", "FETCH", "CLOSE")):
            left -= 1
            if left < 0:
                _die()
        return execute(self, query, params, **options)

    psycopg.ClientCursor.execute = watched  # type: ignore[method-assign]


def migrate_until(url: str, number: int) -> int:
    """Migrate a database on a server by one transaction; die at a statement."""
    _die_on_server(number)
    db.open_database(url)
    migrate_compared()
    db.close_database()
    return 0


def roll_back_until(data: str, url: str, number: int) -> int:
    """Put the former database back on a server; die at a statement of that transaction."""
    journals.save_journal = _on_state(ROLLING_BACK, partial(_die_on_server, number))
    config = load_config(environment={}, flags={"storage.data": data, "storage.database": url})
    roll_back(config, Steps().report, lose_changes=False)
    return 0
