"""The database tables of entities.  Every name in this SQL is generated (`dp_<hex>`, `c<number>`), never a caller's text."""

import secrets
from collections.abc import Iterable, Mapping

from appliance.core.database import db
from appliance.datapool.definition import CollectionDefinition, FieldDefinition, IndexDefinition
from appliance.datapool.field_types import FIELD_TYPES

MAX_INDEX_BYTES = 2_600
SYSTEM_NUMBERS = 3  # created_at, updated_at, version


def new_table_name() -> str:
    """A random table name, unique across all tenants."""
    return f"dp_{secrets.token_hex(8)}"


def _text_type(*, sqlite: bool) -> str:
    """A text type that compares by code point on every database, as Python does."""
    return "TEXT" if sqlite else 'TEXT COLLATE "C"'


def _column_sql(field: FieldDefinition, targets: Mapping[str, str] | None, *, sqlite: bool) -> str:
    storage = FIELD_TYPES[field.type].storage
    declaration = f'"{field.column}" {_text_type(sqlite=sqlite) if storage == "TEXT" else storage}'
    return f"{declaration} {_reference_sql(field, targets)}" if field.type == "relation" and targets is not None else declaration


def _reference_sql(field: FieldDefinition, targets: Mapping[str, str]) -> str:
    return f'REFERENCES "{targets[field.options["collection"]]}" (id)'


def build_foreign_keys(definition: CollectionDefinition, table: str, targets: Mapping[str, str]) -> list[str]:
    """The foreign keys that `table_statements` leaves out when called without targets."""
    related = [field for field in definition.fields if field.type == "relation"]
    return [f'ALTER TABLE "{table}" ADD FOREIGN KEY ("{field.column}") {_reference_sql(field, targets)}' for field in related]


def create_table(definition: CollectionDefinition, table: str, targets: Mapping[str, str]) -> None:
    """Create the table and indexes of a new collection; `targets` maps related collections to their tables."""
    for statement in build_table_statements(definition, table, targets, sqlite=db.is_sqlite()):
        db.execute(statement)


def build_table_statements(
    definition: CollectionDefinition, table: str, targets: Mapping[str, str] | None, *, sqlite: bool
) -> list[str]:
    """The statements of `create_table` for either database; without targets, relations get no foreign key."""
    columns = [
        f"id {_text_type(sqlite=sqlite)} PRIMARY KEY",
        "created_at BIGINT NOT NULL",
        "updated_at BIGINT NOT NULL",
        "version BIGINT NOT NULL",
        *(_column_sql(field, targets, sqlite=sqlite) for field in definition.fields),
    ]
    return [
        f'CREATE TABLE "{table}" ({", ".join(columns)})',
        f'CREATE INDEX "{table}_created" ON "{table}" (created_at, id)',
        *_index_statements(table, index_columns(definition)),
    ]


def text_bytes_sql(column: str, *, is_sqlite: bool) -> str:
    """An SQL expression for the UTF-8 length in bytes of a text column; NULL for NULL."""
    return f"length(CAST({column} AS BLOB))" if is_sqlite else f"octet_length({column})"


def count_bytes(definition: CollectionDefinition, table: str) -> int:
    """The bytes of all values in the table: texts by their length, every other value as eight.  Scans the table."""
    return int(db.rows(count_bytes_sql(definition, table, is_sqlite=db.is_sqlite()))[0][0])


def count_bytes_sql(definition: CollectionDefinition, table: str, *, is_sqlite: bool) -> str:
    """The query of `count_bytes` for one of the databases."""
    texts = [field.column for field in definition.fields if FIELD_TYPES[field.type].storage == "TEXT"]
    fixed = 8 * (SYSTEM_NUMBERS + len(definition.fields) - len(texts))
    columns = ["id", *(f'"{column}"' for column in texts)]
    sizes = "".join(f" + coalesce({text_bytes_sql(column, is_sqlite=is_sqlite)}, 0)" for column in columns)
    return f'SELECT coalesce(sum({fixed}{sizes}), 0) FROM "{table}"'  # noqa: S608


def add_column(table: str, field: FieldDefinition, targets: Mapping[str, str]) -> None:
    db.execute(f'ALTER TABLE "{table}" ADD COLUMN {_column_sql(field, targets, sqlite=db.is_sqlite())}')


def drop_column(table: str, column: str) -> None:
    db.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')


