"""Queries entities: filter, search, sort, pagination, selected fields and expanded relations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from appliance import conditions
from appliance.conditions import AllOf, AnyOf, Compare, Condition, Field, Sql
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import InvalidCursor, InvalidRequest
from appliance.core.pages import DEFAULT_LIMIT, Page, decode_cursor, encode_cursor
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.datapool.compiled import CompiledCollection, load_for_tenant
from appliance.datapool.field_types import LARGEST_INTEGER
from appliance.datapool.limits import in_force

MAX_SEARCH_WORDS = 10
MEMBERS = ("filter", "sort", "fields", "expand", "search", "group", "aggregate", "having", "limit", "cursor", "count")


@dataclass(frozen=True)
class Query:
    """A parsed query; `parse_query` builds it from JSON or from the parameters of a request."""

    filter: Any = field(default_factory=dict)
    sort: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    expand: tuple[str, ...] = ()
    search: str = ""
    group: tuple[str, ...] = ()
    aggregate: Mapping[str, Any] = field(default_factory=dict)
    having: Any = field(default_factory=dict)
    limit: int = DEFAULT_LIMIT
    cursor: str | None = None
    count: bool = False

    @property
    def is_grouped(self) -> bool:
        return bool(self.group or self.aggregate)


def parse_query(document: Any) -> Query:
    """Parse the query in a JSON object; InvalidRequest names the first invalid member.  Lists may be written as `a,b`."""
    if not isinstance(document, Mapping):
        raise InvalidRequest('a query must be an object such as {"filter": {…}, "sort": "-created_at"}', pointer="")
    members: dict[str, Any] = {"limit": min(DEFAULT_LIMIT, in_force.query_rows)}
    for name, value in document.items():
        if name not in MEMBERS:
            raise InvalidRequest(
                Sentence(
                    "%(name)s is not a member of a query; use one of %(members)s", name=repr(name[:60]), members=", ".join(MEMBERS)
                ),
                pointer=f"/{name}",
            )
        if value is not None:
            members[name] = _parse_member(name, value)
    if not members.get("group") and not members.get("aggregate") and members.get("having"):
        raise InvalidRequest("having filters groups; add group or aggregate, or use filter instead", pointer="/having")
    return Query(**members)


def _parse_member(name: str, value: Any) -> Any:
    pointer = f"/{name}"
    if name in ("sort", "fields", "expand", "group"):
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts) or len(parts) > 50:
            raise InvalidRequest(Sentence("%(name)s must be a list of at most 50 field names", name=name), pointer=pointer)
        return tuple(part.strip() for part in parts if part.strip())
    if name == "limit":
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= in_force.query_rows:
            raise InvalidRequest(
                Sentence("limit must be between 1 and %(query_rows)s", query_rows=in_force.query_rows), pointer=pointer
            )
    elif name in ("search", "cursor"):
        if not isinstance(value, str) or len(value) > 8_000:
            raise InvalidRequest(Sentence("%(name)s must be a text of at most 8,000 characters", name=name), pointer=pointer)
    elif name == "count":
        if value not in (True, False, "exact"):
            raise InvalidRequest('count must be "exact" or omitted', pointer=pointer)
        return bool(value)
    elif not isinstance(value, Mapping):
        raise InvalidRequest(Sentence("%(name)s must be an object", name=name), pointer=pointer)
    return value


class Reader(Protocol):
    """Restricts a query to what one reader may see; without one, a query covers everything of the tenant."""

    def values(self) -> Mapping[str, Any]:
        """The values of placeholders in this reader's filters."""

    def fields(self, collection: CompiledCollection) -> Mapping[str, Field]:
        """The fields this reader may filter by."""

    def narrow(self, collection: CompiledCollection, condition: Condition) -> Condition:
        """The condition, restricted to the entities this reader may list."""

    def viewable(self, collection: CompiledCollection) -> Condition:
        """The condition on entities this reader may view individually."""


@dataclass(frozen=True)
class LimitedReader:
    """The reader of a key that is limited to some collections: it follows no relation to another collection."""

    scope: TenantScope

    def values(self) -> Mapping[str, Any]:
        return placeholders(self.scope)

    def fields(self, collection: CompiledCollection) -> Mapping[str, Field]:
        return {name: self._restrict_relation(collection, name, entry) for name, entry in collection.condition_fields.items()}

    def _restrict_relation(self, collection: CompiledCollection, name: str, condition_field: Field) -> Field:
        if condition_field.inside is None:
            return condition_field
        target = str(collection.fields[name].definition.options["collection"])
        if not self.scope.can_reach("collection", target):
            return replace(condition_field, inside=None)
        return replace(condition_field, inside=lambda: self.fields(load_for_tenant(collection.tenant_id, target)))

    def narrow(self, collection: CompiledCollection, condition: Condition) -> Condition:
        return condition

    def viewable(self, collection: CompiledCollection) -> Condition:
        return AllOf(()) if self.scope.can_reach("collection", collection.name) else AnyOf(())


