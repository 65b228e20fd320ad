"""The connector against a service on loopback: requests, parsed responses and refusals."""

from typing import Any

import pytest
from gos_connector_odata import OdataConnector

from appliance.connectors.contract import (
    ConfigError,
    Context,
    Json,
    Rejected,
)
from appliance.connectors.testing import ConnectorContract

Shop = Any
PASSWORD = "sésame-'\"%s"
BASIC = {"kind": "basic", "username": "gos", "password": PASSWORD}
ORDER = "0f8fad5b-d9cb-469f-a165-70867728950e"


def names(out: Json) -> list[Any]:
    return [entity["Name"] for entity in out["entities"]]


class TestContract(ConnectorContract):
    connector = OdataConnector

    @pytest.fixture
    def settings(self, shop: Shop) -> dict[str, Any]:
        return {"base_url": shop.url, "auth": BASIC}

    @pytest.fixture
    def broken_settings(self) -> dict[str, Any]:
        return {"base_url": "http://127.0.0.1:1/odata"}


# -- reading


def test_check_returns_the_address_and_the_number_of_sets(it: OdataConnector, shop: Shop, ctx: Context) -> None:
    assert it.check(ctx) == f"{shop.url} is an OData 4 service with 3 entity sets."


def test_a_list_follows_its_pages_to_the_end(it: OdataConnector, shop: Shop, ctx: Context) -> None:
    out = it.call("list", {"entity_set": "Products", "count": True}, ctx)
    assert names(out) == ["Bolt", "Washer", "O'Ring & Söhne", "Bolt", "Nail"]
    assert (out["truncated"], out["count"]) == (False, 5)
    assert out["entities"][0]["@odata.etag"] == 'W/"1"'
    assert sum("Products?" in each.path for each in shop.server.received) == 3


@pytest.mark.parametrize(
    ("limit", "expected", "truncated"), [(1, 1, True), (2, 2, True), (3, 3, True), (5, 5, False), (6, 5, False)]
)
def test_a_list_ends_at_its_limit_and_reports_whether_there_is_more(
    it: OdataConnector, ctx: Context, limit: int, expected: int, truncated: bool
) -> None:
    out = it.call("list", {"entity_set": "Products", "limit": limit}, ctx)
    assert (len(out["entities"]), out["truncated"]) == (expected, truncated)


def test_a_filter_value_cannot_change_the_filter(it: OdataConnector, ctx: Context) -> None:
    out = it.call("list", {"entity_set": "Products", "filter": "Name eq :name", "params": {"name": "O'Ring & Söhne"}}, ctx)
    assert names(out) == ["O'Ring & Söhne"]
    attack = {"entity_set": "Products", "filter": "Name eq :name", "params": {"name": "x' or Name ne 'x"}}
    assert it.call("list", attack, ctx)["entities"] == []


