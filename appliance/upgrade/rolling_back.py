"""Puts the former database back after an upgrade, or deletes its copy."""

import dataclasses
from pathlib import Path

from appliance import migrations
from appliance.backups import full_disks
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.database import db
from appliance.core.errors import Conflict
from appliance.core.sentences import Sentence

from . import journal as journals
from .checks import failing_as, file_of, make_plan, opened_database, refuse_running
from .files import exclusive_file, hash_file
from .journal import DONE, ROLLED_BACK, ROLLING_BACK, Journal, copy_of, read_journal, upgrade_lock
from .options import Report
from .problems import UpgradeFailed
from .rehearsing import drop_leftovers
from .servers import put_back
from .settling import settle


def roll_back(config: Config, report: Report, *, lose_changes: bool) -> Journal:
    """Put the former database back, in one transaction, and delete its copy; returns the journal.

    Conflict while an appliance runs, or if this release has used the new database and `lose_changes` is not set: what was written
    since the upgrade would be lost.
    """
    make_plan(config)  # before the lock, which makes a folder
    with upgrade_lock(config.data):
        refuse_running(config)
        journal, copy = _find_copy(config, settle(config, report))
        if journal.used_at and not lose_changes:
            raise _used(journal)
        path = file_of(config)
        if path is None:
            _put_back_on_server(config, journal, copy, lose_changes=lose_changes)
        else:
            with exclusive_file(path) as file, full_disks():
                _refuse_other(journal, file.last_migration())
                journals.save_journal(config.data, dataclasses.replace(journal, state=ROLLING_BACK))
                file.replace_with(copy)
        text = f"the database of before the upgrade is back, with migration {journal.from_number}: start the former release"
        ended = dataclasses.replace(journal, state=ROLLED_BACK, ended_at=clock.now_ms(), copy_sha256="")
        journals.save_journal(config.data, ended.with_step("roll back", text))
        copy.unlink()
    report("rolled back", text)
    return ended


def _used(journal: Journal) -> Conflict:
    return Conflict(Sentence(
        "this release has used the database since the upgrade at %(copied)s, and a roll back loses what was written. Add "
        "--lose-changes if that is right; make a backup before, with `gos backup FILE`", copied=clock.rfc3339(journal.copied_at),
    ))  # fmt: skip


def _put_back_on_server(config: Config, journal: Journal, copy: Path, *, lose_changes: bool) -> None:
    def check() -> None:
        _refuse_other(journal, migrations.last_applied())
        if not lose_changes and not migrations.is_marked():
            raise _used(journal)

    def replace() -> None:
        check()  # again, now that nobody else can write
        put_back(copy)

    with opened_database(config):
        check()
        journals.save_journal(config.data, dataclasses.replace(journal, state=ROLLING_BACK))
        with failing_as(Sentence("the former database could not be put back")):
            db.write(replace)


def _find_copy(config: Config, journal: Journal | None) -> tuple[Journal, Path]:
    """The journal of a complete upgrade and the copy of the former database, whose hash is compared.  UpgradeFailed."""
    copy = copy_of(config.data)
    if journal is None or journal.state != DONE or not journal.copy_sha256 or not copy.exists():
        raise _no_copy()
    if hash_file(copy) != journal.copy_sha256:
        raise UpgradeFailed(Sentence(
            "%(copy)s was changed or damaged since the upgrade, so nothing was rolled back; restore a backup with `gos restore`",
            copy=copy,
        ))
    return journal, copy


def _refuse_other(journal: Journal, number: int) -> None:
    """UpgradeFailed unless the database is the one that the upgrade has made: another has been put there since."""
    if number != journal.to_number:
        raise UpgradeFailed(Sentence(
            "the database has migration %(number)s and not %(to)s, to which it was upgraded: it was restored or upgraded again "
            "since, so nothing was rolled back", number=number, to=journal.to_number,
        ))


def _no_copy() -> UpgradeFailed:
    return UpgradeFailed(
        "there is no copy of a former database: none was upgraded, or the copy was deleted. To go back, restore a backup of before "
        "the upgrade, with the release that made it"
    )


def finish(config: Config, report: Report) -> bool:
    """Delete the copy of the former database; returns whether there was one."""
    make_plan(config)
    with upgrade_lock(config.data):
        settle(config, report)
        drop_leftovers(config, report)
        return delete_copy(config.data)


def delete_copy(data: Path) -> bool:
    """Delete the copy of the former database, after which there is no roll back; returns whether there was one."""
    journal, copy = read_journal(data), copy_of(data)
    if journal is None or not copy.exists():
        return False
    copy.unlink()
    journals.save_journal(data, dataclasses.replace(journal, copy_sha256=""))
    return True
