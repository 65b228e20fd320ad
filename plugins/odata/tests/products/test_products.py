"""The connectors for products that use OData 4, each against a service with that product's specifics."""

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


def failure(it: Any, action: str, params: Json, ctx: Context) -> ConnectorError:
    with pytest.raises(ConnectorError) as caught:
        it.call(action, params, ctx)
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


def test_check_of_dynamics_returns_the_signed_in_user(dynamics: Dynamics365Connector, dataverse: Product, ctx: Context) -> None:
    user = "00000000-0000-0000-0000-000000000009"
    assert dynamics.check(ctx) == f"Signed in to Dynamics 365 at {dataverse.server.url} as the user {user}."


def test_dynamics_requests_a_token_for_its_environment() -> None:
    auth = {"kind": "oauth2", "client_id": "me", "client_secret": "s"}
    settings = {"url": "https://acme.crm4.dynamics.com/", "directory": "acme.example", "auth": auth}
    assert schema_problems(Dynamics365Connector.settings_schema, settings) == []
    assert Dynamics365Connector.auth_of(settings) == {
        **auth, "scope": "https://acme.crm4.dynamics.com/.default", "profile": "microsoft", "directory": "acme.example",
    }  # fmt: skip
    assert schema_problems(Dynamics365Connector.settings_schema, {**settings, "directory": "a/../b"}) != []
    assert schema_problems(Dynamics365Connector.settings_schema, {"url": "https://a.example", "auth": auth}) != []


def test_dynamics_upserts_by_an_alternate_key(dynamics: Dynamics365Connector, dataverse: Product, ctx: Context) -> None:
    params = {"entity_set": "accounts", "key": {"accountnumber": "N'7"}, "values": {"name": "New"}}
    dynamics.call("upsert", params, ctx)
    assert dynamics.call("upsert", {**params, "values": {"name": "Newer"}}, ctx)["entity"]["name"] == "Newer"
    assert len(dataverse.sets["accounts"]) == 4
    result = dynamics.call("get", {"entity_set": "accounts", "key": {"accountnumber": "A'2"}}, ctx)
    assert result["entity"]["name"] == "Bolt & Söhne"
    for name in ("a)=x", "a=1,b"):
        assert type(failure(dynamics, "get", {"entity_set": "accounts", "key": {name: "x"}}, ctx)) is ConfigError


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ({"a": "x", "n": 7}, "accounts(a='x',n=7)"),
        ({"_parent_value": FIRST}, f"accounts(_parent_value={FIRST})"),
        ({"accountid": FIRST}, f"accounts({FIRST})"),
    ],
)
def test_dynamics_formats_keys_by_their_columns(
    dynamics: Dynamics365Connector, dataverse: Product, ctx: Context, key: Json, path: str
) -> None:
    dynamics.call("delete", {"entity_set": "accounts", "key": key}, ctx)
    assert dataverse.last().path == f"/api/data/v9.2/{path}"


def test_an_update_of_dynamics_does_not_add(dynamics: Dynamics365Connector, dataverse: Product, ctx: Context) -> None:
    missing = {"entity_set": "accounts", "key": "00000000-0000-0000-0000-0000000000ff", "values": {"name": "x"}}
    assert "no entity of accounts" in failure(dynamics, "update", missing, ctx).message
    assert len(dataverse.sets["accounts"]) == 3
    assert dynamics.call("delete", {"entity_set": "accounts", "key": missing["key"]}, ctx) == {"deleted": False}


def test_dynamics_returns_formatted_values_when_requested(
    dynamics: Dynamics365Connector, dataverse: Product, ctx: Context
) -> None:
    assert len(dynamics.call("list", {"entity_set": "accounts", "formatted": True}, ctx)["entities"]) == 3
    preference = 'odata.include-annotations="OData.Community.Display.V1.FormattedValue"'
    assert dataverse.last().headers["prefer"] == f"odata.maxpagesize=500,{preference}"
    dynamics.call("get", {"entity_set": "accounts", "key": FIRST, "formatted": True}, ctx)
    assert dataverse.last().headers["prefer"] == preference


def test_dynamics_describes_tables_by_their_definitions(dynamics: Dynamics365Connector, ctx: Context) -> None:
    assert dynamics.call("describe", {}, ctx) == {"entity_sets": [{"name": "accounts"}]}
    (account,) = dynamics.call("describe", {"entity_set": "accounts"}, ctx)["entity_sets"]
    assert [(each["name"], each["nullable"]) for each in account["properties"]] == [("name", False), ("statecode", True)]
    assert "no entity set 'things'" in failure(dynamics, "delete", {"entity_set": "things", "key": FIRST}, ctx).message


def test_a_service_other_than_dataverse_is_a_failure(dynamics: Dynamics365Connector, dataverse: Product, ctx: Context) -> None:
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


