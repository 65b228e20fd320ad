"""What a filter means: parsing, placeholders, and the same result in Python and SQL."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import peewee
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.conditions import Column, Condition, Field, Never, Related, bind, compile_condition, matches, parse
from appliance.core.errors import InvalidFilter


def flag(value: Any) -> int:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")  # noqa: TRY004
    return int(value)


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


FRIEND: dict[str, Field] = {"id": Field("text"), "name": Field("text"), "age": Field("ordered")}
FIELDS: dict[str, Field] = {
    "name": Field("text"),
    "age": Field("ordered"),
    "open": Field("plain", flag),
    "extra": Field("plain", canonical),
    "friend": Field("text", inside=lambda: FRIEND),
}

# Letters that fold in surprising ways: sharp s, dotted i, Kelvin, long s, title-case dz, final sigma.
characters = st.sampled_from(
    "aAbBzZäÄéÉ%_'\"\\ kKsS\u212a\u00df\u1e9e\u0130\u0131\u017f\u01c4\u01c5\u01c6\u03a3\u03c3\u03c2\U0001f600\ud7ff\ue000\U0010ffff"
)
texts = st.text(characters, max_size=6)
numbers = st.one_of(st.integers(-3, 3), st.sampled_from([0.5, -0.5, 1e300, 2**53]))
scalars = {"name": texts, "age": numbers, "open": st.booleans(), "extra": st.sampled_from([1, "1", [1], {"a": 1}])}
people = st.fixed_dictionaries({"name": st.none() | texts, "age": st.none() | numbers})
rows = st.fixed_dictionaries({name: st.none() | values for name, values in scalars.items()} | {"friend": st.none() | people})


def comparisons(fields: Mapping[str, Field], names: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    def of(name: str) -> st.SearchStrategy[dict[str, Any]]:
        value, kind = scalars[name], fields[name].kind
        choices: list[st.SearchStrategy[Any]] = [
            st.fixed_dictionaries({operator: value})
            for operator in ["_eq", "_neq", *(["_lt", "_lte", "_gt", "_gte"] if kind != "plain" else [])]
        ]
        choices += [st.fixed_dictionaries({op: st.lists(value, max_size=3)}) for op in ["_in", "_nin"]]
        choices += [st.fixed_dictionaries({"_null": st.booleans()}), st.none()]
        if kind != "plain":
            choices.append(st.fixed_dictionaries({"_between": st.lists(value, min_size=2, max_size=2)}))
        if kind == "text":
            choices += [st.fixed_dictionaries({op: value}) for op in ["_contains", "_icontains", "_starts_with"]]
        if name != "extra":
            choices.append(value)
        return st.fixed_dictionaries({name: st.one_of(choices)})

    return st.one_of([of(name) for name in names])


def grouped(leaves: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.recursive(
        leaves,
        lambda inner: (
            st.fixed_dictionaries({"_and": st.lists(inner, min_size=1, max_size=3)})
            | st.fixed_dictionaries({"_or": st.lists(inner, min_size=1, max_size=3)})
        ),
        max_leaves=4,
    )


on_friends = grouped(comparisons(FRIEND, ["name", "age"]))
filters = grouped(
    comparisons(FIELDS, ["name", "age", "open", "extra"])
    | st.fixed_dictionaries({"friend": st.fixed_dictionaries({"_some": on_friends})})
    | st.fixed_dictionaries({"friend": st.fixed_dictionaries({"_none": on_friends})})
    | st.fixed_dictionaries({"friend": on_friends})
)


@pytest.fixture(scope="module")
def database() -> Iterator[Any]:
    database: Any = peewee.SqliteDatabase(":memory:")
    database.execute_sql("CREATE TABLE friend (id TEXT PRIMARY KEY, name TEXT, age DOUBLE PRECISION)")
    database.execute_sql(
        "CREATE TABLE person (position INTEGER, name TEXT, age DOUBLE PRECISION, open INTEGER, extra TEXT, friend TEXT)"
    )
    yield database
    database.close()


def select_with_sql(database: Any, table: list[dict[str, Any]], condition: Condition) -> list[int]:
    database.execute_sql("DELETE FROM friend")
    database.execute_sql("DELETE FROM person")
    for position, row in enumerate(table):
        friend = row["friend"]
        if friend is not None:
            database.execute_sql("INSERT INTO friend VALUES (?, ?, ?)", (str(position), friend["name"], friend["age"]))
        stored = [None if row[name] is None else FIELDS[name].convert(row[name]) for name in scalars]
        values = (position, *stored, None if friend is None else str(position))
        database.execute_sql("INSERT INTO person VALUES (?, ?, ?, ?, ?, ?)", values)
    related = Related("SELECT t.id FROM friend AS t", {name: Column(f"t.{name}") for name in FRIEND})
    columns = {name: Column(f"t.{name}", (lambda: related) if name == "friend" else None) for name in FIELDS}
    where = compile_condition(condition, columns)
    query = f"SELECT position FROM person AS t WHERE {where.text} ORDER BY position"  # noqa: S608
    return [row[0] for row in database.execute_sql(query, where.params).fetchall()]


@settings(max_examples=300, deadline=None)
@given(table=st.lists(rows, max_size=5), document=filters)
def test_python_and_sql_select_the_same_rows(database: Any, table: list[dict[str, Any]], document: dict[str, Any]) -> None:
    condition = parse(document, FIELDS)
    chosen = [index for index, row in enumerate(table) if matches(condition, row, FIELDS)]
    assert select_with_sql(database, table, condition) == chosen


@pytest.mark.parametrize(
    ("document", "record", "expected"),
    [
        ({}, {"a": 1}, True),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": "1"}, {"a": 1}, False),
        ({"a": {"_gt": 1}}, {"a": "2"}, False),
        ({"a": {"_neq": 1}}, {}, True),
        ({"a": None}, {}, True),
        ({"a": {"_gte": 1, "_lt": 3}}, {"a": 3}, False),
        ({"a": {"_contains": "x"}}, {"a": ["x", "y"]}, True),
        ({"a": {"b": {"_eq": 1}}}, {"a": {"b": 1}}, True),
        ({"a": {"_some": {"_gt": 5}}}, {"a": [1, 9]}, True),
        ({"a": {"_none": {"_gt": 5}}}, {"a": [1, 9]}, False),
        ({"a": {"_some": {"n": 1, "m": 2}}}, {"a": [{"n": 1, "m": 1}, {"n": 2, "m": 2}]}, False),
        ({"_or": [{"a": 1}, {"b": 1}]}, {"b": 1}, True),
        ({"a": {"_icontains": "MÜN"}}, {"a": "Münster"}, True),
    ],
)
def test_a_condition_on_any_record(document: dict[str, Any], record: dict[str, Any], expected: bool) -> None:
    assert matches(parse(document), record) is expected


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        ([], ""),
        ({"nam": 1}, "/nam"),
        ({"_xor": []}, "/_xor"),
        ({"_or": []}, "/_or"),
        ({"_and": {"a": 1}}, "/_and"),
        ({"_or": [{"age": 1}, {"age": {"_like": 1}}]}, "/_or/1/age/_like"),
        ({"age": {"_contains": "1"}}, "/age/_contains"),
        ({"open": "yes"}, "/open"),
        ({"open": {"_gt": True}}, "/open/_gt"),
        ({"age": {}}, "/age"),
        ({"age": {"_gt": None}}, "/age/_gt"),
        ({"age": {"_null": 1}}, "/age/_null"),
        ({"age": {"_between": [1]}}, "/age/_between"),
        ({"name": {"_in": "abc"}}, "/name/_in"),
        ({"name": {"_in": list("abc") * 400}}, "/name/_in"),
        ({"name": {"_contains": "x" * 1001}}, "/name/_contains"),
        ({"name": "\x00"}, "/name"),
        ({"name": "\ud800"}, "/name"),
        ({"age": {"_some": {"a": 1}}}, "/age/_some"),
        ({"friend": {"_some": {"nme": 1}}}, "/friend/_some/nme"),
    ],
)
def test_an_invalid_filter_is_refused_with_a_pointer(document: Any, pointer: str) -> None:
    with pytest.raises(InvalidFilter) as refusal:
        parse(document, FIELDS)
    assert [detail.pointer for detail in refusal.value.details] == [pointer]


def test_a_filter_too_deep_or_too_long_is_refused() -> None:
    document: dict[str, Any] = {"name": "x"}
    for _ in range(1000):
        document = {"_and": [document]}
    with pytest.raises(InvalidFilter, match="levels deep"):
        parse(document, FIELDS)
    with pytest.raises(InvalidFilter, match="comparisons"):
        parse({"_or": [{"name": str(number)} for number in range(201)]}, FIELDS)


def test_a_placeholder_takes_its_value_when_the_condition_is_bound() -> None:
    condition = parse({"name": "$actor.id", "age": {"_lt": "$request.query.age"}}, FIELDS)
    bound = bind(condition, {"actor": {"id": "u1"}, "request": {"query": {"age": 5}}}, FIELDS)
    assert matches(bound, {"name": "u1", "age": 4}, FIELDS)
    assert not matches(bound, {"name": "u2", "age": 4}, FIELDS)


@pytest.mark.parametrize("operator", ["_eq", "_neq"])
def test_a_placeholder_without_a_value_matches_nothing(operator: str) -> None:
    condition = bind(parse({"name": {operator: "$actor.id"}}, FIELDS), {"actor": {}}, FIELDS)
    assert condition == Never()
    assert not matches(condition, {"name": None}, FIELDS)


def test_a_text_that_looks_like_a_placeholder_can_be_escaped() -> None:
    assert matches(parse({"name": "\\$now"}, FIELDS), {"name": "$now"}, FIELDS)
    assert matches(parse({"name": "$5"}, FIELDS), {"name": "$5"}, FIELDS)


def test_using_an_unbound_condition_is_a_bug() -> None:
    with pytest.raises(TypeError, match="bind the placeholders"):
        matches(parse({"name": "$now"}), {"name": "x"})


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"friend": {"_none": {"name": "$actor.id"}}}, False),
        ({"friend": {"_none": {"_or": [{"age": 5}, {"name": {"_neq": "$actor.id"}}]}}}, False),
        ({"friend": {"_none": {"name": "x"}}}, True),
        ({"name": {"_in": "$actor.roles"}}, True),
        ({"name": {"_nin": "$actor.roles"}}, False),
        ({"name": {"_nin": "$actor.teams"}}, False),
        ({"age": {"_in": "$actor.name"}}, False),
        ({"name": {"_contains": "$actor.long"}}, False),
    ],
)
def test_an_absent_value_is_false_even_when_negated(document: dict[str, Any], expected: bool) -> None:
    values = {"actor": {"roles": ["a", "b"], "name": "a", "long": "a" * 1001}}
    bound = bind(parse(document, FIELDS), values, FIELDS)
    assert matches(bound, {"name": "a", "age": 1, "friend": {"name": "y", "age": 1}}, FIELDS) is expected
