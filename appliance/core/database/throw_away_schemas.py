"""Schemas that are thrown away, beside that of the appliance in the same PostgreSQL database, for copies of its tables.

Name and comment mark such a schema, and nothing without both is dropped.  Each session that fills it shares an advisory lock, which
ends with the session, so that others can drop what a process has left that was killed.
"""

import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from urllib.parse import quote, urlsplit

import psycopg
from psycopg.sql import SQL, Identifier, Literal

from appliance.core.errors import Conflict, StorageFull
from appliance.core.sentences import Sentence

from .advisory_locks import THROW_AWAY, lock_number, signed

Session = psycopg.Connection[tuple[object, ...]]

_SETTINGS = "SET lock_timeout = '20s'; SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0"
# The server ends what it does for a process that was killed; it cannot notice that on every operating system.
_NOTICE_END = "SET client_connection_check_interval = '2s'"
_MARKED = (
    "SELECT nspname FROM pg_namespace WHERE starts_with(nspname, %s) AND obj_description(oid, 'pg_namespace') = %s || nspname "
    "AND pg_has_role(nspowner, 'USAGE') ORDER BY nspname"
)
_MARK = "A copy that is thrown away, made by gos: "


def name_schema() -> str:
    """The name of a new schema."""
    return THROW_AWAY + secrets.token_hex(6)


def url_in(url: str, options: str, schema: str) -> str:
    """The URL of a database, with this schema instead of that in its options or in those of the environment (`options`)."""
    parts = urlsplit(url)
    others = [each for each in parts.query.split("&") if each and not each.startswith("options=")]
    path = quote(f"{options} -c search_path={schema}".strip())
    return parts._replace(query="&".join([*others, f"options={path}"])).geturl()


@contextmanager
def open_session(url: str) -> Iterator[Session]:
    """A session that commits each statement, and is not ended because a statement, or a transaction, takes long.

    StorageFull if the disk of the server is full, Conflict for other errors of the server.
    """
    try:
        with closing(psycopg.connect(url, autocommit=True, connect_timeout=10, client_encoding="utf8")) as session:
            session.execute(_SETTINGS)
            with suppress(psycopg.errors.InvalidParameterValue):
                session.execute(_NOTICE_END)
            yield session
    except psycopg.errors.DiskFull as error:
        raise StorageFull(Sentence("the disk of the database server is full (%(reason)s)", reason=_words(error))) from error
    except psycopg.Error as error:
        raise Conflict(Sentence("the database server answered with an error (%(reason)s)", reason=_words(error))) from error


def _words(error: psycopg.Error) -> str:
    """The message of the server in one line, without the statement."""
    return error.diag.message_primary or " ".join(str(error).split())


@contextmanager
def sharing(session: Session, schema: str) -> Iterator[None]:
    """In the block, while the session lasts, others do not drop the schema."""
    session.execute("SELECT pg_advisory_lock_shared(%s)", (_lock_of(schema),))
    try:
        yield
    finally:
        if not session.closed:  # now, as the server may end a session a little later than it is closed
            session.execute("SELECT pg_advisory_unlock_shared(%s)", (_lock_of(schema),))


def may_create(session: Session) -> bool:
    """Whether the role may create a schema in the database."""
    return session.execute("SELECT has_database_privilege(current_database(), 'CREATE')").fetchone() == (True,)


def grant_statement(session: Session) -> str:
    """The statement by which the owner of the database, or a superuser, lets the role create schemas."""
    row = session.execute("SELECT format('GRANT CREATE ON DATABASE %I TO %I', current_database(), current_user)").fetchone()
    return str(row[0]) if row else ""


def create_schema(session: Session, schema: str) -> None:
    """Create a marked schema."""
    with session.transaction():
        session.execute(SQL("CREATE SCHEMA {}").format(Identifier(schema)))
        session.execute(SQL("COMMENT ON SCHEMA {} IS {}").format(Identifier(schema), Literal(_MARK + schema)))


def marked_schemas(session: Session) -> list[str]:
    """The schemas that are marked, and belong to the role."""
    return [str(name) for (name,) in session.execute(_MARKED, (THROW_AWAY, _MARK))]


def list_abandoned(session: Session) -> list[str]:
    """The marked schemas that no session uses."""
    return [schema for schema in marked_schemas(session) if _is_abandoned(session, schema)]


def _is_abandoned(session: Session, schema: str) -> bool:
    """Whether no session uses it; the lock ends with the statement."""
    return session.execute("SELECT pg_try_advisory_xact_lock(%s)", (_lock_of(schema),)).fetchone() == (True,)


def drop_abandoned(session: Session) -> list[str]:
    """Drop the marked schemas that no session uses; returns their names."""
    return [schema for schema in marked_schemas(session) if drop_schema(session, schema)]


def drop_schema(session: Session, schema: str) -> bool:
    """Drop a marked schema unless a session uses it; returns whether it was dropped.

    Each table is dropped by itself: all at once would take a place in the server's table of locks for each.
    """
    if session.execute("SELECT pg_try_advisory_lock(%s)", (_lock_of(schema),)).fetchone() != (True,):
        return False
    try:
        if schema not in marked_schemas(session):
            return False
        for (table,) in session.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall():
            session.execute(SQL("DROP TABLE {} CASCADE").format(Identifier(schema, str(table))))
        session.execute(SQL("DROP SCHEMA {} CASCADE").format(Identifier(schema)))
        return True
    finally:
        session.execute("SELECT pg_advisory_unlock(%s)", (_lock_of(schema),))


def _lock_of(schema: str) -> int:
    return signed(lock_number(f"schema:{schema}"))
