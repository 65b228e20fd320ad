"""Reading entities: filter, search, sort, pages, chosen fields and expanded relations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from peewee import SQL, NodeList, Select, fn

from appliance import conditions
from appliance.conditions import AllOf, AnyOf, Compare, Condition, Field
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
    """What a caller asked for; `read_query` makes it from JSON or from the parameters of a request."""

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
    def grouped(self) -> bool:
        return bool(self.group or self.aggregate)


def read_query(document: Any) -> Query:
    """The query of a JSON object; InvalidRequest names the first wrong member.  Lists may be written `a,b`."""
    if not isinstance(document, Mapping):
        raise InvalidRequest('a query is an object such as {"filter": {…}, "sort": "-created_at"}', pointer="")
    known: dict[str, Any] = {"limit": min(DEFAULT_LIMIT, in_force.query_rows)}
    for name, value in document.items():
        if name not in MEMBERS:
            raise InvalidRequest(
                Sentence(
                    "%(name)s is not a member of a query; known are %(members)s", name=repr(name[:60]), members=", ".join(MEMBERS)
                ),
                pointer=f"/{name}",
            )
        if value is not None:
            known[name] = _read_member(name, value)
    if not known.get("group") and not known.get("aggregate") and known.get("having"):
        raise InvalidRequest("having filters groups: add group or aggregate, or use filter", pointer="/having")
    return Query(**known)


def _read_member(name: str, value: Any) -> Any:
    pointer = f"/{name}"
    if name in ("sort", "fields", "expand", "group"):
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts) or len(parts) > 50:
            raise InvalidRequest(Sentence("%(name)s is a list of at most 50 field names", name=name), pointer=pointer)
        return tuple(part.strip() for part in parts if part.strip())
    if name == "limit":
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= in_force.query_rows:
            raise InvalidRequest(
                Sentence("limit must be between 1 and %(query_rows)s", query_rows=in_force.query_rows), pointer=pointer
            )
    elif name in ("search", "cursor"):
        if not isinstance(value, str) or len(value) > 8_000:
            raise InvalidRequest(Sentence("%(name)s is a text", name=name), pointer=pointer)
    elif name == "count":
        if value not in (True, False, "exact"):
            raise InvalidRequest('count is "exact" or left out', pointer=pointer)
        return bool(value)
    elif not isinstance(value, Mapping):
        raise InvalidRequest(Sentence("%(name)s is an object", name=name), pointer=pointer)
    return value


class Reader(Protocol):
    """Someone who may not read everything; without one, everything of the tenant is read."""

    def values(self) -> Mapping[str, Any]:
        """What the placeholders of this reader's filters mean."""

    def fields(self, collection: CompiledCollection) -> Mapping[str, Field]:
        """What this reader may filter by."""

    def narrowed(self, collection: CompiledCollection, chosen: Condition) -> Condition:
        """The condition, of what this reader may list."""

    def viewable(self, collection: CompiledCollection) -> Condition:
        """What this reader may view one by one."""


@dataclass(frozen=True)
class SortKey:
    """One column of the order: nulls are smaller than every value, on every database.

    What is never null is compared without looking for nulls, so that its index serves every page.
    """

    name: str
    node: Any
    storage: str
    descending: bool = False
    is_nullable: bool = True

    def ordering(self) -> Any:
        if not self.is_nullable:
            return self.node.desc() if self.descending else self.node.asc()
        return NodeList((self.node, SQL("DESC NULLS LAST" if self.descending else "ASC NULLS FIRST")))

    def beyond(self, value: Any) -> Any:
        """What comes strictly after `value` in this order."""
        if not self.is_nullable:
            return self.node < value if self.descending else self.node > value
        if value is None:
            return SQL("1 = 0") if self.descending else self.node.is_null(False)
        return (self.node < value) | self.node.is_null() if self.descending else self.node > value

    def same(self, value: Any) -> Any:
        return self.node.is_null() if value is None else self.node == value


