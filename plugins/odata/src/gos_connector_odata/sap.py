"""The connector `sap`: OData 4 services of SAP S/4HANA, with CSRF tokens, client and messages."""

from typing import ClassVar

from appliance.connectors.contract import Action, Json, auth_settings, object_schema
from gos_connector_odata.connector import OdataConnector
from gos_connector_odata.declaration import LANGUAGE, TIMEOUT, address_setting, with_samples
from gos_connector_odata.service import Service

SETTINGS: Json = object_schema(
    ["url", "service", "auth"],
    url=address_setting("Address of the system", "Such as https://my300000-api.s4hana.cloud.sap."),
    service={
        "type": "string",
        "pattern": r"^/sap/opu/odata4/[A-Za-z0-9_/;=,.-]+$",
        "title": "Path of the service",
        "description": "Such as /sap/opu/odata4/sap/api_salesorder/srvd_a2x/sap/salesorder/0001.",
    },
    client={"type": "string", "pattern": "^[0-9]{3}$", "title": "Client (sap-client)"},
    language=LANGUAGE,
    csrf={"type": "boolean", "default": True, "title": "Fetch a CSRF token before each change"},
    auth=auth_settings("basic", "oauth2", "bearer", "header", grants=("client_credentials",)),
    timeout_s=TIMEOUT,
)

ACTIONS = with_samples(
    {
        "list": {"entity_set": "SalesOrder", "filter": "SoldToParty eq :party", "params": {"party": "17100001"}, "limit": 10},
        "get": {"entity_set": "SalesOrder", "key": "1"},
        "create": {"entity_set": "SalesOrder", "values": {"SalesOrderType": "OR", "SoldToParty": "17100001"}},
        "update": {"entity_set": "SalesOrder", "key": "1", "values": {"PurchaseOrderByCustomer": "PO 7"}},
        "delete": {"entity_set": "SalesOrderItem", "key": {"SalesOrder": "1", "SalesOrderItem": "10"}},
        "invoke": {
            "name": "com.sap.gateway.srvd_a2x.api_sales_order.v0001.ReleaseApproval", "entity_set": "SalesOrder", "key": "1"
        },
        "describe": {"entity_set": "SalesOrder"},
    }
)  # fmt: skip


class SapConnector(OdataConnector):
    """One OData 4 service of an S/4HANA system."""

    contract_version = 1
    name = "sap"
    title = "SAP S/4HANA"
    version = "0.1.0"
    tested_against = (
        "a loopback test service, generated from a description ($metadata) written for it, "
        "that follows the documentation of SAP S/4HANA"
    )
    settings_schema: ClassVar[Json] = SETTINGS
    actions: ClassVar[tuple[Action, ...]] = ACTIONS

    def _make_service(self, settings: Json) -> Service:
        headers = {"sap-client": settings["client"]} if "client" in settings else {}
        if "language" in settings:
            headers["Accept-Language"] = settings["language"]
        base = settings["url"].rstrip("/") + settings["service"]
        csrf = settings.get("csrf", True)
        return Service({**settings, "base_url": base, "headers": headers, "csrf": csrf}, self.auth_of(settings))
