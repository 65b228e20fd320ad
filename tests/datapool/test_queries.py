"""Lists and queries: filter, sort, pages, search, fields, expand."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from appliance import conditions
from appliance.core.errors import InvalidCursor, InvalidFilter, InvalidRequest, PayloadTooLarge
from appliance.core.scope import TenantScope
from appliance.datapool import service as datapool
from appliance.datapool.compiled import load

ROWS: list[dict[str, Any]] = [
    {"number": "a1", "total": "10.00", "day": "2026-01-01", "paid": True, "weight": 1.5, "state": "new"},
    {"number": "A2", "total": "9.99", "day": "2026-01-02", "paid": False, "shipped": "2026-01-02T10:00:00Z"},
    {"number": "b_3", "total": "100.00", "weight": -2, "contact": "Münster@example.com", "state": "done"},
    {"number": "b%4", "day": "2025-12-31", "quantity": None, "extra": {"z": 1, "k": [1]}, "contact": "x@example.com"},
    {"number": "ä5", "total": "9.99", "day": "2026-01-01", "quantity": 7, "shipped": "2026-01-02T09:00:00+00:00"},
]


@pytest.fixture
def orders(acme: TenantScope, globex: TenantScope) -> TenantScope:
    france = datapool.create_entity(acme, "customers", {"code": "VINET", "country": "France"})
    spain = datapool.create_entity(acme, "customers", {"code": "ROMEY", "country": "Spain"})
    for row, customer in zip(ROWS, (france, spain, france, None, spain), strict=True):
        datapool.create_entity(acme, "orders", row | {"customer": customer["id"] if customer else None})
    datapool.create_entity(globex, "orders", {"number": "foreign", "total": "10.00"})
    return acme


def numbers(scope: TenantScope, query: Any) -> list[str]:
    return [entity["number"] for entity in datapool.query_entities(scope, "orders", query).items]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({}, ["a1", "A2", "b_3", "b%4", "ä5"]),
        ({"total": "9.99"}, ["A2", "ä5"]),
        ({"total": {"_gt": 9.99}}, ["a1", "b_3"]),
        ({"total": {"_gte": "10", "_lt": "100"}}, ["a1"]),
        ({"total": {"_null": True}}, ["b%4"]),
        ({"total": {"_neq": "9.99"}}, ["a1", "b_3", "b%4"]),
        ({"day": {"_between": ["2025-12-31", "2026-01-01"]}}, ["a1", "b%4", "ä5"]),
        ({"shipped": {"_lt": "2026-01-02T11:30:00+02:00"}}, ["ä5"]),
        ({"paid": False}, ["A2"]),
        ({"paid": {"_in": [True]}}, ["a1"]),
        ({"quantity": {"_nin": [1, 7]}}, ["b%4"]),
        ({"weight": {"_lte": 1.5}}, ["a1", "b_3"]),
        ({"number": {"_starts_with": "b"}}, ["b_3", "b%4"]),
        ({"number": {"_contains": "_"}}, ["b_3"]),
        ({"number": {"_contains": "%"}}, ["b%4"]),
        ({"number": {"_icontains": "Ä"}}, ["ä5"]),
        ({"contact": {"_icontains": "MÜNSTER"}}, ["b_3"]),
        ({"extra": {"_eq": {"k": [1], "z": 1}}}, ["b%4"]),
        ({"customer": {"country": "France"}}, ["a1", "b_3"]),
        ({"customer": {"_none": {"country": "France"}}}, ["A2", "b%4", "ä5"]),
        ({"customer": {"_some": {"code": {"_starts_with": "RO"}}, "_null": False}}, ["A2", "ä5"]),
        ({"_or": [{"state": "done"}, {"_and": [{"paid": True}, {"weight": {"_gt": 1}}]}]}, ["a1", "b_3"]),
        ({"created_at": {"_lte": "$now"}, "day": {"_lt": "$now"}}, ["a1", "A2", "b%4", "ä5"]),
        ({"_version": 1, "number": "a1"}, ["a1"]),
    ],
)
def test_a_filter_selects_matching_entities(orders: TenantScope, chosen: Any, expected: list[str]) -> None:
    assert numbers(orders, {"filter": chosen, "sort": "id"}) == expected
    fields = load(orders, "orders").condition_fields
    everything = datapool.query_entities(orders, "orders", {"sort": "id", "expand": "customer"}).items
    if "$" not in str(chosen):
        condition = conditions.parse(chosen, fields)
        compared = {k: v for k, v in fields.items() if k != "customer"} | {
            "customer": conditions.Field("text", str, fields["customer"].inside)
        }
        assert [e["number"] for e in everything if conditions.matches(condition, e, compared)] == expected


@pytest.mark.parametrize(
    ("chosen", "pointer"),
    [
        ({"colour": 1}, "/filter/colour"),
        ({"total": {"_gt": "9.999"}}, "/filter/total/_gt"),
        ({"day": "yesterday"}, "/filter/day"),
        ({"extra": {"_contains": "k"}}, "/filter/extra/_contains"),
        ({"customer": {"_some": {"colour": 1}}}, "/filter/customer/_some/colour"),
        ({"quantity": 2**63}, "/filter/quantity"),
    ],
)
def test_an_invalid_filter_is_reported_with_its_pointer(orders: TenantScope, chosen: Any, pointer: str) -> None:
    with pytest.raises(InvalidFilter) as refusal:
        datapool.query_entities(orders, "orders", {"filter": chosen})
    assert [detail.pointer for detail in refusal.value.details] == [pointer]


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        (None, ["ä5", "b%4", "b_3", "A2", "a1"]),
        ("number", ["A2", "a1", "b%4", "b_3", "ä5"]),
        ("total,number", ["b%4", "A2", "ä5", "a1", "b_3"]),
        ("-total,number", ["b_3", "a1", "A2", "ä5", "b%4"]),
        (["-day", "-number"], ["A2", "ä5", "a1", "b%4", "b_3"]),
        ("customer,id", ["b%4", "a1", "b_3", "A2", "ä5"]),
    ],
)
def test_pages_of_any_size_join_to_the_whole_order(orders: TenantScope, sort: Any, expected: list[str]) -> None:
    assert numbers(orders, {"sort": sort}) == expected
    for limit in (1, 2, 4):
        seen: list[str] = []
        cursor = None
        while True:
            page = datapool.query_entities(orders, "orders", {"sort": sort, "limit": limit, "cursor": cursor, "count": True})
            seen += [entity["number"] for entity in page.items]
            assert page.total == 5
            cursor = page.next_cursor
            if cursor is None:
                break
        assert seen == expected


def test_decimals_sort_by_value(acme: TenantScope) -> None:
    for number, total in enumerate(["2.5", "10", "0.07", "999999999999999.99", "2.49"]):
        datapool.create_entity(acme, "orders", {"number": str(number), "total": total})
    totals = [float(e["total"]) for e in datapool.query_entities(acme, "orders", {"sort": "total"}).items]
    assert all(a < b for a, b in pairwise(totals))


@pytest.mark.parametrize("cursor", ["", "x", "WyItaWQiLCAxXQ", "WyItaWQiLCAiXHVkODAwIl0", "WzEsIDJd", "e30", "ÿ"])
def test_a_cursor_of_another_list_is_refused(orders: TenantScope, cursor: str) -> None:
    if cursor:
        with pytest.raises(InvalidCursor):
            datapool.query_entities(orders, "orders", {"cursor": cursor})
    page = datapool.query_entities(orders, "orders", {"limit": 2})
    with pytest.raises(InvalidCursor):
        datapool.query_entities(orders, "orders", {"cursor": page.next_cursor, "sort": "number"})


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        ("MÜN", ["b_3"]),
        ("example x@", ["b%4"]),
        ("a", ["a1", "A2", "b_3", "b%4"]),
        ("% _", []),
        ("  ", ["a1", "A2", "b_3", "b%4", "ä5"]),
    ],
)
def test_search_finds_every_word_in_a_searched_field(orders: TenantScope, search: str, expected: list[str]) -> None:
    assert numbers(orders, {"search": search, "sort": "id"}) == expected


def test_a_collection_without_searched_fields_says_so(orders: TenantScope) -> None:
    with pytest.raises(InvalidRequest, match="search"):
        datapool.query_entities(orders, "customers", {"search": "x"})


def test_fields_and_expand_shape_the_answer(orders: TenantScope) -> None:
    query = {"filter": {"number": {"_in": ["a1", "b%4"]}}, "fields": "number,customer", "expand": ["customer"], "sort": "number"}
    items = datapool.query_entities(orders, "orders", query).items
    assert [set(item) for item in items] == [{"id", "number", "customer"}] * 2
    assert items[0]["customer"]["country"] == "France"
    assert items[1]["customer"] is None


@pytest.mark.parametrize(
    "query",
    [
        [], {"colour": 1}, {"limit": 0}, {"limit": 501}, {"limit": "5"}, {"limit": True}, {"sort": "colour"}, {"sort": "extra"},
        {"sort": 5}, {"fields": ["colour"]}, {"expand": "number"}, {"filter": "x"}, {"search": 5}, {"count": "some"},
        {"having": {"n": 1}}, {"search": " ".join("abcdefghijkl")},
    ],
)  # fmt: skip
def test_a_wrong_query_is_refused(orders: TenantScope, query: Any) -> None:
    with pytest.raises(InvalidRequest):
        datapool.query_entities(orders, "orders", query)


def test_the_operator_limits_rows_per_answer_and_the_size_of_entities(orders: TenantScope) -> None:
    datapool.configure(entity_kb=1, query_rows=3)
    try:
        with pytest.raises(InvalidRequest, match="between 1 and 3"):
            datapool.query_entities(orders, "orders", {"limit": 4})
        assert len(datapool.query_entities(orders, "orders", {}).items) == 3
        with pytest.raises(PayloadTooLarge, match="1 KiB"):
            datapool.create_entity(orders, "orders", {"number": "1", "extra": "x" * 1024})
    finally:
        datapool.configure(entity_kb=1024, query_rows=500)


AGGREGATES = {
    "n": {"fn": "count"},
    "days": {"fn": "count", "field": "day"},
    "sum": {"fn": "sum", "field": "total"},
    "avg": {"fn": "avg", "field": "total"},
    "first": {"fn": "min", "field": "day"},
    "last": {"fn": "max", "field": "number"},
    "pieces": {"fn": "sum", "field": "quantity"},
}


def test_aggregates_keep_exactness_and_types(orders: TenantScope) -> None:
    [row] = datapool.query_entities(orders, "orders", {"aggregate": AGGREGATES}).items
    assert row == {
        "n": 5, "days": 4, "sum": "129.98", "avg": pytest.approx(32.495), "first": "2025-12-31", "last": "ä5", "pieces": 10,
    }  # fmt: skip


def test_groups_are_filtered_sorted_and_paged(orders: TenantScope) -> None:
    query: Mapping[str, Any] = {
        "group": "day", "aggregate": {"n": {"fn": "count"}, "sum": {"fn": "sum", "field": "total"}},
        "having": {"sum": {"_gt": "1"}}, "sort": "-sum", "count": "exact", "limit": 2,
    }  # fmt: skip
    first = datapool.query_entities(orders, "orders", query)
    second = datapool.query_entities(orders, "orders", {**query, "cursor": first.next_cursor})
    assert [*first.items, *second.items] == [
        {"day": None, "n": 1, "sum": "100.00"},
        {"day": "2026-01-01", "n": 2, "sum": "19.99"},
        {"day": "2026-01-02", "n": 1, "sum": "9.99"},
    ]
    assert (first.total, second.next_cursor) == (3, None)


def test_groups_alone_are_the_distinct_values(orders: TenantScope) -> None:
    items = datapool.query_entities(orders, "orders", {"group": ["paid", "state"], "sort": "-paid"}).items
    assert items[0] == {"paid": True, "state": "new"}
    assert len(items) == 4


@pytest.mark.parametrize(
    "query",
    [
        {"group": "extra"}, {"group": "colour"}, {"group": ["day", "day"]}, {"aggregate": {"n": {"fn": "median"}}},
        {"aggregate": {"n": {"fn": "sum"}}}, {"aggregate": {"n": {"fn": "sum", "field": "day"}}}, {"aggregate": {"n": "count"}},
        {"aggregate": {"a b": {"fn": "count"}}}, {"group": "day", "aggregate": {"day": {"fn": "count"}}},
        {"group": "day", "fields": "day"}, {"group": "day", "sort": "total"}, {"aggregate": {"n": {"fn": ["count"]}}},
    ],
)  # fmt: skip
def test_a_wrong_aggregate_is_refused(orders: TenantScope, query: Any) -> None:
    with pytest.raises(InvalidRequest):
        datapool.query_entities(orders, "orders", query)


def test_a_sum_beyond_64_bits_is_refused(acme: TenantScope) -> None:
    for number in range(3):
        datapool.create_entity(acme, "orders", {"number": str(number), "quantity": 2**62})
    with pytest.raises(InvalidRequest, match="64 bits"):
        datapool.query_entities(acme, "orders", {"aggregate": {"sum": {"fn": "sum", "field": "quantity"}}})
