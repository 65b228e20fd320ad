"""Groups and aggregates over entities, filtered before (`filter`) and after (`having`) grouping."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from peewee import OperationalError

from appliance import conditions
from appliance.conditions import Column, Field, Sql
from appliance.core.database import db
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
    parse_cursor,
    placeholders,
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
    sql: str
    storage: str
    field: Field
    show: Converter | None


def aggregate_page(scope: TenantScope, collection: CompiledCollection, query: Query) -> Page[dict[str, Any]]:
    """One page of groups; InvalidRequest when a group or an aggregate is invalid.

    `sum`, `min` and `max` keep the field's type; `avg` is a double and `count` an integer.
    """
    if query.fields or query.expand:
        raise InvalidRequest("fields and expand cannot be combined with group or aggregate", pointer="/fields")
    groups = [_group_output(collection, name) for name in _check_group(query.group)]
    outputs = [*groups, *_aggregate_outputs(collection, query)]
    where = conditions.compile_condition(build_condition(scope, collection, query), collection.query_columns)
    selected = ", ".join(f"{output.sql} AS o{index}" for index, output in enumerate(outputs))
    grouped = f"SELECT {selected} FROM {collection.source} WHERE {where.text}"  # noqa: S608
    if groups:
        grouped += f" GROUP BY {', '.join(output.sql for output in groups)}"
    return _page(scope, query, outputs, (Sql(grouped, where.params), len(groups)))


def _check_group(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(names) > MAX_GROUP or len(set(names)) != len(names):
        raise InvalidRequest(Sentence("group takes at most %(max_group)s different fields", max_group=MAX_GROUP), pointer="/group")
    return names


def _page(
    scope: TenantScope, query: Query, outputs: list[Output], statement_and_group_count: tuple[Sql, int]
) -> Page[dict[str, Any]]:
    statement, group_count = statement_and_group_count
    columns = {output.name: f"grouped.o{index}" for index, output in enumerate(outputs)}
    fields = {output.name: output.field for output in outputs}
    having = conditions.bind(conditions.parse(query.having, fields, pointer="/having"), placeholders(scope), fields)
    where = conditions.compile_condition(having, {name: Column(column) for name, column in columns.items()})
    keys = _sort_keys(query, outputs, columns, group_count)
    selected = f"SELECT {', '.join(columns.values())} FROM ({statement.text}) AS grouped WHERE "  # noqa: S608
    order = ",".join(("-" if key.descending else "") + key.name for key in keys)
    try:
        total = count_rows(Sql(selected + where.text, statement.params + where.params)) if query.count else None
        if query.cursor:
            where = conditions.all_of([where, after_values(keys, parse_cursor(query.cursor, order, keys))])
        ordering = f" ORDER BY {', '.join(key.ordering for key in keys)}" if keys else ""
        params = (*statement.params, *where.params, query.limit + 1)
        rows = [_convert_row(outputs, row) for row in db.rows(f"{selected}{where.text}{ordering} LIMIT ?", params)]
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


def _group_output(collection: CompiledCollection, name: str) -> Output:
    storages = collection.sortable_fields
    if name not in storages:
        raise InvalidRequest(
            Sentence("group: %(name)s is not a field that entities can be grouped by", name=repr(name[:60])), pointer="/group"
        )
    return Output(
        name,
        collection.query_columns[name].sql,
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


def _aggregate_outputs(collection: CompiledCollection, query: Query) -> list[Output]:
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
        outputs.append(_aggregate_output(collection, (name, entry["fn"], entry.get("field")), pointer))
    return outputs


def _aggregate_output(collection: CompiledCollection, spec: tuple[str, str, Any], pointer: str) -> Output:
    name, function, field_name = spec
    count = _without_relation(SYSTEM_FIELDS["_version"])
    if function == "count" and field_name is None:
        return Output(name, "COUNT(*)", "BIGINT", count, int)
    storages = collection.sortable_fields
    if not isinstance(field_name, str) or field_name not in storages:
        raise InvalidRequest(
            Sentence("%(function)s needs a field of the collection that is not of type json", function=function),
            pointer=f"{pointer}/field",
        )
    column, condition_field = collection.query_columns[field_name].sql, collection.condition_fields[field_name]
    entry = collection.fields.get(field_name)
    kind = entry.definition.type if entry else "integer" if field_name == "_version" else ""
    if function == "count":
        return Output(name, f"COUNT({column})", "BIGINT", count, int)
    if function in ("min", "max"):
        extreme, formatter = f"{function.upper()}({column})", _find_formatter(collection, field_name)
        return Output(name, extreme, storages[field_name], _without_relation(condition_field), formatter)
    if kind not in _NUMERIC:
        raise InvalidRequest(
            Sentence("%(function)s needs a field of type %(numeric)s", function=function, numeric=", ".join(_NUMERIC)),
            pointer=f"{pointer}/field",
        )
    if function == "sum":
        formatter = _find_formatter(collection, field_name)
        return Output(name, f"SUM({column})", storages[field_name], _without_relation(condition_field), formatter)
    divisor = 10 ** get_scale(entry.definition.options) if entry and kind == "decimal" else 1
    average = f"AVG({column}) / {float(divisor)}" if divisor > 1 else f"AVG({column})"
    return Output(name, average, "DOUBLE PRECISION", Field("ordered", FIELD_TYPES["number"].build_comparison_parser({})), float)


def _sort_keys(query: Query, outputs: list[Output], columns: Mapping[str, str], group_count: int) -> list[SortKey]:
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
            keys.append(SortKey(name, columns[name], by_name[name].storage, part.startswith("-")))
    return keys
