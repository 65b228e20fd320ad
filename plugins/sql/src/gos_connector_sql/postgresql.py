"""PostgreSQL, by the driver pg8000 on a socket that the appliance has opened."""

import re
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, ClassVar, TypeVar

import pg8000.core
import pg8000.exceptions
import pg8000.native

from appliance.connectors.contract import (
    AuthError,
    ConfigError,
    ConnectorError,
    Context,
    Json,
    Outcome,
    Rejected,
    SystemFailure,
    TransientError,
)
from gos_connector_sql.connector import SqlConnector
from gos_connector_sql.declaration import settings_schema
from gos_connector_sql.session import Rows, Session
from gos_connector_sql.statement import Builder, Statement, parse
from gos_connector_sql.value import as_json_text, is_json_only

_T = TypeVar("_T")
_BATCH = 500
# SQLSTATE classes, https://www.postgresql.org/docs/current/errcodes-appendix.html
_AUTH = ("28",)
_CONFIG = ("3D000", "3F000")
_TRANSIENT = ("08", "40", "53", "55P03", "57", "58")
_DESCRIBE = """
SELECT CASE WHEN n.nspname = current_schema() THEN c.relname ELSE n.nspname || '.' || c.relname END AS "table",
       CASE WHEN c.relkind IN ('v', 'm') THEN 'view' ELSE 'table' END AS kind,
       a.attname AS "column", format_type(a.atttypid, a.atttypmod) AS "type", NOT a.attnotnull AS nullable,
       coalesce(array_position(i.indkey::int2[], a.attnum) + 1, 0) AS key
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
  AND n.nspname NOT LIKE 'pg_toast%' AND has_table_privilege(c.oid, 'SELECT')
  AND (:table::text IS NULL OR :table::text IN (c.relname, n.nspname || '.' || c.relname))
ORDER BY n.nspname, c.relname, a.attnum
"""


class PostgresqlConnector(SqlConnector):
    """PostgreSQL 12 or later."""

    name = "postgresql"
    title = "PostgreSQL"
    tested_against = "PostgreSQL 15"
    usual_port = 5432
    settings_schema: ClassVar[Json] = settings_schema(5432)
    builder = Builder('"')
    backslashes = False

    def connect(self, ctx: Context) -> Session:
        return PostgresqlSession(self, ctx)

    def upsert(self, table: str, key: list[str], columns: list[str], rows: list[Mapping[str, Any]]) -> Statement:
        names = ", ".join(self.builder.name(column) for column in key)
        others = [self.builder.name(column) for column in columns if column not in key]
        sets = ", ".join(f"{name} = EXCLUDED.{name}" for name in others)
        end = f" ON CONFLICT ({names}) DO " + (f"UPDATE SET {sets}" if sets else "NOTHING")
        return self.builder.insert(table, columns, rows, end)

    def describe(self, session: Session, table: str | None) -> list[dict[str, Any]]:
        return session.run(parse(_DESCRIBE, {"table": table}, backslashes=False)).rows