def find_page(
    scope: TenantScope, collection: CompiledCollection, query: Query, reader: Reader | None = None
) -> Page[dict[str, Any]]:
    """One page of entities, of those the reader may list."""
    source = collection.source()
    columns = collection.query_columns(source)
    where = conditions.compile_condition(whole_condition(scope, collection, query, reader), columns)
    keys = _sort_keys(collection, columns, query.sort)
    selected = [getattr(source, column) for column in collection.columns]
    statement = Select([source], selected).where(where)
    total = count_rows(Select([source], [SQL("1")]).where(where)) if query.count else None
    order = ",".join(("-" if key.descending else "") + key.name for key in keys)
    if query.cursor:
        statement = statement.where(after(keys, read_cursor(query.cursor, order, keys)))
    rows = fetch(statement.order_by(*(key.ordering() for key in keys)).limit(query.limit + 1))
    more, rows = len(rows) > query.limit, rows[: query.limit]
    positions = _positions(collection)
    cursor = encode_cursor([rows[-1][positions[key.name]] for key in keys], order) if more else None
    return Page(present(collection, [collection.show(row) for row in rows], query, reader), cursor, total)


def count_up_to(scope: TenantScope, collection: CompiledCollection, query: Query, most: int) -> int:
    """How many entities the query finds; `most` + 1 when there are more, and then no more than that are looked at."""
    source = collection.source()
    where = conditions.compile_condition(whole_condition(scope, collection, query), collection.query_columns(source))
    return count_rows(Select([source], [SQL("1")]).where(where).limit(most + 1))


def count_rows(statement: Any) -> int:
    return int(fetch(Select([statement.alias("counted")], [fn.COUNT(SQL("*"))]))[0][0])


def fetch(statement: Any) -> list[Any]:
    """The rows of a statement as tuples."""
    sql, params = db.database.get_sql_context().sql(statement).query()
    return list(db.database.execute_sql(sql, params).fetchall())


def placeholders(scope: TenantScope) -> dict[str, Any]:
    """What `$now` and `$actor` mean in a filter of this caller."""
    return {"now": clock.rfc3339(clock.now_ms()), "actor": scope.actor}


def whole_condition(scope: TenantScope, collection: CompiledCollection, query: Query, reader: Reader | None = None) -> Condition:
    fields = reader.fields(collection) if reader else collection.condition_fields
    known = reader.values() if reader else placeholders(scope)
    chosen = conditions.bind(conditions.parse(query.filter, fields, pointer="/filter"), known, fields)
    whole = AllOf((chosen, *_search_conditions(collection, query.search)))
    return reader.narrowed(collection, whole) if reader else whole


def _search_conditions(collection: CompiledCollection, search: str) -> list[Condition]:
    """Every word occurs in one of the searched fields."""
    words = search.replace("\x00", " ").encode("utf8", "ignore").decode().split()
    if not words:
        return []
    if len(words) > MAX_SEARCH_WORDS or max(map(len, words)) > 100:
        raise InvalidRequest(
            Sentence("search takes at most %(max_search_words)s words of 100 characters", max_search_words=MAX_SEARCH_WORDS),
            pointer="/search",
        )
    names = [known.name for known in collection.definition.fields if known.id in collection.definition.search]
    if not names:
        raise InvalidRequest(
            Sentence("the collection %(name)s names no fields to search; list them in its search member", name=collection.name),
            pointer="/search",
        )
    return [AnyOf(tuple(Compare(name, "_icontains", word) for name in names)) for word in words]


def sortable(collection: CompiledCollection) -> dict[str, str]:
    """The names a list can be sorted by, with their storage."""
    known = {"id": "TEXT", "created_at": "BIGINT", "updated_at": "BIGINT", "_version": "BIGINT"}
    return known | {name: f.storage for name, f in collection.fields.items() if f.definition.type != "json"}


