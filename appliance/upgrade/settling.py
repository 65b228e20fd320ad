"""Settles an upgrade or roll back whose process was killed, or that failed in its transaction."""

import dataclasses

from appliance import migrations
from appliance.core import clock
from appliance.core.config import Config

from .checks import opened_database
from .journal import (
    DONE,
    FAILED,
    PREPARING,
    ROLLED_BACK,
    ROLLING_BACK,
    SWAPPING,
    UNFINISHED,
    Journal,
    copy_of,
    read_journal,
    save_journal,
)
from .options import Report

_NEW = "the last upgrade ended without a word after its transaction: the new database is in its place"
_OLD = "the last upgrade ended before it changed the database, which is the former one"
_BACK = "the last roll back ended without a word after its transaction: the former database is back"
_NOT_BACK = "the last roll back ended before it changed the database, which is the new one"


def settle(config: Config, report: Report) -> Journal | None:
    """Record what an upgrade whose process was killed has left: the old database or the new one; returns the journal.

    The lock is held.  A roll back that did not come to its transaction leaves the new database, and can be repeated.
    """
    journal = read_journal(config.data)
    if journal is None or journal.state not in UNFINISHED:
        return journal
    with opened_database(config):
        is_new = migrations.last_applied() == journal.to_number
    if journal.state == ROLLING_BACK:
        state, text = (DONE, _NOT_BACK) if is_new else (ROLLED_BACK, _BACK)
    else:
        state, text = (DONE, _NEW) if journal.state == SWAPPING and is_new else (FAILED, _OLD)
    if state == ROLLED_BACK or journal.state == PREPARING:
        copy_of(config.data).unlink(missing_ok=True)
        journal = dataclasses.replace(journal, copy_sha256="")
    journal = dataclasses.replace(journal, state=state, ended_at=clock.now_ms())
    save_journal(config.data, journal.with_step("settle", text))
    report("settle", text)
    return journal
