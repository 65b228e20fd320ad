"""What is checked before an upgrade changes or copies anything."""

import os
import pwd
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from appliance import migrations
from appliance.blobs import INSTALLATION
from appliance.connectors.registry import CONNECTORS, load_registry
from appliance.core.config import Config
from appliance.core.crypto import has_keys, load_keys
from appliance.core.database import DatabaseError, db
from appliance.core.database.presence import is_any_alive, is_any_other_alive
from appliance.core.errors import ApplianceError, ConfigInvalid, Conflict, StorageFull
from appliance.core.sentences import Sentence
from appliance.master_key import check_keys

from .problems import UpgradeFailed

SQLITE = "sqlite:///"
SPARE_BYTES = 1 << 30
_FULL = ("is full", "disk I/O", "No space left")
"""Of SQLite and of PostgreSQL, whose disk it is then."""


@dataclass(frozen=True)
class Plan:
    """The last migration of the database and of this release, the number of those between, and its size in bytes."""

    from_number: int
    to_number: int
    pending: int
    size: int


def file_of(config: Config) -> Path | None:
    """The SQLite file of the database; None if it is on a server."""
    url = config.database_url
    return Path(url.removeprefix(SQLITE)) if url.startswith(SQLITE) else None


def opened_database(config: Config) -> AbstractContextManager[None]:
    """The database with whatever schema it has; nothing is created or migrated."""
    return opened_url(config.database_url)


@contextmanager
def opened_url(url: str) -> Iterator[None]:
    """The database at a URL with whatever schema it has."""
    db.open_database(url)
    try:
        yield
    finally:
        db.close_database()


def make_plan(config: Config) -> Plan:
    """Check the data folder, the schema and the master key.  ConfigInvalid."""
    file = file_of(config)
    if not has_keys(config) or (file is not None and not file.exists()):
        raise ConfigInvalid(Sentence("%(data)s has no appliance data; name its folder with --data", data=config.data))
    _refuse_other_user(file or config.data / INSTALLATION)
    with opened_database(config):
        migrations.refuse_unsupported()
        if not migrations.is_begun():
            raise ConfigInvalid("the database is empty, so there is nothing to upgrade; start the appliance, or type `gos init`")
        check_keys(config, load_keys(config))
        return Plan(migrations.last_applied(), migrations.last_number(), migrations.pending(), db.get_size())


def _refuse_other_user(path: Path) -> None:
    """Conflict for root if the data belong to another user, who could not use the files that root would make."""
    if os.geteuid() == 0 and path.exists() and (owner := path.stat().st_uid) != 0:
        raise Conflict(Sentence(
            "%(path)s belongs to the user %(owner)s, so run this command as that user, as in `sudo -u gos …`: the service could "
            "not change what root would write. Nothing was changed", path=path, owner=_name_user(owner),
        ))


def _name_user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # of another machine or container
        return str(number)


def connector_problems(config: Config) -> list[str]:
    """A sentence for each connector that this release cannot use."""
    return [
        f"the connector {each.name} ({each.distribution}) cannot be used: {each.message}"
        for each in load_registry(folder=config.data / CONNECTORS).problems
    ]


def refuse_running(config: Config) -> None:
    """Conflict while an appliance runs on the data folder or, with PostgreSQL, on the database."""
    with opened_database(config):
        is_running = is_any_alive(config.data / "workers") or is_any_other_alive()
    if is_running:
        raise Conflict(Sentence(
            "an appliance is running on %(data)s: stop it, then run `gos upgrade` again. While it runs, `gos upgrade --rehearse` "
            "upgrades a copy and says how long it takes", data=config.data,
        ))


def refuse_full_disk(config: Config, plan: Plan, copies: int) -> None:
    """StorageFull unless the disk of the data folder has space for so many copies of the database, and 1 GiB more."""
    needed, free = copies * plan.size + SPARE_BYTES, shutil.disk_usage(config.data).free
    if free < needed:
        raise StorageFull(Sentence(
            "%(free)s MiB are free on the disk of %(data)s, and the upgrade of a database of %(size)s MiB needs %(needed)s MiB; "
            "free space, then try again. Nothing was changed",
            free=free >> 20, data=config.data, size=plan.size >> 20, needed=needed >> 20,
        ))


@contextmanager
def failing_as(step: Sentence) -> Iterator[None]:
    """UpgradeFailed, with the reason, for whatever fails in a step before the database has been changed."""
    try:
        yield
    except UpgradeFailed:
        raise
    except (ApplianceError, DatabaseError, sqlite3.Error, OSError, ValueError, KeyError, TypeError) as error:
        raise UpgradeFailed(Sentence("%(step)s: %(reason)s", step=step, reason=_explain(error))) from error


def _explain(error: Exception) -> str:
    if isinstance(error, ApplianceError):
        return error.message
    if isinstance(error, DatabaseError | sqlite3.Error) and any(words in str(error) for words in _FULL):
        return Sentence("the disk is full or cannot be written (%(error)s); free space, then try again", error=error)
    return f"{type(error).__name__}: {error}"
