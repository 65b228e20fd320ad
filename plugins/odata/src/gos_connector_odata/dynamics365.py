"""The connector `dynamics365`: tables of Dynamics 365 (Dataverse), whose Web API extends OData 4."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from appliance.connectors.contract import Action, ConfigError, Context, Json, Rejected, SystemFailure, auth_settings, object_schema
from gos_connector_odata.answer import parse_object
from gos_connector_odata.connector import OdataConnector, entity_result
from gos_connector_odata.declaration import (
    KEY,
    ONE,
    SET,
    TIMEOUT,
    VALUES,
    address_setting,
    with_samples,
)
from gos_connector_odata.microsoft import DIRECTORY, NEEDS_DIRECTORY, TOKEN_URL, entra_auth
from gos_connector_odata.model import EntityType, Model
from gos_connector_odata.service import Service

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FORMATTED = 'odata.include-annotations="OData.Community.Display.V1.FormattedValue"'
_ANY_ID = "00000000-0000-0000-0000-000000000001"

SETTINGS: Json = {
    **object_schema(
        ["url", "auth"],
        url=address_setting("Address of the environment", "Such as https://acme.crm4.dynamics.com."),
        directory=DIRECTORY,
        token_url=TOKEN_URL,
        auth=auth_settings("oauth2", "bearer", grants=("client_credentials",), endpoints=False),
        timeout_s=TIMEOUT,
    ),
    **NEEDS_DIRECTORY,
}

_SAMPLES: Mapping[str, Mapping[str, Any]] = {
    "list": {
        "entity_set": "accounts",
        "filter": "name eq :name",
        "params": {"name": "Acme"},
        "select": ["name"],
        "formatted": True,
    },
    "get": {"entity_set": "accounts", "key": _ANY_ID},
    "create": {"entity_set": "accounts", "values": {"name": "Acme"}},
    "update": {"entity_set": "accounts", "key": _ANY_ID, "values": {"name": "Acme Ltd"}},
    "delete": {"entity_set": "accounts", "key": "00000000-0000-0000-0000-000000000002"},
    "invoke": {"name": "Microsoft.Dynamics.CRM.Share", "entity_set": "accounts", "key": _ANY_ID},
    "describe": {"entity_set": "accounts"},
}


def _adapt(action: Action) -> Action:
    """The action without options that Dataverse does not support, and with the option `formatted`."""
    members = {name: schema for name, schema in action.input["properties"].items() if name not in ("search", "skip")}
    if action.name in ("list", "get"):
        members["formatted"] = {"type": "boolean", "title": "Include values as Dynamics displays them"}
    return replace(action, input={**action.input, "properties": members})


ACTIONS = (
    *(_adapt(action) for action in with_samples(_SAMPLES)),
    Action(
        "upsert",
        "Add or change an entity by its key or an alternate key",
        object_schema(["entity_set", "key", "values"], entity_set=SET, key=KEY, values=VALUES),
        ONE,
        "idempotent",
        {"entity_set": "accounts", "key": {"accountnumber": "A'1"}, "values": {"name": "Acme"}},
    ),
)


@dataclass(frozen=True)
class TableModel(Model):
    """The tables of an environment; a key is the row's id, or an alternate key as an object of columns."""

    def path(self, entity_set: str, key: Any) -> str:
        kind = self.entity_type(entity_set)
        if not isinstance(key, Mapping) or set(key) == set(kind.key):
            return super().path(entity_set, key)
        wrong = [name for name in key if not _NAME.fullmatch(name)]
        if wrong:
            raise ConfigError(f"{wrong[0]!r} is not a valid column name of an alternate key.")
        parts = {name: _edm_type(name, value) for name, value in key.items()}
        alternate = EntityType(kind.name, tuple(key), {name: {"type": edm} for name, edm in parts.items()}, {})
        inner = Model({entity_set: alternate}).path(entity_set, key)
        return inner if len(key) > 1 else inner.replace("(", f"({next(iter(key))}=", 1)


