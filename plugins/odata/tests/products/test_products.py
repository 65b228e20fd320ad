"""The connectors for products that speak OData 4, each against a service with that product's habits."""

import json
import logging
from typing import Any

import pytest
from gos_connector_odata import BusinessCentralConnector, Dynamics365Connector, SapConnector

from appliance.connectors.contract import (
    AuthError,
    ConfigError,
    ConnectorError,
    Context,
    Json,
    Rejected,
    SystemFailure,
    TransientError,
)
from appliance.connectors.testing import Answer, ConnectorContract, schema_problems

Product = Any
Settings = dict[str, Any]
PASSWORD = "sésame-'\"%s"
BASIC = {"kind": "basic", "username": "gos", "password": PASSWORD}
FIRST = "00000000-0000-0000-0000-000000000001"
ORDERS = "/sap/opu/odata4/sap/api_salesorder/srvd_a2x/sap/salesorder/0001"


def failure(it: Any, action: str, given: Json, ctx: Context) -> ConnectorError:
    with pytest.raises(ConnectorError) as caught:
        it.call(action, given, ctx)
    assert PASSWORD not in caught.value.message + json.dumps(caught.value.details)
    return caught.value


# -- Dynamics 365


@pytest.fixture
def dynamics(dataverse: Product) -> Dynamics365Connector:
    return Dynamics365Connector({"url": dataverse.server.url, "auth": {"kind": "bearer", "token": "t-1"}})


class TestDynamics365(ConnectorContract):
    connector = Dynamics365Connector

    @pytest.fixture
    def settings(self, dataverse: Product) -> Settings:
        auth = {"kind": "oauth2", "client_id": "me", "client_secret": PASSWORD}
        return {"url": dataverse.server.url, "token_url": f"{dataverse.server.url}/token", "auth": auth}

    @pytest.fixture
    def broken_settings(self) -> Settings:
        return {"url": "http://127.0.0.1:1", "auth": {"kind": "bearer", "token": "t"}}


def test_dynamics_says_who_it_answers_to(dynamics: Dynamics365Connector, dataverse: Product, ctx: Context) -> None:
    user = "00000000-0000-0000-0000-000000000009"
    assert dynamics.check(ctx) == f"Dynamics 365 at {dataverse.server.url} answers to the user {user}."


def test_dynamics_asks_microsoft_for_a_token_for_its_environment() -> None:
    auth = {"kind": "oauth2", "client_id": "me", "client_secret": "s"}
    settings = {"url": "https://acme.crm4.dynamics.com/", "directory": "acme.example", "auth": auth}
    assert schema_problems(Dynamics365Connector.settings_schema, settings) == []
    assert Dynamics365Connector.auth_of(settings) == {
        **auth, "scope": "https://acme.crm4.dynamics.com/.default", "profile": "microsoft", "directory": "acme.example",
    }  # fmt: skip
    assert schema_problems(Dynamics365Connector.settings_schema, {**settings, "directory": "a/../b"}) != []
    assert schema_problems(Dynamics365Connector.settings_schema, {"url": "https://a.example", "auth": auth}) != []


def test_dynamics_adds_by_an_alternate_key_once(dynamics: Dynamics365Connector, dataverse: Product, ctx: Context) -> None:
    given = {"entity_set": "accounts", "key": {"accountnumber": "N'7"}, "values": {"name": "New"}}
    dynamics.call("upsert", given, ctx)
    assert dynamics.call("upsert", {**given, "values": {"name": "Newer"}}, ctx)["entity"]["name"] == "Newer"
    assert len(dataverse.sets["accounts"]) == 4
    found = dynamics.call("get", {"entity_set": "accounts", "key": {"accountnumber": "A'2"}}, ctx)
    assert found["entity"]["name"] == "Bolt & Söhne"
    for name in ("a)=x", "a=1,b"):
        assert type(failure(dynamics, "get", {"entity_set": "accounts", "key": {name: "x"}}, ctx)) is ConfigError


@pytest.mark.parametrize(
    ("key", "asked"),
    [
        ({"a": "x", "n": 7}, "accounts(a='x',n=7)"),
        ({"_parent_value": FIRST}, f"accounts(_parent_value={FIRST})"),
        ({"accountid": FIRST}, f"accounts({FIRST})"),
    ],
)
def test_dynamics_writes_keys_by_their_columns(
    dynamics: Dynamics365Connector, dataverse: Product, ctx: Context, key: Json, asked: str
) -> None:
    dynamics.call("delete", {"entity_set": "accounts", "key": key}, ctx)
    assert dataverse.last().path == f"/api/data/v9.2/{asked}"


