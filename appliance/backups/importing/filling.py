"""Fills a closed tenant with the rows of a prepared file, in many short writes, so that others hardly wait for them."""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from appliance.backups.copying import ENTITIES, SEARCHED, FileSource, Row, entity_statements
from appliance.backups.problems import JobControl
from appliance.backups.tenant_tables import EXPORTED, RENUMBERED
from appliance.core import clock
from appliance.core.database import db, full_text
from appliance.core.database.loading import insert_rows, placeholders
from appliance.core.scope import TenantScope
from appliance.datapool import tables as entity_tables
from appliance.documents import NAMES
from appliance.tenants import closed_tenants

GOAL_SECONDS = 0.02
"""How long a write should last."""
FEWEST, MOST, MOST_BYTES = 20, 2_000, 256 << 10
LAST = ("audit_chain", "document_review", "document_vote", "webapp_publication")
"""Tables in which processes look for work of all tenants: inserted by the write that reveals the tenant."""
Change = Callable[[Any], Any]


def _nothing() -> None:
    """The value of a column that is set later."""


def _replace(make: Callable[[], Any], _: Any) -> Any:
    return make()


_INERT: Mapping[str, Mapping[str, Callable[[], Any]]] = {
    "alert": {"enabled": lambda: 0},
    "process": {"paused_at": clock.now_ms},
    "webapp": {"published_version": _nothing},
}
"""Columns by which processes find work in tables that others refer to, and the values that hide it until then."""


@dataclass(frozen=True)
class _Rows:
    """What is inserted into a table: columns of rows of the file, and what changes values by the column's position."""

    table: str
    columns: Sequence[str]
    changes: Mapping[int, Change]