def test_query_options_are_sent(it: OdataConnector, shop: Shop, ctx: Context) -> None:
    params = {
        "entity_set": "Products", "select": ["ID", "Name"], "expand": "Lines($top=1)", "orderby": "Name desc", "search": "a b",
        "top": 3, "skip": 1, "limit": 1,
    }  # fmt: skip
    it.call("list", params, ctx)
    assert shop.last().path.endswith(
        "/Products?$select=ID,Name&$expand=Lines($top%3D1)&$orderby=Name%20desc&$search=a%20b&$top=3&$skip=1"
    )
    assert shop.last().headers["prefer"] == "odata.maxpagesize=1"


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"filter": "Name eq :nom", "params": {"name": "x"}}, "contains :nom"),
        ({"filter": "Name eq 'a :name'", "params": {"name": "x"}}, "does not contain :name"),
        ({"params": {"name": "x"}}, "there is no `filter`"),
        ({"filter": "Day eq :day", "params": {"day": {"literal": "1 or 1 eq 1"}}}, "not a number, date"),
    ],
)
def test_a_filter_and_its_values_must_match(it: OdataConnector, ctx: Context, values: Json, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        it.call("list", {"entity_set": "Products", **values}, ctx)


def test_values_are_formatted_as_odata_literals(it: OdataConnector, shop: Shop, ctx: Context) -> None:
    params = {"a": 1.5, "b": True, "c": None, "d": {"literal": "2026-11-21T10:00:00Z"}, "e": {"literal": ORDER}}
    with pytest.raises(Rejected, match="not understood"):
        it.call(
            "list",
            {"entity_set": "Products", "filter": "A eq :a and B eq :b and C eq :c and D gt :d or E eq :e", "params": params},
            ctx,
        )
    sent_filter = shop.last().path.split("$filter=")[1].replace("%20", " ")
    assert sent_filter == f"A eq 1.5 and B eq true and C eq null and D gt 2026-11-21T10:00:00Z or E eq {ORDER}"


@pytest.mark.parametrize(
    ("entity_set", "key", "path"),
    [
        ("Lines", {"Place": "a'b/ü", "Order": ORDER}, f"/Lines(Order={ORDER},Place='a''b/ü')"),
        ("Days", "2026-11-21", "/Days(2026-11-21)"),
        ("Days", {"Date": "2026-11-21"}, "/Days(2026-11-21)"),
    ],
)
def test_a_key_is_formatted_by_its_type(it: OdataConnector, ctx: Context, entity_set: str, key: Any, path: str) -> None:
    assert it.call("get", {"entity_set": entity_set, "key": key}, ctx)["entity"] == {"path": path}


@pytest.mark.parametrize(
    ("entity_set", "key", "reason"),
    [
        ("Products", "1) or (2", "of type Edm.Int32"),
        ("Products", True, "not true or false"),
        ("Products", {"Name": "Bolt"}, "consists of ID"),
        ("Lines", ORDER, "parts Order, Place"),
        ("Lines", {"Order": "no", "Place": "a"}, "of type Edm.Guid"),
        ("products", 1, "it has 'Products'"),
        ("Orders", 1, "describe lists"),
    ],
)
def test_an_invalid_key_is_refused_before_it_is_sent(
    it: OdataConnector, shop: Shop, ctx: Context, entity_set: str, key: Any, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        it.call("get", {"entity_set": entity_set, "key": key}, ctx)
    assert [each.path for each in shop.server.received] == ["/odata/v4/$metadata"]


def test_describe_returns_keys_and_inherited_properties(it: OdataConnector, ctx: Context) -> None:
    assert it.call("describe", {}, ctx)["entity_sets"] == [{"name": "Days"}, {"name": "Lines"}, {"name": "Products"}]
    (product,) = it.call("describe", {"entity_set": "Products"}, ctx)["entity_sets"]
    assert product["key"] == ["ID"]
    assert product["properties"][:2] == [
        {"name": "ID", "type": "Edm.Int32", "nullable": False},
        {"name": "Name", "type": "Edm.String", "nullable": True},
    ]
    assert product["navigation"] == [{"name": "Lines", "type": "Collection(Example.Shop.Line)"}]


def test_metadata_is_read_once(it: OdataConnector, shop: Shop, ctx: Context) -> None:
    for _ in range(3):
        it.call("get", {"entity_set": "Products", "key": 1}, ctx)
    assert sum("metadata" in each.path for each in shop.server.received) == 1


def test_numbers_are_not_rounded(it: OdataConnector, shop: Shop, ctx: Context) -> None:
    body = b'{"a": 9007199254740993, "b": 0.1, "c": 12345678901234567.89, "d": 7, "e": 1e999}'
    shop.server.answer("/odata/v4/Products(1)", 200, body)
    entity = it.call("get", {"entity_set": "Products", "key": 1}, ctx)["entity"]
    assert entity == {"a": "9007199254740993", "b": 0.1, "c": "12345678901234567.89", "d": 7, "e": "1e999"}


# -- changing


def test_an_entity_is_created_changed_and_deleted(it: OdataConnector, shop: Shop, ctx: Context) -> None:
    created = it.call("create", {"entity_set": "Products", "values": {"ID": 9, "Name": "Müller"}}, ctx)
    assert created["entity"]["Name"] == "Müller"
    assert created["location"] == f"{shop.url}/Products(9)"
    changed = it.call("update", {"entity_set": "Products", "key": 9, "values": {"Name": "B"}, "etag": created["etag"]}, ctx)
    assert (changed["entity"]["Name"], changed["etag"]) == ("B", 'W/"2"')
    with pytest.raises(Rejected, match="has changed since"):
        it.call("update", {"entity_set": "Products", "key": 9, "values": {"Name": "C"}, "etag": created["etag"]}, ctx)
    assert shop.products[9]["Name"] == "B"
    assert it.call("delete", {"entity_set": "Products", "key": 9}, ctx) == {"deleted": True}
    assert it.call("delete", {"entity_set": "Products", "key": 9}, ctx) == {"deleted": False}


def test_a_deletion_with_an_old_etag_is_refused(it: OdataConnector, shop: Shop, ctx: Context) -> None:
    with pytest.raises(Rejected, match="has changed since"):
        it.call("delete", {"entity_set": "Products", "key": 1, "etag": 'W/"0"'}, ctx)
    assert 1 in shop.products


@pytest.mark.parametrize("status", [404, 412])
def test_an_update_never_creates(it: OdataConnector, shop: Shop, ctx: Context, status: int) -> None:
    shop.server.answer("/odata/v4/Products(77)", status, b"{}")
    with pytest.raises(Rejected, match="no entity of Products with this key"):
        it.call("update", {"entity_set": "Products", "key": 77, "values": {"Name": "x"}}, ctx)
    assert shop.last().headers["if-match"] == "*"
    assert it.call("delete", {"entity_set": "Products", "key": 77}, ctx) == {"deleted": False}


def test_a_response_without_an_entity_is_a_success(it: OdataConnector, shop: Shop, ctx: Context) -> None:
    shop.server.answer("/odata/v4/Products", 204, b"", OData_EntityId="Products(4)", ETag='"7"')
    created = it.call("create", {"entity_set": "Products", "values": {"ID": 4}}, ctx)
    assert created == {"entity": None, "etag": '"7"', "location": "Products(4)"}


def test_actions_of_entities_and_of_the_service_run(it: OdataConnector, shop: Shop, ctx: Context) -> None:
    params = {"name": "Shop.Discount", "entity_set": "Products", "key": 1, "parameters": {"percent": 20}}
    assert it.call("invoke", params, ctx)["result"]["Price"] == 1.0
    assert shop.products[1]["Price"] == 1.0
    assert it.call("invoke", {"name": "Restock"}, ctx) == {"result": None}
    with pytest.raises(ConfigError, match="needs an `entity_set`"):
        it.call("invoke", {"name": "Restock", "key": 1}, ctx)