def _sort_keys(collection: CompiledCollection, columns: Mapping[str, Any], sort: Sequence[str]) -> list[SortKey]:
    """The asked order, made complete by the id; without one the newest come first."""
    known = sortable(collection)
    keys: list[SortKey] = []
    for part in sort or ("-id",):
        name = part.removeprefix("-")
        if name not in known:
            raise InvalidRequest(
                Sentence("sort: %(name)s is not one of %(known)s", name=repr(name[:60]), known=", ".join(sorted(known))[:500]),
                pointer="/sort",
            )
        if name not in [key.name for key in keys]:
            keys.append(SortKey(name, columns[name].node, known[name], part.startswith("-"), is_nullable=name in collection.fields))
    if "id" not in [key.name for key in keys]:
        keys.append(SortKey("id", columns["id"].node, "TEXT", keys[0].descending, is_nullable=False))
    return keys


def read_cursor(cursor: str, order: str, keys: Sequence[SortKey]) -> list[Any]:
    """The sort values in a cursor; InvalidCursor when they cannot have come from this list."""
    values = decode_cursor(cursor, order, len(keys))
    for key, value in zip(keys, values, strict=True):
        expected: Any = {"TEXT": str, "BIGINT": int}.get(key.storage, int | float)
        fits = value is None or (isinstance(value, expected) and not isinstance(value, bool))
        if not fits or (isinstance(value, int) and abs(value) > LARGEST_INTEGER) or not _is_text(value):
            raise InvalidCursor("the cursor was not made by this list; start again without it")
    return values


def _is_text(value: Any) -> bool:
    return not isinstance(value, str) or ("\x00" not in value and value == value.encode("utf8", "replace").decode())


def after(keys: Sequence[SortKey], values: Sequence[Any]) -> Any:
    """(a, b) beyond (x, y), each column in its own direction."""
    conditions_of = []
    for index, (key, value) in enumerate(zip(keys, values, strict=True)):
        same = [earlier.same(known) for earlier, known in zip(keys[:index], values, strict=False)]
        conditions_of.append(conditions.all_of([*same, key.beyond(value)]))
    return conditions.any_of(conditions_of)


def _positions(collection: CompiledCollection) -> dict[str, int]:
    known = {"id": 0, "created_at": 1, "updated_at": 2, "_version": 3}
    return known | {name: entry.position for name, entry in collection.fields.items()}


def present(
    collection: CompiledCollection, entities: list[dict[str, Any]], query: Query, reader: Reader | None = None
) -> list[dict[str, Any]]:
    """The entities with relations expanded (one level) and only the fields asked for (the id always).

    What a relation leads to stays an id where the reader may not view it.
    """
    for name in query.expand:
        _expand(collection, entities, name, reader)
    if not query.fields:
        return entities
    for name in query.fields:
        if name not in collection.condition_fields:
            known = ", ".join(collection.condition_fields)[:500]
            raise InvalidRequest(
                Sentence("fields: %(name)s is not one of %(known)s", name=repr(name[:60]), known=known), pointer="/fields"
            )
    wanted = dict.fromkeys(("id", *query.fields))
    return [{name: entity[name] for name in wanted} for entity in entities]


def _expand(collection: CompiledCollection, entities: list[dict[str, Any]], name: str, reader: Reader | None) -> None:
    known: Field | None = collection.condition_fields.get(name)
    if known is None or known.inside is None:
        relations = ", ".join(relation.definition.name for relation in collection.relations) or "none here"
        raise InvalidRequest(
            Sentence("expand: %(name)s is not a relation; relations are %(relations)s", name=repr(name[:60]), relations=relations),
            pointer="/expand",
        )
    target = load_for_tenant(collection.tenant_id, collection.fields[name].definition.options["collection"])
    wanted = sorted({entity[name] for entity in entities if isinstance(entity[name], str)})
    if not wanted:
        return
    chosen: Condition = Compare("id", "_in", tuple(wanted))
    shown = {row[0]: target.show(row) for row in find_rows(target, AllOf((chosen, reader.viewable(target))) if reader else chosen)}
    for entity in entities:
        if isinstance(entity[name], str):
            entity[name] = shown.get(entity[name], entity[name])


def find_rows(collection: CompiledCollection, condition: Condition) -> list[Any]:
    """The rows that fulfil a bound condition, in no order."""
    source = collection.source()
    selected = [getattr(source, column) for column in collection.columns]
    where = conditions.compile_condition(condition, collection.query_columns(source))
    return fetch(Select([source], selected).where(where))