class PostgresqlSession:
    """One connection of pg8000."""

    def __init__(self, connector: PostgresqlConnector, ctx: Context) -> None:
        self._deadline = ctx.deadline
        self._writes = False
        tls = connector.tls()
        settings = connector.settings
        self._socket = ctx.dial(connector.host, connector.port)
        try:
            self._connection = pg8000.native.Connection(
                settings["user"],
                host=connector.host,
                port=connector.port,
                database=settings["database"],
                password=settings.get("password", ""),
                ssl_context=tls if tls is not None else False,
                sock=self._socket,
                application_name="gos",
            )
        except Exception as error:
            self._socket.close()
            raise _connecting(error, connector) from error

    def begin(self, ctx: Context, *, read_only: bool) -> None:
        self._deadline = ctx.deadline
        self._writes = not read_only
        self._plain("BEGIN READ ONLY" if read_only else "BEGIN")
        self._plain(f"SET LOCAL statement_timeout = {self._left_ms()}")

    def read(self, statement: Statement, limit: int) -> Rows:
        """By a cursor, so that rows beyond the limit stay at the server."""
        text = statement.text(_placeholder).strip().rstrip(";")
        self._guarded(
            lambda: self._connection.execute_unnamed(f"DECLARE gos_rows NO SCROLL CURSOR FOR {text}", _bound(statement)), "not_done"
        )
        rows: list[dict[str, Any]] = []
        while len(rows) < limit:
            wanted = min(_BATCH, limit - len(rows))
            found = _rows(self._plain(f"FETCH FORWARD {wanted} FROM gos_rows"))
            rows += found
            if len(found) < wanted:
                break
        return Rows(rows)

    def run(self, statement: Statement) -> Rows:
        text = statement.text(_placeholder)
        context = self._guarded(lambda: self._connection.execute_unnamed(text, _bound(statement)), "not_done")
        return Rows(_rows(context), max(context.row_count, 0))

    def commit(self) -> None:
        self._guarded(lambda: self._connection.execute_simple("COMMIT"), "unknown")

    def rollback(self) -> None:
        self._plain("ROLLBACK")

    def close(self) -> None:
        # Hanging up is enough: the server undoes what was not committed, and a farewell could block.
        connection = self._connection
        for end in (connection._usock, self._socket, connection._sock):
            with suppress(OSError, ValueError):  # what was still to be sent to a server that is gone
                end.close()

    def _plain(self, text: str) -> pg8000.core.Context:
        return self._guarded(lambda: self._connection.execute_simple(text), "not_done")

    def _left_ms(self) -> int:
        return max(1, int((self._deadline - time.monotonic()) * 1000))

    def _guarded(self, work: Callable[[], _T], when_lost: Outcome) -> _T:
        """What the driver answers, with a little longer than the server has to say that it was too slow."""
        self._connection._usock.settimeout(self._left_ms() / 1000 + 0.5)
        try:
            return work()
        except pg8000.exceptions.DatabaseError as error:
            raise _refusal(error) from error
        except (pg8000.exceptions.InterfaceError, OSError, ssl.SSLError) as error:
            raise TransientError(
                "The connection to PostgreSQL was lost, or it did not answer in time.", outcome=when_lost
            ) from error
        except (ValueError, TypeError, LookupError) as error:  # bytes the driver cannot read as PostgreSQL's
            raise SystemFailure("The server's answer is not PostgreSQL's.", outcome=when_lost) from error


def _placeholder(index: int, _value: Any) -> str:
    return f"${index + 1}"


def _bound(statement: Statement) -> list[Any]:
    """Values as text whose type the server infers; a list of plain values is an array, all else that is deep JSON."""
    return [as_json_text(value) if is_json_only(value) else value for value in statement.values]


def _rows(context: pg8000.core.Context) -> list[dict[str, Any]]:
    names = [column["name"] for column in context.columns or ()]
    return [dict(zip(names, row, strict=True)) for row in context.rows or ()]


def _connecting(error: Exception, connector: PostgresqlConnector) -> ConnectorError:
    """What failed before there was a session."""
    if isinstance(error, pg8000.exceptions.DatabaseError):
        return _refusal(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return ConfigError(
            f"The certificate of {connector.host} is not trusted ({error.verify_message}); give its authority in `ca`."
        )
    if isinstance(error, pg8000.exceptions.InterfaceError) and "SSL" in str(error):
        return ConfigError("The server offers no TLS; switch TLS on there, or set `tls: off` where the network is trusted.")
    if isinstance(error, pg8000.exceptions.InterfaceError | OSError):
        return TransientError(f"{connector.host}:{connector.port} hung up while signing in, or did not answer in time.")
    return SystemFailure(f"{connector.host}:{connector.port} does not speak PostgreSQL's protocol.")


def _refusal(error: pg8000.exceptions.DatabaseError) -> ConnectorError:
    """The server's own words, by its SQLSTATE."""
    told = error.args[0] if error.args and isinstance(error.args[0], dict) else {}
    code, text = str(told.get("C", "")), re.sub(r"\s+", " ", str(told.get("M", error)))[:500]
    details = {"sqlstate": code}
    for letter, name in (("t", "table"), ("c", "column"), ("n", "constraint")):
        if told.get(letter):
            details[name] = str(told[letter])
    if code.startswith(_AUTH):
        return AuthError(f"PostgreSQL does not let this user in: {text}", details=details)
    if code in _CONFIG:
        return ConfigError(f"PostgreSQL refused: {text}", details=details)
    if code.startswith(_TRANSIENT):
        return TransientError(f"PostgreSQL could not do it now: {text}", details=details)
    return Rejected(f"PostgreSQL refused: {text}", details=details)