@dataclass
class Filling:
    """The filling of one tenant; `closed_at` renews with each write, and `total` rows are reported as the goal."""

    scope: TenantScope
    source: FileSource
    new_places: Mapping[str, str]
    course: JobControl
    total: int
    closed_at: int
    _tables: dict[str, str] = field(init=False)
    _inserted: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        names = self.source.rows("SELECT table_name FROM collection")
        self._tables = {str(name): entity_tables.new_table_name() for (name,) in names}

    def fill(self) -> Callable[[], None]:
        """Insert almost everything; returns what inserts the rest, inside the write that reveals the tenant.

        Conflict if another process has taken the tenant over; Stopped.
        """
        tables, entities = self.source.tables(), [table for table in self.source.tables() if ENTITIES.fullmatch(table)]
        self._create_collections()
        for table in tables:
            if table in EXPORTED and table not in ("collection", *LAST):
                self._insert(self._rows_of(table, _INERT.get(table, {})))
        later = [(table, self._later_relations(table, entities[:number])) for number, table in enumerate(entities)]
        for table, relations in later:
            self._insert(self._rows_of(table, dict.fromkeys(relations, _nothing)))
        for table, relations in later:
            self._set(table, relations)
        rest = list(self._read_rest())
        return lambda: _perform(rest)

    def _read_rest(self) -> Iterator[Callable[[], None]]:
        for rows in (self._rows_of(table, {}) for table in self.source.tables() if table in LAST):
            yield partial(self._insert_some, rows, list(self._read(rows)))
        for table, columns in _INERT.items():
            keys = [key for key in self.source.primary_key(table) if key != "tenant_id"]
            yield partial(self._update, table, [*columns], keys, list(self.source.rows(_select(table, [*columns, *keys]))))

    # -- one table

    def _create_collections(self) -> None:
        """Create the tables of entities in one write, because they refer to each other, with the collections that name them."""
        statements, rows = list(entity_statements(self.source, sqlite=db.is_sqlite())), self._rows_of("collection", {})
        renamed = [ENTITIES.sub(lambda name: self._tables[name[0]], statement) for statement in statements]
        self._write(partial(self._create, rows, renamed, list(self._read(rows))))

    def _create(self, rows: _Rows, statements: Sequence[str], collections: list[Row]) -> None:
        for statement in statements:
            db.execute(statement)
        self._insert_some(rows, collections)

    def _rows_of(self, table: str, instead: Mapping[str, Callable[[], Any]]) -> _Rows:
        number = RENUMBERED.get(table)
        columns = [column for column in self.source.columns(table) if column != number]
        changes = self._changes(table) | {column: partial(_replace, make) for column, make in instead.items()}
        return _Rows(table, columns, {columns.index(name): change for name, change in changes.items()})

    def _changes(self, table: str) -> dict[str, Change]:
        """The conversions of column values, by column name."""
        if table == "collection":
            return {"table_name": lambda old: self._tables[old], "stamp": lambda _: secrets.token_hex(8)}
        if table == "blob":
            return {"place": lambda old: self.new_places[old], "touched_at": lambda _: clock.now_ms()}
        return {}

    def _read(self, rows: _Rows) -> Iterator[Row]:
        number = RENUMBERED.get(rows.table)
        for row in self.source.rows(_select(rows.table, rows.columns, f' ORDER BY "{number}"' if number else "")):
            yield tuple(rows.changes[i](value) if i in rows.changes else value for i, value in enumerate(row))

    def _insert(self, rows: _Rows) -> None:
        self._in_batches(self._read(rows), partial(self._insert_some, rows))

    def _insert_some(self, rows: _Rows, batch: list[Row]) -> None:
        """Inside a write: insert rows, with what finds them in searches."""
        table = self._tables.get(rows.table, rows.table)
        if table in SEARCHED and db.is_sqlite():
            before = _highest(table, "id")
            insert_rows(table, rows.columns, batch)
            full_text.add_range(table, before + 1, _highest(table, "id"))
        elif table == NAMES.table:
            before, at = _highest(table, NAMES.number), rows.columns.index(NAMES.number)
            numbers = count(before + 1)
            insert_rows(table, rows.columns, [(*row[:at], next(numbers), *row[at + 1 :]) for row in batch])
            NAMES.add(f"{NAMES.number} > ?", (before,))
        else:
            insert_rows(table, rows.columns, batch)

    # -- entities that refer to each other

    def _later_relations(self, table: str, inserted: Sequence[str]) -> list[str]:
        """The columns of a table that refer to rows which are inserted later, if only in part."""
        leads = self.source.rows(f'PRAGMA foreign_key_list("{table}")')
        return [str(lead[3]) for lead in leads if lead[2] not in inserted]

    def _set(self, table: str, relations: Sequence[str]) -> None:
        if relations:
            some = " OR ".join(f'"{column}" IS NOT NULL' for column in relations)
            rows = self.source.rows(_select(table, [*relations, "id"], f" WHERE {some}"))
            self._in_batches(rows, partial(self._update, table, relations, ["id"]))

    def _update(self, table: str, columns: Sequence[str], keys: Sequence[str], batch: list[Row]) -> None:
        """Inside a write: set columns of rows to the values in the file."""
        stored, tenant = self._tables.get(table, table), () if table in self._tables else (self.scope.tenant_id,)
        values = ", ".join(f'"{name}" = {value}' for name, value in zip(columns, placeholders(stored, columns), strict=True))
        where = " AND ".join(f'"{key}" = ?' for key in (*keys, *(["tenant_id"] if tenant else [])))
        sql = f'UPDATE "{stored}" SET {values} WHERE {where}'  # noqa: S608  names of our own
        for row in batch:
            db.execute(sql, (*row, *tenant))

    # -- short writes

    def _in_batches(self, rows: Iterator[Row], work: Callable[[list[Row]], None]) -> None:
        size = FEWEST
        while batch := _take(rows, size):
            self.course.refuse_stopping()
            self.course.report("writing", self._inserted, self.total)
            took = self._write(partial(work, batch))
            self._inserted += len(batch)
            size = min(max(round(size * min(GOAL_SECONDS / max(took, 1e-4), 2.0)), FEWEST), MOST)

    def _write(self, work: Callable[[], None]) -> float:
        """Do a part of the work in a write of its own; returns the seconds it took."""
        self.closed_at, took = db.write(partial(self._renew_and, work))
        return took

    def _renew_and(self, work: Callable[[], None]) -> tuple[int, float]:
        began = clock.monotonic()
        closed_at = closed_tenants.renew(self.scope.tenant_id, self.closed_at)
        work()
        return closed_at, clock.monotonic() - began


def _perform(parts: Sequence[Callable[[], None]]) -> None:
    for part in parts:
        part()


def _take(rows: Iterator[Row], most: int) -> list[Row]:
    """The next rows: up to `most`, or until they are large."""
    batch: list[Row] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += sum(len(value) for value in row if isinstance(value, str | bytes))
        if len(batch) >= most or size >= MOST_BYTES:
            break
    return batch


def _select(table: str, columns: Sequence[str], end: str = "") -> str:
    listed = ", ".join(f'"{column}"' for column in columns)
    return f'SELECT {listed} FROM "{table}"{end}'  # noqa: S608  names of our own


def _highest(table: str, column: str) -> int:
    return int(db.rows(f'SELECT COALESCE(MAX("{column}"), 0) FROM "{table}"')[0][0])  # noqa: S608  names of our own
