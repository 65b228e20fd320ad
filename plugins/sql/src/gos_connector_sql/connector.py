"""The base of the SQL connectors: runs each call in one transaction."""

import ssl
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from appliance.connectors.contract import Action, ConfigError, Connector, Context, Json, TransientError, tls_context
from gos_connector_sql.declaration import ACTIONS, DEFAULT_ROWS
from gos_connector_sql.session import MAX_IDLE, Rows, Session, Sessions
from gos_connector_sql.statement import Builder, Statement, common_columns, parse
from gos_connector_sql.value import to_json

# An idle connection may be dead. Its transaction then fails to begin, and the call is repeated once on a new connection.
_MAX_ATTEMPTS = 2


class SqlConnector(Connector):
    """One database, on a server or in a file."""

    contract_version = 1
    version = "0.1.0"
    actions: ClassVar[tuple[Action, ...]] = ACTIONS
    default_port: ClassVar[int]
    reuses_sessions: ClassVar[bool] = True
    builder: ClassVar[Builder]
    backslashes: ClassVar[bool]
    version_query: ClassVar[str] = "SELECT version() AS version"

    def __init__(self, settings: Json) -> None:
        super().__init__(settings)
        self.host: str = settings.get("host", "")
        self.port: int = settings.get("port", self.default_port)
        self.sessions = Sessions(self.connect, MAX_IDLE if self.reuses_sessions else 0)
        self.verbs = {
            "query": self._query, "execute": self._execute, "insert": self._insert, "upsert": self._upsert,
            "update": self._update, "delete": self._delete, "describe": self._describe,
        }  # fmt: skip

    @abstractmethod
    def connect(self, ctx: Context) -> Session:
        """Open a new session and sign in."""

    @abstractmethod
    def upsert(self, table: str, key: list[str], columns: list[str], rows: list[Mapping[str, Any]]) -> Statement:
        """The statement that adds rows or changes those with the same key."""

    @abstractmethod
    def describe(self, session: Session, table: str | None) -> list[dict[str, Any]]:
        """One row {table, kind, column, type, nullable, key} per column, in order; `key` is its position in the primary key."""

    def tls(self) -> ssl.SSLContext | None:
        """The TLS context, or None for clear text."""
        return None if self.settings.get("tls", "verify") == "off" else tls_context(self.settings.get("ca"))

    def check(self, ctx: Context) -> str:
        result = self._in_transaction(ctx, True, lambda session: session.read(parse(self.version_query, {}, backslashes=False), 1))
        return f"{self.title} answers: {str(result.rows[0]['version'])[:120]}"

    def close(self) -> None:
        self.sessions.close()

    # -- the actions

    def _query(self, params: Json, ctx: Context) -> dict[str, Any]:
        statement = parse(params["sql"], params.get("params", {}), backslashes=self.backslashes)
        limit = params.get("limit", DEFAULT_ROWS)
        rows = self._in_transaction(ctx, True, lambda session: session.read(statement, limit + 1)).rows
        return {"rows": _to_view(rows[:limit]), "truncated": len(rows) > limit}

    def _execute(self, params: Json, ctx: Context) -> dict[str, Any]:
        statement = parse(params["sql"], params.get("params", {}), backslashes=self.backslashes)
        result = self._in_transaction(ctx, False, lambda session: session.run(statement))
        return {"affected": result.affected, **({"rows": _to_view(result.rows)} if result.rows else {})}

    def _insert(self, params: Json, ctx: Context) -> dict[str, Any]:
        return self._change(self.builder.insert(params["table"], common_columns(params["rows"]), params["rows"]), ctx)

    def _upsert(self, params: Json, ctx: Context) -> dict[str, Any]:
        columns = common_columns(params["rows"])
        missing = [column for column in params["key"] if column not in columns]
        if missing:
            raise ConfigError(f"`key` contains the column {missing[0]!r}, which the rows do not have.")
        return self._change(self.upsert(params["table"], params["key"], columns, params["rows"]), ctx)

    def _update(self, params: Json, ctx: Context) -> dict[str, Any]:
        return self._change(self.builder.update(params["table"], params["values"], params["where"]), ctx)

    def _delete(self, params: Json, ctx: Context) -> dict[str, Any]:
        return self._change(self.builder.delete(params["table"], params["where"]), ctx)

    def _describe(self, params: Json, ctx: Context) -> dict[str, Any]:
        table = params.get("table")
        rows = self._in_transaction(ctx, True, lambda session: Rows(self.describe(session, table))).rows
        tables: dict[str, dict[str, Any]] = {}
        keys: dict[str, list[tuple[int, str]]] = {}
        for row in rows:
            name = row["table"]
            entry = tables.setdefault(name, {"name": name, "kind": row["kind"], "key": [], "columns": []})
            entry["columns"].append({"name": row["column"], "type": row["type"], "nullable": bool(row["nullable"])})
            if row["key"]:
                keys.setdefault(name, []).append((int(row["key"]), row["column"]))
        for name, columns in keys.items():
            tables[name]["key"] = [column for _, column in sorted(columns)]
        if table is not None and not tables:
            raise ConfigError(f"There is no table {table!r}, or this user has no access to it.")
        return {"tables": list(tables.values())}

    # -- one transaction

    def _change(self, statement: Statement, ctx: Context) -> dict[str, Any]:
        return {"affected": self._in_transaction(ctx, False, lambda session: session.run(statement)).affected}

    def _in_transaction(self, ctx: Context, read_only: bool, operation: Callable[[Session], Rows]) -> Rows:
        for attempts_left in reversed(range(_MAX_ATTEMPTS)):
            has_begun = False
            try:
                with self.sessions.acquire(ctx) as session:
                    session.begin(ctx, read_only=read_only)
                    has_begun = True
                    result = operation(session)
                    if read_only:
                        session.rollback()
                    else:
                        session.commit()
                    return result
            except TransientError:
                if has_begun or not attempts_left or ctx.deadline - time.monotonic() < 1:
                    raise
                self.sessions.close()
        raise AssertionError("the last attempt returns or raises")


def _to_view(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: to_json(value) for name, value in row.items()} for row in rows]
