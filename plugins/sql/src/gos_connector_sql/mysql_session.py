"""Connections to MySQL and MariaDB, through the driver PyMySQL on a socket the appliance opened."""

import re
import ssl
import struct
import time
from collections.abc import Callable
from typing import Any, TypeVar

import pymysql
import pymysql.connections
import pymysql.cursors

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
from gos_connector_sql.value import as_json_text

_T = TypeVar("_T")
# Error numbers of both servers that mean something other than a rejected statement.
_AUTH = frozenset({1044, 1045, 1130, 1251, 1698, 1862, 3118})
_CONFIG = frozenset({1049, 1115})
_TRANSIENT = frozenset({1040, 1053, 1105, 1129, 1203, 1205, 1213, 1226, 1317, 1927, 1969, 3024})
_LOST = frozenset({0, 2002, 2003, 2006, 2013, 2014, 2026, 2027, 4031})
_LOST_MESSAGE = "The connection was lost, or the server did not answer in time."


class MysqlSession:
    """One connection of PyMySQL, in strict mode with backslash escapes, UTC and utf8mb4."""

    def __init__(self, connector: SqlConnector, ctx: Context) -> None:
        self._deadline = ctx.deadline
        tls = connector.tls()
        settings = connector.settings
        seconds = self._remaining_ms() / 1000 + 0.5
        self._connection = pymysql.connections.Connection(
            host=connector.host, port=connector.port, user=settings["user"], password=settings.get("password", "").encode(),
            database=settings["database"], charset="utf8mb4", autocommit=False, defer_connect=True, local_infile=False,
            connect_timeout=10, read_timeout=seconds, write_timeout=seconds, ssl=tls, ssl_disabled=tls is None, program_name="gos",
            init_command="SET SESSION time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
        )  # fmt: skip
        self._socket = ctx.dial(connector.host, connector.port)
        try:
            self._connection.connect(self._socket)
        except Exception as error:
            self._socket.close()
            raise _connection_error(error, connector) from error
        # On a timeout the driver drops its references to these without closing them.
        self._wire = (self._connection._rfile, self._connection._sock)
        self._is_mariadb = "mariadb" in str(self._connection.get_server_info()).lower()

    def begin(self, ctx: Context, *, read_only: bool) -> None:
        self._deadline = ctx.deadline
        remaining_ms = self._remaining_ms()
        limit = f"max_statement_time = {remaining_ms / 1000:.3f}" if self._is_mariadb else f"max_execution_time = {remaining_ms}"
        self._run_text(f"SET SESSION {limit}")
        self._run_text("START TRANSACTION READ ONLY" if read_only else "START TRANSACTION")

    def read(self, statement: Statement, limit: int) -> Rows:
        """Fetch rows unbuffered; when there are more than `limit`, the connection is closed instead of reading them."""
        if _is_no_query(statement):
            raise Rejected(
                "`query` accepts SELECT, WITH, SHOW, DESCRIBE, EXPLAIN and VALUES; use `execute` for statements that change data."
            )
        cursor = self._connection.cursor(pymysql.cursors.SSDictCursor)
        text = self._text(statement)
        rows = self._with_timeout(lambda: (cursor.execute(text), list(cursor.fetchmany(limit)))[1], "not_done")
        if len(rows) == limit:
            self._abandon_cursor(cursor)
        else:
            self._with_timeout(cursor.close, "not_done")
        return Rows(rows)

    def run(self, statement: Statement) -> Rows:
        """Run a statement. DDL commits implicitly, so if the connection is lost meanwhile its outcome is unknown."""
        text = self._text(statement)
        cursor = self._connection.cursor(pymysql.cursors.DictCursor)
        self._with_timeout(lambda: cursor.execute(text), "unknown" if _commits_implicitly(text) else "not_done")
        return Rows(list(cursor.fetchall()), max(cursor.rowcount, 0) if cursor.description is None else 0)

    def commit(self) -> None:
        self._with_timeout(self._connection.commit, "unknown")

    def rollback(self) -> None:
        if self._connection.open:
            self._with_timeout(self._connection.rollback, "not_done")

    def close(self) -> None:
        self._connection._force_close()
        for stream in (*self._wire, self._socket):
            stream.close()

    def _abandon_cursor(self, cursor: Any) -> None:
        """Close the connection instead of the cursor, because closing the cursor would read all remaining rows."""
        cursor._result.unbuffered_active = False
        self.close()

    def _run_text(self, text: str) -> None:
        self._with_timeout(lambda: self._connection.query(text), "not_done")

    def _text(self, statement: Statement) -> str:
        """The text with values escaped for this connection's mode and character set; objects and lists as JSON."""
        connection = self._connection

        def format_value(_index: int, value: Any) -> str:
            return str(connection.escape(as_json_text(value) if isinstance(value, dict | list) else value, connection.encoders))

        return statement.text(format_value)

    def _remaining_ms(self) -> int:
        return max(1, int((self._deadline - time.monotonic()) * 1000))

    def _with_timeout(self, operation: Callable[[], _T], outcome_when_lost: Outcome) -> _T:
        """Run `operation` with a timeout slightly longer than the server's, so that the server can report its own timeout."""
        seconds = self._remaining_ms() / 1000 + 0.5
        self._connection._read_timeout = self._connection._write_timeout = seconds
        try:
            return operation()
        except pymysql.err.Error as error:
            raise _server_error(error, outcome_when_lost) from error
        except (OSError, ssl.SSLError) as error:
            raise TransientError(_LOST_MESSAGE, outcome=outcome_when_lost) from error
        except (ValueError, TypeError, LookupError, struct.error, AssertionError, AttributeError) as error:
            raise SystemFailure("The server's reply does not follow the MySQL protocol.", outcome=outcome_when_lost) from error