def test_an_update_of_dynamics_does_not_add(dynamics: Dynamics365Connector, dataverse: Product, ctx: Context) -> None:
    missing = {"entity_set": "accounts", "key": "00000000-0000-0000-0000-0000000000ff", "values": {"name": "x"}}
    assert "no entity of accounts" in failure(dynamics, "update", missing, ctx).message
    assert len(dataverse.sets["accounts"]) == 3
    assert dynamics.call("delete", {"entity_set": "accounts", "key": missing["key"]}, ctx) == {"deleted": False}


def test_dynamics_shows_values_as_it_does_itself_when_asked(
    dynamics: Dynamics365Connector, dataverse: Product, ctx: Context
) -> None:
    assert len(dynamics.call("list", {"entity_set": "accounts", "formatted": True}, ctx)["entities"]) == 3
    shown = 'odata.include-annotations="OData.Community.Display.V1.FormattedValue"'
    assert dataverse.last().headers["prefer"] == f"odata.maxpagesize=500,{shown}"
    dynamics.call("get", {"entity_set": "accounts", "key": FIRST, "formatted": True}, ctx)
    assert dataverse.last().headers["prefer"] == shown


def test_dynamics_describes_tables_by_their_definitions(dynamics: Dynamics365Connector, ctx: Context) -> None:
    assert dynamics.call("describe", {}, ctx) == {"entity_sets": [{"name": "accounts"}]}
    (account,) = dynamics.call("describe", {"entity_set": "accounts"}, ctx)["entity_sets"]
    assert [(each["name"], each["nullable"]) for each in account["properties"]] == [("name", False), ("statecode", True)]
    assert "no entity set 'things'" in failure(dynamics, "delete", {"entity_set": "things", "key": FIRST}, ctx).message


def test_what_does_not_speak_as_dataverse_is_told(dynamics: Dynamics365Connector, dataverse: Product, ctx: Context) -> None:
    dataverse.server.answer("/api/data/v9.2/WhoAmI", 200, b"{}")
    with pytest.raises(SystemFailure):
        dynamics.check(ctx)
    dataverse.credentials = "Bearer other"
    assert type(failure(dynamics, "list", {"entity_set": "accounts"}, ctx)) is AuthError


# -- Business Central


@pytest.fixture
def central(business_central: Product) -> BusinessCentralConnector:
    return BusinessCentralConnector({"base_url": f"{business_central.server.url}/BC", "company": "CRONUS", "auth": BASIC})


class TestBusinessCentral(ConnectorContract):
    connector = BusinessCentralConnector

    @pytest.fixture
    def settings(self, business_central: Product) -> Settings:
        return {"base_url": f"{business_central.server.url}/BC", "auth": BASIC, "language": "de-DE"}

    @pytest.fixture
    def broken_settings(self) -> Settings:
        return {"base_url": "http://127.0.0.1:1", "auth": BASIC}


def test_business_central_works_within_its_company(
    central: BusinessCentralConnector, business_central: Product, ctx: Context
) -> None:
    assert central.check(ctx) == "Business Central answers in the company CRONUS with 3 entity sets."
    found = central.call("list", {"entity_set": "customers", "filter": "displayName eq :n", "params": {"n": "O'Neil"}}, ctx)
    assert [each["displayName"] for each in found["entities"]] == ["O'Neil"]
    assert len(central.call("list", {"entity_set": "customers"}, ctx)["entities"]) == 3
    assert len(central.call("list", {"entity_set": "companies"}, ctx)["entities"]) == 1
    posted = central.call("invoke", {"name": "Microsoft.NAV.post", "entity_set": "salesInvoices", "key": FIRST}, ctx)
    assert posted == {"result": {"done": "Microsoft.NAV.post"}}
    company = f"/BC/api/v2.0/companies({business_central.company})"
    assert business_central.last().path == f"{company}/salesInvoices({FIRST})/Microsoft.NAV.post"


def test_business_central_says_who_was_faster(central: BusinessCentralConnector, ctx: Context) -> None:
    given = {"entity_set": "customers", "key": FIRST, "values": {"displayName": "x"}}
    etag = central.call("update", given, ctx)["etag"]
    central.call("update", {**given, "etag": etag}, ctx)
    found = failure(central, "update", {**given, "etag": etag}, ctx)
    assert (type(found), "has changed since" in found.message) == (Rejected, True)