def _edm_type(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "Edm.Boolean"
    if name.startswith("_") and name.endswith("_value"):
        return "Edm.Guid"  # a lookup
    return "Edm.Decimal" if isinstance(value, int | float) else "Edm.String"


class Dynamics365Connector(OdataConnector):
    """One environment of Dynamics 365.

    Its $metadata exceeds the appliance's limit for a response, so tables are read from EntityDefinitions.
    """

    contract_version = 1
    name = "dynamics365"
    title = "Dynamics 365"
    version = "0.1.0"
    tested_against = (
        "a loopback test service, generated from a description ($metadata) written for it, "
        "that follows the documentation of Dataverse Web API 9.2"
    )
    settings_schema: ClassVar[Json] = SETTINGS
    actions: ClassVar[tuple[Action, ...]] = ACTIONS

    def __init__(self, settings: Json) -> None:
        super().__init__(settings)
        self.verbs = {**self.verbs, "upsert": self._upsert}

    @classmethod
    def auth_of(cls, settings: Json) -> Json:
        return entra_auth(settings, settings["url"].rstrip("/"))

    def check(self, ctx: Context) -> str:
        user = parse_object(self._service.get(self._service.address("WhoAmI", []), ctx, []))
        if "UserId" not in user:
            raise SystemFailure("The service at this address is not Dataverse.")
        return f"Signed in to Dynamics 365 at {self.settings['url']} as the user {user['UserId']}."

    def _make_service(self, settings: Json) -> Service:
        base = f"{settings['url'].rstrip('/')}/api/data/v9.2"
        headers = {"OData-MaxVersion": "4.0", "OData-Version": "4.0"}
        return Service({**settings, "base_url": base, "headers": headers}, self.auth_of(settings))

    def _preferences(self, params: Json) -> list[str]:
        return [_FORMATTED] if params.get("formatted", False) else []

    def _upsert(self, params: Json, ctx: Context) -> dict[str, Any]:
        # Without If-Match, Dataverse creates a missing row.
        headers = [("Prefer", "return=representation")]
        return entity_result(self._service.change("PATCH", self._entity_url(params, ctx), ctx, headers, params["values"]))

    def _fetch_model(self, ctx: Context) -> Model:
        options = [("$select", "LogicalName,EntitySetName,PrimaryIdAttribute")]
        sets: dict[str, EntityType] = {}
        for each in self._rows("EntityDefinitions", options, ctx):
            name, table, key = (each.get(member) for member in ("EntitySetName", "LogicalName", "PrimaryIdAttribute"))
            if name and table and key:
                properties = {str(key): {"type": "Edm.Guid", "nullable": False}}
                sets[str(name)] = EntityType(str(table), (str(key),), properties, {})
        return self._cache_model(TableModel(sets))

    def _describe(self, params: Json, ctx: Context) -> dict[str, Any]:
        model = self._fetch_model(ctx)
        if "entity_set" not in params:
            return {"entity_sets": [{"name": name} for name in sorted(model.sets)]}
        kind = model.entity_type(params["entity_set"])
        options = [("$select", "LogicalName,AttributeType,RequiredLevel,AttributeOf")]
        try:
            attributes = self._rows(f"EntityDefinitions(LogicalName='{kind.name}')/Attributes", options, ctx)
        except Rejected as refusal:
            raise Rejected(f"Dynamics 365 does not return the columns of {kind.name}.", details=refusal.details) from refusal
        columns = [_column(each) for each in attributes if not each.get("AttributeOf")]
        return {"entity_sets": [{"name": params["entity_set"], "key": list(kind.key), "navigation": [], "properties": columns}]}

    def _rows(self, path: str, options: list[tuple[str, str]], ctx: Context) -> list[dict[str, Any]]:
        rows = parse_object(self._service.get(self._service.address(path, options), ctx, [])).get("value")
        if not isinstance(rows, list) or not all(isinstance(each, dict) for each in rows):
            raise SystemFailure("Dynamics 365 did not return definitions of tables.")
        return rows


def _column(attribute: Json) -> dict[str, Any]:
    level = attribute.get("RequiredLevel")
    is_required = isinstance(level, Mapping) and level.get("Value") in ("SystemRequired", "ApplicationRequired")
    return {"name": str(attribute.get("LogicalName")), "type": str(attribute.get("AttributeType")), "nullable": not is_required}
