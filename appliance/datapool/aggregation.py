"""Groups and aggregates over entities, filtered before (`filter`) and after (`having`) grouping."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from peewee import SQL, OperationalError, Select, fn

from appliance import conditions
from appliance.conditions import Column, Field
from appliance.core.errors import InvalidRequest
from appliance.core.pages import Page, encode_cursor
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.datapool.compiled import SYSTEM_FIELDS, CompiledCollection
from appliance.datapool.field_types import FIELD_TYPES, LARGEST_INTEGER, Converter, get_scale
from appliance.datapool.queries import (
    Query,
    SortKey,
    after_values,
    build_condition,
    count_rows,
    fetch,
    parse_cursor,
    placeholders,
    sortable_fields,
)

MAX_AGGREGATES = 20
MAX_GROUP = 8
FUNCTIONS = ("count", "sum", "avg", "min", "max")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
_NUMERIC = ("number", "integer", "decimal")


@dataclass(frozen=True)
class Output:
    """One column of the result: how it is computed, formatted, compared and sorted."""

    name: str
    node: Any
    storage: str
    field: Field
    show: Converter | None


def aggregate_page(scope: TenantScope, collection: CompiledCollection, query: Query) -> Page[dict[str, Any]]:
    """One page of groups; InvalidRequest when a group or an aggregate is invalid.

    `sum`, `min` and `max` keep the field's type; `avg` is a double and `count` an integer.
    """
    if query.fields or query.expand:
        raise InvalidRequest("fields and expand cannot be combined with group or aggregate", pointer="/fields")
    source = collection.source()
    columns = collection.query_columns(source)
    groups = [_group_output(collection, columns, name) for name in _check_group(query.group)]
    outputs = [*groups, *_aggregate_outputs(collection, columns, query)]
    where = conditions.compile_condition(build_condition(scope, collection, query), columns)
    selected = [output.node.alias(f"o{index}") for index, output in enumerate(outputs)]
    grouped = Select([source], selected).where(where)
    if groups:
        grouped = grouped.group_by(*(output.node for output in groups))
    return _page(scope, query, outputs, (grouped, len(groups)))


def _check_group(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(names) > MAX_GROUP or len(set(names)) != len(names):
        raise InvalidRequest(Sentence("group takes at most %(max_group)s different fields", max_group=MAX_GROUP), pointer="/group")
    return names


def _page(
    scope: TenantScope, query: Query, outputs: list[Output], statement_and_group_count: tuple[Any, int]
) -> Page[dict[str, Any]]:
    statement, group_count = statement_and_group_count
    inner = statement.alias("grouped")
    nodes = {output.name: getattr(inner.c, f"o{index}") for index, output in enumerate(outputs)}
    fields = {output.name: output.field for output in outputs}
    having = conditions.bind(conditions.parse(query.having, fields, pointer="/having"), placeholders(scope), fields)
    matches_having = conditions.compile_condition(having, {name: Column(node) for name, node in nodes.items()})
    keys = _sort_keys(query, outputs, nodes, group_count)
    page_query = Select([inner], list(nodes.values())).where(matches_having)
    order = ",".join(("-" if key.descending else "") + key.name for key in keys)
    try:
        total = count_rows(page_query) if query.count else None
        if query.cursor:
            page_query = page_query.where(after_values(keys, parse_cursor(query.cursor, order, keys)))
        page_query = page_query.order_by(*(key.ordering() for key in keys)) if keys else page_query
        rows = [_convert_row(outputs, row) for row in fetch(page_query.limit(query.limit + 1))]
    except (OperationalError, OverflowError) as error:
        if "overflow" in str(error):
            raise InvalidRequest("a sum exceeds 64 bits; use a narrower filter", pointer="/aggregate") from error
        raise
    more, rows = len(rows) > query.limit, rows[: query.limit]
    positions = {output.name: index for index, output in enumerate(outputs)}
    cursor = encode_cursor([rows[-1][positions[key.name]] for key in keys], order) if more else None
    return Page([_to_view(outputs, row) for row in rows], cursor, total)


def _convert_row(outputs: list[Output], row: Any) -> list[Any]:
    """The row in plain Python types; PostgreSQL returns sums and averages as `Decimal`."""
    return [value if value is None else _CONVERTERS[output.storage](value) for output, value in zip(outputs, row, strict=True)]


def _convert_integer(value: Any) -> int:
    whole = int(value)
    if abs(whole) > LARGEST_INTEGER:
        raise OverflowError("integer overflow")
    return whole


_CONVERTERS: dict[str, Converter] = {"TEXT": str, "BIGINT": _convert_integer, "DOUBLE PRECISION": float}


def _to_view(outputs: list[Output], row: Any) -> dict[str, Any]:
    return {
        output.name: value if value is None or output.show is None else output.show(value)
        for output, value in zip(outputs, row, strict=True)
    }


def _group_output(collection: CompiledCollection, columns: Mapping[str, Column], name: str) -> Output:
    storages = sortable_fields(collection)
    if name not in storages:
        raise InvalidRequest(
            Sentence("group: %(name)s is not a field that entities can be grouped by", name=repr(name[:60])), pointer="/group"
        )
    return Output(
        name,
        columns[name].node,
        storages[name],
        _without_relation(collection.condition_fields[name]),
        _find_formatter(collection, name),
    )


def _without_relation(field: Field) -> Field:
    return Field(field.kind, field.convert)


def _find_formatter(collection: CompiledCollection, name: str) -> Converter | None:
    if name in collection.fields:
        return collection.fields[name].format
    return FIELD_TYPES["datetime"].build_formatter({}) if name in ("created_at", "updated_at") else None


def _aggregate_outputs(collection: CompiledCollection, columns: Mapping[str, Column], query: Query) -> list[Output]:
    if len(query.aggregate) > MAX_AGGREGATES:
        raise InvalidRequest(
            Sentence("aggregate takes at most %(max_aggregates)s members", max_aggregates=MAX_AGGREGATES), pointer="/aggregate"
        )
    outputs = []
    for name, entry in query.aggregate.items():
        pointer = f"/aggregate/{name[:60]}"
        if not _NAME.fullmatch(name) or name in query.group:
            raise InvalidRequest(
                "the name of an aggregate must start with a letter, contain only letters, digits and _, and differ from the "
                "grouped fields",
                pointer=pointer,
            )
        if not isinstance(entry, Mapping) or entry.keys() - {"fn", "field"} or entry.get("fn") not in FUNCTIONS:
            raise InvalidRequest(Sentence("must be {fn: %(functions)s, field}", functions=' | '.join(FUNCTIONS)), pointer=pointer)
        outputs.append(_aggregate_output(collection, columns, (name, entry["fn"], entry.get("field")), pointer))
    return outputs


def _aggregate_output(
    collection: CompiledCollection, columns: Mapping[str, Column], spec: tuple[str, str, Any], pointer: str
) -> Output:
    name, function, field_name = spec
    count = _without_relation(SYSTEM_FIELDS["_version"])
    if function == "count" and field_name is None:
        return Output(name, fn.COUNT(SQL("*")), "BIGINT", count, int)
    storages = sortable_fields(collection)
    if not isinstance(field_name, str) or field_name not in storages:
        raise InvalidRequest(
            Sentence("%(function)s needs a field of the collection that is not of type json", function=function),
            pointer=f"{pointer}/field",
        )
    node, condition_field = columns[field_name].node, collection.condition_fields[field_name]
    entry = collection.fields.get(field_name)
    kind = entry.definition.type if entry else "integer" if field_name == "_version" else ""
    if function == "count":
        return Output(name, fn.COUNT(node), "BIGINT", count, int)
    if function in ("min", "max"):
        extreme = (fn.MIN if function == "min" else fn.MAX)(node)
        return Output(
            name, extreme, storages[field_name], _without_relation(condition_field), _find_formatter(collection, field_name)
        )
    if kind not in _NUMERIC:
        raise InvalidRequest(
            Sentence("%(function)s needs a field of type %(numeric)s", function=function, numeric=", ".join(_NUMERIC)),
            pointer=f"{pointer}/field",
        )
    if function == "sum":
        return Output(
            name, fn.SUM(node), storages[field_name], _without_relation(condition_field), _find_formatter(collection, field_name)
        )
    divisor = 10 ** get_scale(entry.definition.options) if entry and kind == "decimal" else 1
    average = fn.AVG(node) / float(divisor) if divisor > 1 else fn.AVG(node)
    return Output(name, average, "DOUBLE PRECISION", Field("ordered", FIELD_TYPES["number"].build_comparison_parser({})), float)


def _sort_keys(query: Query, outputs: list[Output], nodes: Mapping[str, Any], group_count: int) -> list[SortKey]:
    """The requested order, with the grouped fields appended so that it is unambiguous."""
    by_name = {output.name: output for output in outputs}
    keys: list[SortKey] = []
    for part in (*query.sort, *(output.name for output in outputs[:group_count])):
        name = part.removeprefix("-")
        if name not in by_name:
            raise InvalidRequest(
                Sentence("sort: %(name)s is not one of %(names)s", name=repr(name[:60]), names=", ".join(by_name)[:500]),
                pointer="/sort",
            )
        if name not in [key.name for key in keys]:
            keys.append(SortKey(name, nodes[name], by_name[name].storage, part.startswith("-")))
    return keys
