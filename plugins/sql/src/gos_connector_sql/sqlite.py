"""SQLite: a database file in a folder that the operator allows for connectors."""

import re
import sqlite3
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar
from urllib.parse import quote

from appliance.connectors.contract import (
    ConfigError,
    ConnectorError,
    Context,
    Folder,
    Json,
    Outcome,
    Rejected,
    SystemFailure,
    TransientError,
)
from gos_connector_sql.connector import SqlConnector
from gos_connector_sql.session import Rows, Session
from gos_connector_sql.statement import Builder, Statement, parse
from gos_connector_sql.value import as_json_text

_T = TypeVar("_T")
# The limit for a value, a row or a statement; short SQL such as zeroblob(…) can produce huge values.
_MAX_BYTES = 32 * 1024 * 1024
_STEPS_BETWEEN_CHECKS = 20_000
_READING_PRAGMAS = frozenset(
    {"table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo", "foreign_key_list", "user_version"}
)
_MODULES = frozenset({"fts4", "fts5", "rtree", "geopoly"})
_DENIED_FUNCTIONS = frozenset({"load_extension", "fts3_tokenizer"})
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_BROKEN = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})
_DESCRIBE = """
SELECT m.name AS "table", m.type AS kind, c.name AS "column", c.type AS type, NOT c."notnull" AS nullable, c.pk AS key
FROM sqlite_master m JOIN pragma_table_info(m.name) c
WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite~_%' ESCAPE '~' AND (:table IS NULL OR m.name = :table)
ORDER BY m.name, c.cid
"""
_CHECK = """
SELECT sqlite_version() || ', ' || count(*) || ' tables and views' AS version FROM sqlite_master WHERE type IN ('table', 'view')
"""


class SqliteConnector(SqlConnector):
    """One database file."""

    name = "sqlite"
    title = "SQLite"
    tested_against = "SQLite 3.40"
    default_port = 0
    reuses_sessions = False
    settings_schema: ClassVar[Json] = {
        "type": "object",
        "required": ["folder", "file"],
        "additionalProperties": False,
        "properties": {
            "folder": {
                "type": "string",
                "pattern": "^/",
                "maxLength": 1000,
                "title": "Folder",
                "description": "A folder on the appliance's machine that the operator allows for connectors (folders.allow)",
            },
            "file": {
                "type": "string",
                "minLength": 1,
                "maxLength": 1000,
                "title": "File",
                "description": "Its path within the folder",
            },
        },
    }
    builder = Builder('"')
    backslashes = False
    version_query = _CHECK

    def connect(self, ctx: Context) -> Session:
        return SqliteSession(ctx.folder(self.settings["folder"]), self.settings["file"])

    def upsert(self, table: str, key: list[str], columns: list[str], rows: list[Mapping[str, Any]]) -> Statement:
        names = ", ".join(self.builder.name(column) for column in key)
        others = [self.builder.name(column) for column in columns if column not in key]
        sets = ", ".join(f"{name} = excluded.{name}" for name in others)
        end = f" ON CONFLICT ({names}) DO " + (f"UPDATE SET {sets}" if sets else "NOTHING")
        return self.builder.insert(table, columns, rows, end)

    def describe(self, session: Session, table: str | None) -> list[dict[str, Any]]:
        return session.run(parse(_DESCRIBE, {"table": table}, backslashes=False)).rows