def drop_table(table: str) -> None:
    db.execute(f'DROP TABLE "{table}"')


def drop_own_foreign_keys(table: str) -> None:
    """Drop the foreign keys of a table, on PostgreSQL; SQLite cannot, see `list_relations`."""
    if db.is_sqlite():
        return
    names = "SELECT conname FROM pg_constraint WHERE contype = 'f' AND conrelid = to_regclass(?)"
    for (name,) in db.rows(names, (f'"{table}"',)):
        db.execute(f'ALTER TABLE "{table}" DROP CONSTRAINT "{name}"')


def list_relations(table: str, target: str = "") -> list[str]:
    """The columns of a table that are foreign keys, or those to the table `target`."""
    if db.is_sqlite():
        rows = db.rows('SELECT "from", "table" FROM pragma_foreign_key_list(?)', (table,))
    else:
        rows = db.rows(
            "SELECT a.attname, to_table.relname FROM pg_constraint c JOIN pg_attribute a ON a.attrelid = c.conrelid "
            "AND a.attnum = ANY (c.conkey) JOIN pg_class to_table ON to_table.oid = c.confrelid "
            "WHERE c.contype = 'f' AND c.conrelid = to_regclass(?)",
            (f'"{table}"',),
        )
    return [str(column) for column, other in rows if not target or other == target]


def drop_related_tables(names: Iterable[str]) -> None:
    """Drop tables that may refer to each other, with all their rows."""
    tables = list(names)
    if not db.is_sqlite():
        for table in tables:
            db.execute(f'DROP TABLE "{table}" CASCADE')
        return
    db.execute("PRAGMA defer_foreign_keys = 1")
    for table in tables:
        db.execute(f'DELETE FROM "{table}"')  # noqa: S608
    for table in tables:
        drop_table(table)


def index_columns(definition: CollectionDefinition) -> dict[tuple[str, ...], bool]:
    """The indexes of a definition as columns -> unique: those of unique fields, relations and declared indexes."""
    columns = {field.id: field.column for field in definition.fields}
    indexes: dict[tuple[str, ...], bool] = {
        (field.column,): field.unique for field in definition.fields if field.unique or field.type == "relation"
    }
    for index in definition.indexes:
        key = tuple(columns[field_id] for field_id in index.fields)
        indexes[key] = indexes.get(key, False) or index.unique
    return indexes


def max_indexed_bytes(definition: CollectionDefinition) -> dict[str, int]:
    """The maximum bytes of a text in each indexed column, so that an index entry fits a page on every database."""
    max_bytes: dict[str, int] = {}
    for columns in index_columns(definition):
        for column in columns:
            max_bytes[column] = min(max_bytes.get(column, MAX_INDEX_BYTES), MAX_INDEX_BYTES // len(columns))
    return max_bytes


def unique_groups(definition: CollectionDefinition) -> Iterable[tuple[FieldDefinition, ...]]:
    """The fields, alone or combined, whose values must be unique."""
    yield from ((field,) for field in definition.fields if field.unique)
    for index in definition.indexes:
        if index.unique:
            yield fields_of(definition, index)


def fields_of(definition: CollectionDefinition, index: IndexDefinition) -> tuple[FieldDefinition, ...]:
    by_id = {field.id: field for field in definition.fields}
    return tuple(by_id[field_id] for field_id in index.fields)


def create_indexes(table: str, indexes: Mapping[tuple[str, ...], bool]) -> None:
    for statement in _index_statements(table, indexes):
        db.execute(statement)


def _index_statements(table: str, indexes: Mapping[tuple[str, ...], bool]) -> list[str]:
    statements = []
    for columns, unique in indexes.items():
        listed = ", ".join(f'"{column}"' for column in columns)
        kind = "UNIQUE INDEX" if unique else "INDEX"
        statements.append(f'CREATE {kind} "{_index_name(table, columns, unique)}" ON "{table}" ({listed})')
    return statements


def drop_indexes(table: str, indexes: Mapping[tuple[str, ...], bool]) -> None:
    for columns, unique in indexes.items():
        db.execute(f'DROP INDEX "{_index_name(table, columns, unique)}"')


def _index_name(table: str, columns: tuple[str, ...], unique: bool) -> str:
    return f"{table}_{'u' if unique else 'i'}_{'_'.join(columns)}"