def limited_reader(scope: TenantScope) -> LimitedReader | None:
    """The reader that keeps to the limits of the scope's key; None if it has none."""
    return None if scope.limits is None else LimitedReader(scope)


@dataclass(frozen=True)
class SortKey:
    """One column of the sort order; nulls sort before every value, on every database.

    A column that is never null is compared without a null check, so that the database can use its index.
    """

    name: str
    sql: str
    storage: str
    descending: bool = False
    is_nullable: bool = True

    @property
    def ordering(self) -> str:
        nulls = ("NULLS LAST" if self.descending else "NULLS FIRST") if self.is_nullable else ""
        return f"{self.sql} {'DESC' if self.descending else 'ASC'} {nulls}"

    def after(self, value: Any) -> Sql:
        """The condition on rows strictly after `value` in this order."""
        if value is None and self.is_nullable:
            return Sql("1 = 0" if self.descending else f"{self.sql} IS NOT NULL")
        if self.descending and self.is_nullable:
            return Sql(f"({self.sql} < ? OR {self.sql} IS NULL)", (value,))
        return Sql(f"{self.sql} {'<' if self.descending else '>'} ?", (value,))

    def bound(self, value: Any) -> list[Sql]:
        """The range from `value` on in this order as one comparison; empty where it is none, because it contains nulls."""
        if self.is_nullable and (self.descending or value is None):
            return []
        return [Sql(f"{self.sql} {'<=' if self.descending else '>='} ?", (value,))]

    def equals(self, value: Any) -> Sql:
        return Sql(f"{self.sql} IS NULL") if value is None else Sql(f"{self.sql} = ?", (value,))


def find_page(
    scope: TenantScope, collection: CompiledCollection, query: Query, reader: Reader | None = None
) -> Page[dict[str, Any]]:
    """One page of entities, restricted to those the reader may list, or to what the limits of the scope's key include."""
    reader = reader or limited_reader(scope)
    where = conditions.compile_condition(build_condition(scope, collection, query, reader), collection.query_columns)
    keys = _build_sort_keys(collection, query.sort)
    total = _count_rows(collection, where) if query.count else None
    order = ",".join(("-" if key.descending else "") + key.name for key in keys)
    if query.cursor:
        where = conditions.all_of([where, after_values(keys, parse_cursor(query.cursor, order, keys))])
    sql = f"{collection.query_sql} WHERE {where.text} ORDER BY {', '.join([key.ordering for key in keys])} LIMIT ?"
    rows = db.rows(sql, (*where.params, query.limit + 1))
    has_more, rows = len(rows) > query.limit, rows[: query.limit]
    positions = collection.positions
    cursor = encode_cursor([rows[-1][positions[key.name]] for key in keys], order) if has_more else None
    return Page(to_views(collection, [collection.to_view(row) for row in rows], query, reader), cursor, total)


def count_entities(scope: TenantScope, collection: CompiledCollection, query: Query, limit: int) -> int:
    """The number of entities that match the query, counted up to `limit` + 1."""
    where = conditions.compile_condition(build_condition(scope, collection, query), collection.query_columns)
    return _count_rows(collection, where, limit + 1)


def _count_rows(collection: CompiledCollection, where: Sql, limit: int | None = None) -> int:
    statement = Sql(f"SELECT 1 FROM {collection.source} WHERE {where.text}", where.params)  # noqa: S608
    return count_rows(statement if limit is None else Sql(f"{statement.text} LIMIT ?", (*statement.params, limit)))


def count_rows(statement: Sql) -> int:
    """The number of rows of a statement."""
    return int(db.rows(f"SELECT COUNT(*) FROM ({statement.text}) AS counted", statement.params)[0][0])  # noqa: S608


def placeholders(scope: TenantScope) -> dict[str, Any]:
    """The values of `$now` and `$actor` in a filter of this caller."""
    return {"now": clock.rfc3339(clock.now_ms()), "actor": scope.actor}


def build_condition(scope: TenantScope, collection: CompiledCollection, query: Query, reader: Reader | None = None) -> Condition:
    reader = reader or limited_reader(scope)
    fields = reader.fields(collection) if reader else collection.condition_fields
    values = reader.values() if reader else placeholders(scope)
    filter_condition = conditions.bind(conditions.parse(query.filter, fields, pointer="/filter"), values, fields)
    condition = AllOf((filter_condition, *_build_search_conditions(collection, query.search)))
    return reader.narrow(collection, condition) if reader else condition


def _build_search_conditions(collection: CompiledCollection, search: str) -> list[Condition]:
    """A condition per word: it occurs in one of the searched fields."""
    words = search.replace("\x00", " ").encode("utf8", "ignore").decode().split()
    if not words:
        return []
    if len(words) > MAX_SEARCH_WORDS or max(map(len, words)) > 100:
        raise InvalidRequest(
            Sentence("search accepts at most %(max_search_words)s words of 100 characters", max_search_words=MAX_SEARCH_WORDS),
            pointer="/search",
        )
    names = [entry.name for entry in collection.definition.fields if entry.id in collection.definition.search]
    if not names:
        raise InvalidRequest(
            Sentence("the collection %(name)s has no searchable fields; list them in its search member", name=collection.name),
            pointer="/search",
        )
    return [AnyOf(tuple(Compare(name, "_icontains", word) for name in names)) for word in words]