class SqliteSession:
    """The file, opened for one transaction; the folder's permission is checked each time."""

    def __init__(self, folder: Folder, file: str) -> None:
        self._folder, self._file = folder, file
        self._connection: sqlite3.Connection | None = None
        self._is_internal = True
        self._deadline = 0.0

    def begin(self, ctx: Context, *, read_only: bool) -> None:
        self._deadline = ctx.deadline
        path = self._folder.place(self._file, for_writing=not read_only)
        uri = f"file:{quote(path)}?mode={'ro' if read_only else 'rw'}"
        # Another thread may close the session; two threads never use it at once.
        connection = self._with_errors(
            lambda: sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=self._remaining())
        )
        self._connection = connection
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_BYTES)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.set_progress_handler(lambda: time.monotonic() >= self._deadline, _STEPS_BETWEEN_CHECKS)
        connection.set_authorizer(self._authorize)
        self._run_internal("PRAGMA trusted_schema = OFF")
        self._run_internal("PRAGMA foreign_keys = ON")
        self._run_internal(f"PRAGMA query_only = {'ON' if read_only else 'OFF'}")
        self._run_internal("BEGIN" if read_only else "BEGIN IMMEDIATE")

    def read(self, statement: Statement, limit: int) -> Rows:
        return Rows(self._with_errors(lambda: _to_rows(self._execute(statement), limit)))

    def run(self, statement: Statement) -> Rows:
        def operation() -> Rows:
            cursor = self._execute(statement)
            rows = _to_rows(cursor)
            return Rows(rows, max(cursor.rowcount, 0) or (len(rows) if self._returns_changed_rows(statement) else 0))

        return self._with_errors(operation)

    def commit(self) -> None:
        self._run_internal("COMMIT", "unknown")
        self.close()

    def rollback(self) -> None:
        self._run_internal("ROLLBACK")
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            raise SystemFailure("The database file is not open.")
        return self._connection

    def _execute(self, statement: Statement) -> sqlite3.Cursor:
        self._is_internal = False
        values = [as_json_text(value) if isinstance(value, dict | list) else value for value in statement.values]
        return self._open().execute(statement.text(lambda _index, _value: "?"), values)

    def _returns_changed_rows(self, statement: Statement) -> bool:
        """Whether the returned rows are changed rows (RETURNING)."""
        return re.match(r"\s*(insert|update|delete|replace|with)\b", statement.parts[0], re.IGNORECASE) is not None and (
            self._open().total_changes > 0
        )

    def _run_internal(self, text: str, outcome_when_lost: Outcome = "not_done") -> None:
        self._is_internal = True
        self._with_errors(lambda: self._open().execute(text), outcome_when_lost)

    def _authorize(self, operation: int, first: str | None, second: str | None, _database: str | None, _by: str | None) -> int:
        """Deny statements of callers that would leave the file, end the transaction or change settings."""
        if self._is_internal:
            return sqlite3.SQLITE_OK
        if operation in (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_SAVEPOINT):
            return sqlite3.SQLITE_DENY
        if operation == sqlite3.SQLITE_PRAGMA and str(first).lower() not in _READING_PRAGMAS:
            return sqlite3.SQLITE_DENY
        if operation == sqlite3.SQLITE_PRAGMA and first == "user_version" and second:
            return sqlite3.SQLITE_DENY
        if operation == sqlite3.SQLITE_FUNCTION and str(second).lower() in _DENIED_FUNCTIONS:
            return sqlite3.SQLITE_DENY
        if operation == sqlite3.SQLITE_CREATE_VTABLE and str(second).lower() not in _MODULES:
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    def _remaining(self) -> float:
        return max(0.01, self._deadline - time.monotonic())

    def _with_errors(self, operation: Callable[[], _T], outcome_when_lost: Outcome = "not_done") -> _T:
        try:
            return operation()
        except sqlite3.Error as error:
            raise self._error(error, outcome_when_lost) from error
        except sqlite3.Warning as error:
            raise Rejected("A call runs only one statement; send each of the others in a separate call.") from error
        except (OverflowError, ValueError, TypeError) as error:
            raise Rejected(f"SQLite cannot store a value: {error}.") from error

    def _error(self, error: sqlite3.Error, outcome_when_lost: Outcome) -> ConnectorError:
        """The error for an SQLite result code, with SQLite's message."""
        code = getattr(error, "sqlite_errorcode", None)
        primary = code & 0xFF if isinstance(code, int) else None
        text, details = str(error)[:500], {"result_code": code}
        if primary in _BUSY:
            return TransientError(f"Another program has locked {self._file} ({text}); try again later.", details=details)
        if primary == sqlite3.SQLITE_INTERRUPT:
            return TransientError("The statement did not end in time and was rolled back.", details=details)
        if primary == sqlite3.SQLITE_AUTH:
            return Rejected(f"This statement is not allowed: {text}. It can use only its own file, in one transaction.")
        if primary == sqlite3.SQLITE_READONLY:
            return Rejected(f"This action cannot change {self._file} ({text}); use `execute` for statements that change data.")
        if primary in _BROKEN:
            return ConfigError(f"{self._file} is not an SQLite database or is damaged ({text}).", details=details)
        if primary in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL):
            return TransientError(f"{self._file} cannot be read or written ({text}).", outcome=outcome_when_lost, details=details)
        return Rejected(f"SQLite refused: {text}.", details=details)


def _to_rows(cursor: sqlite3.Cursor, limit: int = -1) -> list[dict[str, Any]]:
    if cursor.description is None:
        return []
    names = [str(column[0]) for column in cursor.description]
    rows = cursor.fetchall() if limit < 0 else cursor.fetchmany(limit)
    return [dict(zip(names, row, strict=True)) for row in rows]
