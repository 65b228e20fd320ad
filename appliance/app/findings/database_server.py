"""Checks a PostgreSQL server: what killed rehearsals have left on it, and whether it can lock as much as an upgrade does."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from appliance.core.config import Config
from appliance.core.database import db
from appliance.core.errors import ApplianceError

Finding = tuple[str, str]
_STEP = 64
"""The advised setting is a multiple of this, the server's default."""
_ROLL_BACK = 6
"""How many locks a roll back needs for each relation: it drops all and creates them again.  5.5 were measured."""
_RELATIONS = (
    "SELECT count(*) FILTER (WHERE relkind = 'r'), count(*), count(*) FILTER (WHERE reltoastrelid <> 0) FROM pg_class "
    "WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'i', 'S')"
)
_SETTINGS = (
    "SELECT max(setting::bigint) FILTER (WHERE name = 'max_locks_per_transaction'), "
    "sum(setting::bigint) FILTER (WHERE name <> 'max_locks_per_transaction') FROM pg_settings "
    "WHERE name IN ('max_locks_per_transaction', 'max_connections', 'max_prepared_transactions')"
)


def server_findings(config: Config, inspect: Callable[[Config], AbstractContextManager[None]]) -> Iterator[Finding]:
    """Report schemas that killed rehearsals have left, and a table of locks that is too small; nothing on SQLite."""
    if config.database_url.startswith("sqlite:"):
        return
    yield from leftover_findings(config)
    with inspect(config):
        yield from lock_findings()


def leftover_findings(config: Config) -> Iterator[Finding]:
    """Report copies of the database that no rehearsal uses any more."""
    from appliance.core.database.throw_away_schemas import list_abandoned, open_session

    try:
        with open_session(config.database_url) as session:
            schemas = list_abandoned(session)
    except ApplianceError as error:
        yield "note", f"could not look up whether killed rehearsals left copies on the database server: {error.message}"
        return
    for schema in schemas:
        yield "note", (
            f"the schema {schema} on the database server is a copy of all tables, left by a rehearsal of `gos upgrade` that was "
            "killed; run `gos upgrade --finish`, which drops it"
        )


def lock_findings() -> Iterator[Finding]:
    """Report whether the server has room for the locks of a backup and of a roll back; the store must be open."""
    (tables, relations, with_toast), (each, sessions) = db.rows(_RELATIONS)[0], read_settings()
    room, of_backup = each * sessions, relations
    of_roll_back = _ROLL_BACK * (relations + 2 * with_toast)  # long values are in a table of their own, with an index
    enough = -(-of_roll_back // sessions // _STEP) * _STEP
    advice = f"set max_locks_per_transaction to {enough} in postgresql.conf and restart the server"
    has = f"the database server has room for {room} locks (max_locks_per_transaction is {each}, for {sessions} sessions)"
    if room < of_backup:
        yield "FAIL", f"{has}, but a backup locks {tables} tables and their indexes at once, {of_backup} locks: it fails; {advice}"
    elif room < of_roll_back:
        yield "note", (
            f"{has}, but an upgrade and its roll back replace {tables} tables in one transaction, which takes up to {of_roll_back} "
            f"locks: it fails, and changes nothing; {advice} before the next upgrade"
        )
    else:
        yield "ok", f"the database server can lock all {tables} tables in one transaction, as an upgrade and its roll back do"


def read_settings() -> tuple[int, int]:
    """`max_locks_per_transaction`, and the number of sessions and prepared transactions for which there are that many."""
    ((each, sessions),) = db.rows(_SETTINGS)
    return int(each), int(sessions)