def _build_sort_keys(collection: CompiledCollection, sort: Sequence[str]) -> list[SortKey]:
    """The requested order with the id appended so that it is unambiguous; by default the newest come first."""
    storages, columns = collection.sortable_fields, collection.query_columns
    keys: list[SortKey] = []
    for part in sort or ("-id",):
        name = part.removeprefix("-")
        if name not in storages:
            raise InvalidRequest(
                Sentence("sort: %(name)s is not one of %(known)s", name=repr(name[:60]), known=", ".join(sorted(storages))[:500]),
                pointer="/sort",
            )
        if name not in [key.name for key in keys]:
            keys.append(
                SortKey(name, columns[name].sql, storages[name], part.startswith("-"), is_nullable=name in collection.fields)
            )
    if "id" not in [key.name for key in keys]:
        keys.append(SortKey("id", columns["id"].sql, "TEXT", keys[0].descending, is_nullable=False))
    return keys


def parse_cursor(cursor: str, order: str, keys: Sequence[SortKey]) -> list[Any]:
    """The sort values in a cursor; InvalidCursor when they cannot belong to this list."""
    values = decode_cursor(cursor, order, len(keys))
    for key, value in zip(keys, values, strict=True):
        expected: Any = {"TEXT": str, "BIGINT": int}.get(key.storage, int | float)
        fits = value is None or (isinstance(value, expected) and not isinstance(value, bool))
        if not fits or (isinstance(value, int) and abs(value) > LARGEST_INTEGER) or not _is_storable(value):
            raise InvalidCursor("the cursor does not belong to this list; start again without it")
    return values


def _is_storable(value: Any) -> bool:
    return not isinstance(value, str) or ("\x00" not in value and value == value.encode("utf8", "replace").decode())


def after_values(keys: Sequence[SortKey], values: Sequence[Any]) -> Sql:
    """The condition on rows after `values`, comparing column by column, each in its own direction.

    The bound of the first column follows from the rest, but only written out does an index lead to the page; without it, the
    database reads all rows of the pages before.
    """
    alternatives = []
    for index, (key, value) in enumerate(zip(keys, values, strict=True)):
        same = [previous.equals(previous_value) for previous, previous_value in zip(keys[:index], values, strict=False)]
        alternatives.append(conditions.all_of([*same, key.after(value)]))
    after = conditions.any_of(alternatives)
    return after if len(keys) == 1 else conditions.all_of([*keys[0].bound(values[0]), after])


def to_views(
    collection: CompiledCollection, entities: list[dict[str, Any]], query: Query, reader: Reader | None = None
) -> list[dict[str, Any]]:
    """The entities with the requested relations expanded (one level) and only the requested fields (always with the id).

    A related entity that the reader may not view stays an id.
    """
    for name in query.expand:
        _expand(collection, entities, name, reader)
    if not query.fields:
        return entities
    for name in query.fields:
        if name not in collection.condition_fields:
            names = ", ".join(collection.condition_fields)[:500]
            raise InvalidRequest(
                Sentence("fields: %(name)s is not one of %(known)s", name=repr(name[:60]), known=names), pointer="/fields"
            )
    members = dict.fromkeys(("id", *query.fields))
    return [{name: entity[name] for name in members} for entity in entities]


def _expand(collection: CompiledCollection, entities: list[dict[str, Any]], name: str, reader: Reader | None) -> None:
    condition_field: Field | None = collection.condition_fields.get(name)
    if condition_field is None or condition_field.inside is None:
        relations = ", ".join(relation.definition.name for relation in collection.relations) or "none here"
        raise InvalidRequest(
            Sentence("expand: %(name)s is not a relation; relations are %(relations)s", name=repr(name[:60]), relations=relations),
            pointer="/expand",
        )
    target = load_for_tenant(collection.tenant_id, collection.fields[name].definition.options["collection"])
    entity_ids = sorted({entity[name] for entity in entities if isinstance(entity[name], str)})
    if not entity_ids:
        return
    by_id: Condition = Compare("id", "_in", tuple(entity_ids))
    views = {row[0]: target.to_view(row) for row in find_rows(target, AllOf((by_id, reader.viewable(target))) if reader else by_id)}
    for entity in entities:
        if isinstance(entity[name], str):
            entity[name] = views.get(entity[name], entity[name])


def find_rows(collection: CompiledCollection, condition: Condition) -> list[Any]:
    """The rows that match a bound condition, in no particular order."""
    where = conditions.compile_condition(condition, collection.query_columns)
    return db.rows(f"{collection.query_sql} WHERE {where.text}", where.params)
