"""Connections to PostgreSQL, through the driver pg8000 on a socket the appliance opened."""

import re
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import pg8000.core
import pg8000.exceptions
import pg8000.native

from appliance.connectors.contract import (
    AuthError,
    ConfigError,
    ConnectorError,
    Context,
    Outcome,
    Rejected,
    SystemFailure,
    TransientError,
)
from gos_connector_sql.connector import SqlConnector
from gos_connector_sql.session import Rows
from gos_connector_sql.statement import Statement
from gos_connector_sql.value import as_json_text, is_json_only

_T = TypeVar("_T")
_BATCH = 500
# SQLSTATE classes, https://www.postgresql.org/docs/current/errcodes-appendix.html
_AUTH = ("28",)
_CONFIG = ("3D000", "3F000")
_TRANSIENT = ("08", "40", "53", "55P03", "57", "58")


class PostgresqlSession:
    """One connection of pg8000."""

    def __init__(self, connector: SqlConnector, ctx: Context) -> None:
        self._deadline = ctx.deadline
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
            raise _connection_error(error, connector) from error

    def begin(self, ctx: Context, *, read_only: bool) -> None:
        self._deadline = ctx.deadline
        self._run_text("BEGIN READ ONLY" if read_only else "BEGIN")
        self._run_text(f"SET LOCAL statement_timeout = {self._remaining_ms()}")

    def read(self, statement: Statement, limit: int) -> Rows:
        """Fetch rows through a cursor, so that rows beyond the limit are not transferred."""
        text = statement.text(_placeholder).strip().rstrip(";")
        declare = f"DECLARE gos_rows NO SCROLL CURSOR FOR {text}"
        self._with_timeout(lambda: self._connection.execute_unnamed(declare, _parameters(statement)), "not_done")
        rows: list[dict[str, Any]] = []
        while len(rows) < limit:
            batch_size = min(_BATCH, limit - len(rows))
            batch = _rows(self._run_text(f"FETCH FORWARD {batch_size} FROM gos_rows"))
            rows += batch
            if len(batch) < batch_size:
                break
        return Rows(rows)

    def run(self, statement: Statement) -> Rows:
        text = statement.text(_placeholder)
        context = self._with_timeout(lambda: self._connection.execute_unnamed(text, _parameters(statement)), "not_done")
        return Rows(_rows(context), max(context.row_count, 0))

    def commit(self) -> None:
        self._with_timeout(lambda: self._connection.execute_simple("COMMIT"), "unknown")

    def rollback(self) -> None:
        self._run_text("ROLLBACK")

    def close(self) -> None:
        # Closing the sockets is enough: the server rolls back, and sending Terminate could block.
        connection = self._connection
        for stream in (connection._usock, self._socket, connection._sock):
            with suppress(OSError, ValueError):  # flushing data to a server that is gone fails
                stream.close()

    def _run_text(self, text: str) -> pg8000.core.Context:
        return self._with_timeout(lambda: self._connection.execute_simple(text), "not_done")

    def _remaining_ms(self) -> int:
        return max(1, int((self._deadline - time.monotonic()) * 1000))

    def _with_timeout(self, operation: Callable[[], _T], outcome_when_lost: Outcome) -> _T:
        """Run `operation` with a timeout slightly longer than the server's, so that the server can report its own timeout."""
        self._connection._usock.settimeout(self._remaining_ms() / 1000 + 0.5)
        try:
            return operation()
        except pg8000.exceptions.DatabaseError as error:
            raise _server_error(error) from error
        except (pg8000.exceptions.InterfaceError, OSError, ssl.SSLError) as error:
            raise TransientError(
                "The connection to PostgreSQL was lost, or it did not answer in time.", outcome=outcome_when_lost
            ) from error
        except (ValueError, TypeError, LookupError) as error:  # bytes that the driver cannot parse
            raise SystemFailure("The server's reply does not follow the PostgreSQL protocol.", outcome=outcome_when_lost) from error


def _placeholder(index: int, _value: Any) -> str:
    return f"${index + 1}"


def _parameters(statement: Statement) -> list[Any]:
    """Values whose type the server infers; a list of plain values is an array, other nested values are JSON."""
    return [as_json_text(value) if is_json_only(value) else value for value in statement.values]


def _rows(context: pg8000.core.Context) -> list[dict[str, Any]]:
    names = [column["name"] for column in context.columns or ()]
    return [dict(zip(names, row, strict=True)) for row in context.rows or ()]


def _connection_error(error: Exception, connector: SqlConnector) -> ConnectorError:
    """The error for a failure to connect or sign in."""
    if isinstance(error, pg8000.exceptions.DatabaseError):
        return _server_error(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return ConfigError(
            f"The certificate of {connector.host} is not trusted ({error.verify_message}); add its certificate authority to `ca`."
        )
    if isinstance(error, pg8000.exceptions.InterfaceError) and "SSL" in str(error):
        return ConfigError("The server does not offer TLS; enable TLS there, or set `tls: off` in a trusted network.")
    if isinstance(error, pg8000.exceptions.InterfaceError | OSError):
        return TransientError(f"{connector.host}:{connector.port} closed the connection during sign-in or did not answer in time.")
    return SystemFailure(f"{connector.host}:{connector.port} does not speak the PostgreSQL protocol.")


def _server_error(error: pg8000.exceptions.DatabaseError) -> ConnectorError:
    """The error for a SQLSTATE, with the server's message."""
    fields = error.args[0] if error.args and isinstance(error.args[0], dict) else {}
    code, text = str(fields.get("C", "")), re.sub(r"\s+", " ", str(fields.get("M", error)))[:500]
    details = {"sqlstate": code}
    for letter, name in (("t", "table"), ("c", "column"), ("n", "constraint")):
        if fields.get(letter):
            details[name] = str(fields[letter])
    if code.startswith(_AUTH):
        return AuthError(f"PostgreSQL does not accept the user and password: {text}", details=details)
    if code in _CONFIG:
        return ConfigError(f"PostgreSQL refused: {text}", details=details)
    if code.startswith(_TRANSIENT):
        return TransientError(f"PostgreSQL failed temporarily: {text}", details=details)
    return Rejected(f"PostgreSQL refused: {text}", details=details)