@pytest.mark.parametrize(
    ("company", "told"),
    [("Fabrikam", "There is no company called 'Fabrikam'"), (None, "the environment has CRONUS, Two.")],
)
def test_a_company_must_be_one(business_central: Product, ctx: Context, company: str | None, told: str) -> None:
    business_central.put("companies", "00000000-0000-0000-0000-000000000002", {"id": "2", "name": "Two"})
    settings = {"base_url": f"{business_central.server.url}/BC", "auth": BASIC, **({"company": company} if company else {})}
    found = failure(BusinessCentralConnector(settings), "list", {"entity_set": "customers"}, ctx)
    assert (type(found), told in found.message) == (ConfigError, True)


def test_business_central_in_the_cloud_needs_directory_and_environment(ctx: Context) -> None:
    auth = {"kind": "oauth2", "client_id": "me", "client_secret": "s"}
    settings = {"directory": "acme.example", "environment": "production", "auth": auth}
    schema = BusinessCentralConnector.settings_schema
    assert schema_problems(schema, settings) == []
    assert schema_problems(schema, {"environment": "production", "auth": auth}) != []
    found = BusinessCentralConnector.auth_of(settings)
    assert (found["scope"], found["directory"]) == ("https://api.businesscentral.dynamics.com/.default", "acme.example")


# -- SAP


@pytest.fixture
def orders(sap: Product) -> SapConnector:
    return SapConnector({"url": sap.server.url, "service": ORDERS, "client": "100", "language": "DE", "auth": BASIC})


class TestSap(ConnectorContract):
    connector = SapConnector

    @pytest.fixture
    def settings(self, sap: Product) -> Settings:
        return {"url": sap.server.url, "service": ORDERS, "auth": BASIC}

    @pytest.fixture
    def broken_settings(self) -> Settings:
        return {"url": "http://127.0.0.1:1", "service": ORDERS, "auth": BASIC}


def test_sap_is_asked_in_its_client_and_language(orders: SapConnector, sap: Product, ctx: Context) -> None:
    assert orders.check(ctx) == f"{sap.server.url}{ORDERS} answers as OData 4 with 2 entity sets."
    assert (sap.last().headers["sap-client"], sap.last().headers["accept-language"]) == ("100", "DE")


def test_changes_in_sap_carry_their_token_and_its_cookies(orders: SapConnector, sap: Product, ctx: Context) -> None:
    item = {"entity_set": "SalesOrderItem", "key": {"SalesOrder": "1", "SalesOrderItem": "10"}}
    assert orders.call("delete", item, ctx) == {"deleted": True}
    assert orders.call("delete", item, ctx) == {"deleted": False}
    assert sap.sets["SalesOrderItem"] == {}


def test_messages_of_sap_are_kept(orders: SapConnector, ctx: Context, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        orders.call("create", {"entity_set": "SalesOrder", "values": {"SoldToParty": "17100001"}}, ctx)
    assert "The credit limit is nearly reached." in caplog.text


@pytest.mark.parametrize(
    ("action", "given", "error", "told"),
    [
        (
            "create",
            {"values": {"SalesOrderType": "OR"}},
            Rejected,
            "The order is not complete. Enter the sold-to party.",
        ),
        (
            "update",
            {"key": "1", "values": {"Locked": 1}},
            TransientError,
            "Sales order 1 is being processed by user MEIER.",
        ),
    ],
)
def test_what_sap_refuses_is_told_whole(
    orders: SapConnector, ctx: Context, action: str, given: Json, error: type[ConnectorError], told: str
) -> None:
    found = failure(orders, action, {"entity_set": "SalesOrder", **given}, ctx)
    assert (type(found), told in found.message, found.outcome) == (error, True, "not_done")


def test_messages_that_make_no_sense_harm_nothing(orders: SapConnector, sap: Product, ctx: Context) -> None:
    order = f"{ORDERS}/SalesOrder('1')"
    for text in ("[", "7", '[1, {"message": null}]'):
        sap.server.answers[order] = lambda _, text=text: Answer(200, {"sap-messages": text}, b'{"SalesOrder": "1"}')
        assert orders.call("get", {"entity_set": "SalesOrder", "key": "1"}, ctx)["entity"] == {"SalesOrder": "1"}


@pytest.mark.parametrize("status", [400, 401, 500])
def test_what_is_no_error_of_odata_stays_out_of_the_sentence(orders: SapConnector, sap: Product, ctx: Context, status: int) -> None:
    sap.server.answers[f"{ORDERS}/SalesOrder('1')"] = lambda asked: Answer(status, {}, f"<{asked.headers}>".encode())
    with pytest.raises(ConnectorError) as caught:
        orders.call("get", {"entity_set": "SalesOrder", "key": "1"}, ctx)
    assert ("Basic" in caught.value.message, "Basic" in caught.value.details["message"]) == (False, True)
