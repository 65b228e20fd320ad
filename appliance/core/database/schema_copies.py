"""Copies all tables of a schema into another one of the same PostgreSQL database, as they are at one moment.

The server copies the rows; none comes to this process.  Each table is a transaction of its own, which sees the snapshot of the
first: so a copy needs few places in the server's table of locks, and a table is locked against changes of its columns only while
it is copied.  Defaults, constraints and indexes keep their names, so that migrations change a copy as they change the original.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from psycopg.sql import SQL, Composed, Identifier, Literal

from .throw_away_schemas import Session

Query = SQL | Composed

_TABLES = (
    "SELECT c.oid, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname = %s AND c.relkind = 'r' ORDER BY c.relname"
)
_SEQUENCES = (
    "SELECT s.relname, a.attname FROM pg_depend d JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S' "
    "JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid "
    "WHERE d.classid = 'pg_class'::regclass AND d.refobjid = %s AND d.deptype = 'a'"
)
_INDEXES = (
    "SELECT pg_get_indexdef(i.indexrelid), format(' ON %%I.%%I USING ', n.nspname, c.relname) FROM pg_index i "
    "JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace WHERE i.indrelid = %s "
    "AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conrelid = i.indrelid AND k.conindid = i.indexrelid "
    "AND k.contype IN ('p', 'u', 'x')) ORDER BY i.indexrelid"
)
_CONSTRAINTS = (
    "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = %s AND contype = ANY(%s) "
    "ORDER BY contype, conname"
)
_COLUMNS = (
    "SELECT attname FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum"
)
_KEYS, _FOREIGN_KEYS = ["p", "u", "x"], ["f"]
_LIKE = SQL(
    "CREATE TABLE {copy} (LIKE {table} INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING GENERATED INCLUDING STORAGE "
    "INCLUDING COMPRESSION)"
)


@dataclass(frozen=True)
class _Table:
    oid: int
    name: str


@dataclass(frozen=True)
class SchemaCopy:
    """A copy from the schema `source` to `target`.  `reader` sees the source and holds the snapshot; `writer` makes the copy."""

    reader: Session
    writer: Session
    source: str
    target: str

    def make(self) -> int:
        """Copy all tables; returns how many rows."""
        with self.reader.transaction():
            self.reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            ((snapshot,),) = self.reader.execute("SELECT pg_export_snapshot()").fetchall()
            tables = [_Table(int(str(oid)), str(name)) for oid, name in self.reader.execute(_TABLES, (self.source,))]
            count = sum(self._copy_table(table, str(snapshot)) for table in tables)
            for table in tables:
                self._add_foreign_keys(table)
        return count

    def _copy_table(self, table: _Table, snapshot: str) -> int:
        original, copy = Identifier(self.source, table.name), Identifier(self.target, table.name)
        with self.writer.transaction():
            self.writer.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            self.writer.execute(SQL("SET TRANSACTION SNAPSHOT {}").format(Literal(snapshot)))
            self.writer.execute(_LIKE.format(copy=copy, table=original))
            self._copy_sequences(table)
            columns = SQL(", ").join(Identifier(str(name)) for (name,) in self.writer.execute(_COLUMNS, (table.oid,)))
            rows = SQL("INSERT INTO {} ({}) SELECT {} FROM {}").format(copy, columns, columns, original)
            count = self.writer.execute(rows).rowcount
            for statement in (*self._keys(table, _KEYS), *self._indexes(table)):
                self.writer.execute(statement)
            self.writer.execute(SQL("ANALYZE {}").format(copy))
        return count

    def _copy_sequences(self, table: _Table) -> None:
        """Give the serial columns sequences of their own, which go on with the same numbers."""
        for name, column in self.reader.execute(_SEQUENCES, (table.oid,)).fetchall():
            original, copy = Identifier(self.source, str(name)), Identifier(self.target, str(name))
            of = Identifier(self.target, table.name, str(column))
            words = Literal(copy.as_string(self.writer))
            for statement in (
                SQL("CREATE SEQUENCE {} OWNED BY {}").format(copy, of),
                SQL("SELECT setval({}, last_value, is_called) FROM {}").format(words, original),
                SQL("ALTER TABLE {} ALTER COLUMN {} SET DEFAULT nextval({}::regclass)").format(
                    Identifier(self.target, table.name), Identifier(str(column)), words
                ),
            ):
                self.writer.execute(statement)

    def _indexes(self, table: _Table) -> Iterator[Query]:
        place = SQL(" ON {} USING ").format(Identifier(self.target, table.name)).as_string(self.writer)
        for definition, original in self.reader.execute(_INDEXES, (table.oid,)).fetchall():
            yield SQL(str(definition).replace(str(original), place, 1))

    def _keys(self, table: _Table, kinds: list[str]) -> Iterator[Query]:
        """The constraints of a table; the reader's search path names other tables without their schema."""
        for name, definition in self.reader.execute(_CONSTRAINTS, (table.oid, kinds)).fetchall():
            yield SQL("ALTER TABLE {} ADD CONSTRAINT {} {}").format(
                Identifier(self.target, table.name), Identifier(str(name)), SQL(str(definition))
            )

    def _add_foreign_keys(self, table: _Table) -> None:
        """Add the foreign keys, by which the server checks every row."""
        for statement in self._keys(table, _FOREIGN_KEYS):
            self.writer.execute(statement)
