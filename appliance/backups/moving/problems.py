"""Errors of a move."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from appliance.backups.problems import full_disks
from appliance.core.database import DatabaseError
from appliance.core.errors import ApplianceError
from appliance.core.sentences import Sentence

Report = Callable[[str, int, int], None]
"""Called with a stage, such as the name of a table, how much of it is done, and its total."""


class MoveFailed(ApplianceError):
    """The move stopped; the source is unchanged, and the same command goes on, unless the message says otherwise."""

    code, status = "move_failed", 409


@contextmanager
def database_errors(what: str) -> Iterator[None]:
    """Raises MoveFailed for an error of either database, StorageFull for a full disk."""
    try:
        with full_disks():
            yield
    except (DatabaseError, sqlite3.Error) as error:
        raise MoveFailed(Sentence(
            "%(what)s failed (%(reason)s); the source is unchanged. Correct the cause and run the same command again",
            what=what, reason=" ".join(str(error).split())[:300],
        )) from error