def test_business_central_uses_the_configured_company(
    central: BusinessCentralConnector, business_central: Product, ctx: Context
) -> None:
    assert central.check(ctx) == "Business Central answers in the company CRONUS with 3 entity sets."
    result = central.call("list", {"entity_set": "customers", "filter": "displayName eq :n", "params": {"n": "O'Neil"}}, ctx)
    assert [each["displayName"] for each in result["entities"]] == ["O'Neil"]
    assert len(central.call("list", {"entity_set": "customers"}, ctx)["entities"]) == 3
    assert len(central.call("list", {"entity_set": "companies"}, ctx)["entities"]) == 1
    posted = central.call("invoke", {"name": "Microsoft.NAV.post", "entity_set": "salesInvoices", "key": FIRST}, ctx)
    assert posted == {"result": {"done": "Microsoft.NAV.post"}}
    company = f"/BC/api/v2.0/companies({business_central.company})"
    assert business_central.last().path == f"{company}/salesInvoices({FIRST})/Microsoft.NAV.post"


def test_business_central_reports_a_concurrent_change(central: BusinessCentralConnector, ctx: Context) -> None:
    params = {"entity_set": "customers", "key": FIRST, "values": {"displayName": "x"}}
    etag = central.call("update", params, ctx)["etag"]
    central.call("update", {**params, "etag": etag}, ctx)
    raised = failure(central, "update", {**params, "etag": etag}, ctx)
    assert (type(raised), "has changed since" in raised.message) == (Rejected, True)


@pytest.mark.parametrize(
    ("company", "reason"),
    [("Fabrikam", "There is no company called 'Fabrikam'"), (None, "the environment has CRONUS, Two.")],
)
def test_an_unknown_or_ambiguous_company_is_an_error(
    business_central: Product, ctx: Context, company: str | None, reason: str
) -> None:
    business_central.store("companies", "00000000-0000-0000-0000-000000000002", {"id": "2", "name": "Two"})
    settings = {"base_url": f"{business_central.server.url}/BC", "auth": BASIC, **({"company": company} if company else {})}
    raised = failure(BusinessCentralConnector(settings), "list", {"entity_set": "customers"}, ctx)
    assert (type(raised), reason in raised.message) == (ConfigError, True)


def test_business_central_in_the_cloud_needs_directory_and_environment(ctx: Context) -> None:
    auth = {"kind": "oauth2", "client_id": "me", "client_secret": "s"}
    settings = {"directory": "acme.example", "environment": "production", "auth": auth}
    schema = BusinessCentralConnector.settings_schema
    assert schema_problems(schema, settings) == []
    assert schema_problems(schema, {"environment": "production", "auth": auth}) != []
    block = BusinessCentralConnector.auth_of(settings)
    assert (block["scope"], block["directory"]) == ("https://api.businesscentral.dynamics.com/.default", "acme.example")


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


def test_sap_requests_contain_client_and_language(orders: SapConnector, sap: Product, ctx: Context) -> None:
    assert orders.check(ctx) == f"{sap.server.url}{ORDERS} is an OData 4 service with 2 entity sets."
    assert (sap.last().headers["sap-client"], sap.last().headers["accept-language"]) == ("100", "DE")


def test_changes_in_sap_send_the_csrf_token_and_its_cookies(orders: SapConnector, sap: Product, ctx: Context) -> None:
    item = {"entity_set": "SalesOrderItem", "key": {"SalesOrder": "1", "SalesOrderItem": "10"}}
    assert orders.call("delete", item, ctx) == {"deleted": True}
    assert orders.call("delete", item, ctx) == {"deleted": False}
    assert sap.sets["SalesOrderItem"] == {}


def test_messages_of_sap_are_logged(orders: SapConnector, ctx: Context, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        orders.call("create", {"entity_set": "SalesOrder", "values": {"SoldToParty": "17100001"}}, ctx)
    assert "The credit limit is nearly reached." in caplog.text


@pytest.mark.parametrize(
    ("action", "params", "error", "reason"),
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
def test_refusals_of_sap_contain_their_details(
    orders: SapConnector, ctx: Context, action: str, params: Json, error: type[ConnectorError], reason: str
) -> None:
    raised = failure(orders, action, {"entity_set": "SalesOrder", **params}, ctx)
    assert (type(raised), reason in raised.message, raised.outcome) == (error, True, "not_done")


def test_malformed_sap_messages_are_ignored(orders: SapConnector, sap: Product, ctx: Context) -> None:
    order = f"{ORDERS}/SalesOrder('1')"
    for text in ("[", "7", '[1, {"message": null}]'):
        sap.server.answers[order] = lambda _, text=text: Answer(200, {"sap-messages": text}, b'{"SalesOrder": "1"}')
        assert orders.call("get", {"entity_set": "SalesOrder", "key": "1"}, ctx)["entity"] == {"SalesOrder": "1"}


@pytest.mark.parametrize("status", [400, 401, 500])
def test_an_unknown_error_body_stays_out_of_the_message(orders: SapConnector, sap: Product, ctx: Context, status: int) -> None:
    order = f"{ORDERS}/SalesOrder('1')"
    sap.server.answers[order] = lambda request: Answer(status, {}, f"<{request.headers}>".encode())
    with pytest.raises(ConnectorError) as caught:
        orders.call("get", {"entity_set": "SalesOrder", "key": "1"}, ctx)
    assert ("Basic" in caught.value.message, "Basic" in caught.value.details["message"]) == (False, True)