_READS = re.compile(
    r"(?:\s|/\*(?!!).*?\*/|--[^\n]*\n|#[^\n]*\n|\()*(select|with|show|describe|desc|explain|values|table)\b",
    re.IGNORECASE | re.DOTALL,
)
_DDL = re.compile(
    r"(?:\s|/\*.*?\*/|--[^\n]*\n|#[^\n]*\n)*(create|alter|drop|truncate|rename|grant|revoke|analyze|optimize|call|do)\b",
    re.IGNORECASE | re.DOTALL,
)


def _is_no_query(statement: Statement) -> bool:
    return _READS.match(statement.parts[0]) is None


def _commits_implicitly(text: str) -> bool:
    return _DDL.match(text) is not None


def _connection_error(error: Exception, connector: SqlConnector) -> ConnectorError:
    """The error for a failure to connect or sign in."""
    cause = (
        error.original_exception
        if isinstance(error, pymysql.err.OperationalError) and hasattr(error, "original_exception")
        else error
    )
    if isinstance(cause, ssl.SSLCertVerificationError):
        return ConfigError(
            f"The certificate of {connector.host} is not trusted ({cause.verify_message}); add its certificate authority to `ca`."
        )
    if isinstance(error, pymysql.err.OperationalError) and error.args[0] == 2026:
        return ConfigError("The server does not offer TLS; enable TLS there, or set `tls: off` in a trusted network.")
    if isinstance(error, pymysql.err.Error):
        server_error = _server_error(error, "not_done")
        if not isinstance(server_error, TransientError):
            return server_error
    if isinstance(error, pymysql.err.Error | OSError):
        return TransientError(f"{connector.host}:{connector.port} closed the connection during sign-in or did not answer in time.")
    return SystemFailure(f"{connector.host}:{connector.port} does not speak the MySQL protocol.")


def _server_error(error: pymysql.err.Error, outcome_when_lost: Outcome) -> ConnectorError:
    """The error for an error number of the server, with the server's message."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = re.sub(r"\s+", " ", str(error.args[1] if len(error.args) > 1 else error))[:500]
    details = {"error_number": code}
    if code in _LOST:
        return TransientError(_LOST_MESSAGE, outcome=outcome_when_lost, details=details)
    if code in _AUTH:
        return AuthError(f"The server does not accept the user and password: {text}", details=details)
    if code in _CONFIG:
        return ConfigError(f"The server refused: {text}", details=details)
    if code in _TRANSIENT:
        return TransientError(f"The server failed temporarily: {text}", details=details)
    return Rejected(f"The server refused: {text}", details=details)
