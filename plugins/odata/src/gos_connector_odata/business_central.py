"""The connector `business_central`: companies of Dynamics 365 Business Central by its API v2.0."""

from collections.abc import Mapping
from typing import Any, ClassVar

from appliance.connectors.contract import Action, ConfigError, Context, Json, SystemFailure, auth_settings
from gos_connector_odata.answer import parse_object
from gos_connector_odata.connector import OdataConnector
from gos_connector_odata.declaration import LANGUAGE, TIMEOUT, address_setting, object_schema, with_samples
from gos_connector_odata.microsoft import DIRECTORY, NEEDS_DIRECTORY, TOKEN_URL, entra_block
from gos_connector_odata.service import Service

_CLOUD = "https://api.businesscentral.dynamics.com"
_ANY_ID = "00000000-0000-0000-0000-000000000001"

SETTINGS: Json = {
    **object_schema(
        ["auth"],
        directory=DIRECTORY,
        environment={"type": "string", "pattern": "^[A-Za-z0-9_-]{1,30}$", "title": "Environment"},
        base_url=address_setting("Address", "Of a server of your own, before /api."),
        api={
            "type": "string",
            "pattern": r"^([A-Za-z0-9_]+/[A-Za-z0-9_]+/)?(v\d+\.\d+|beta)$",
            "default": "v2.0",
            "title": "API",
            "description": "v2.0, or publisher/group/version of one of your own.",
        },
        company={"type": "string", "minLength": 1, "title": "Company", "description": "Name or id; needed among several."},
        language=LANGUAGE,
        token_url=TOKEN_URL,
        auth=auth_settings("oauth2", "basic", "bearer", grants=("client_credentials",), endpoints=False),
        timeout_s=TIMEOUT,
    ),
    **NEEDS_DIRECTORY,
    "anyOf": [{"required": ["base_url"]}, {"required": ["directory", "environment"]}],
}

ACTIONS = with_samples(
    {
        "list": {"entity_set": "customers", "filter": "displayName eq :name", "params": {"name": "Acme"}, "limit": 10},
        "get": {"entity_set": "customers", "key": _ANY_ID},
        "create": {"entity_set": "customers", "values": {"displayName": "Acme"}},
        "update": {"entity_set": "customers", "key": _ANY_ID, "values": {"displayName": "Acme Ltd"}},
        "delete": {"entity_set": "customers", "key": "00000000-0000-0000-0000-000000000002"},
        "invoke": {"name": "Microsoft.NAV.post", "entity_set": "salesInvoices", "key": _ANY_ID},
        "describe": {"entity_set": "customers"},
    }
)


class BusinessCentralConnector(OdataConnector):
    """One company of an environment."""

    contract_version = 1
    name = "business-central"
    title = "Business Central"
    version = "0.1.0"
    tested_against = (
        "a service of the test on loopback, generated from a description ($metadata) written for it, "
        "that follows the documentation of Business Central API v2.0"
    )
    settings_schema: ClassVar[Json] = SETTINGS
    actions: ClassVar[tuple[Action, ...]] = ACTIONS

    def __init__(self, settings: Json) -> None:
        super().__init__(settings)
        self._company: Mapping[str, Any] | None = None

    @classmethod
    def auth_of(cls, settings: Json) -> Json:
        return entra_block(settings, _CLOUD)

    def check(self, ctx: Context) -> str:
        company = self._found_company(ctx)
        model = self._fetch_model(ctx)
        return f"Business Central answers in the company {company.get('name')} with {len(model.sets)} entity sets."

    def _make_service(self, settings: Json) -> Service:
        base = settings.get("base_url") or f"{_CLOUD}/v2.0/{settings['directory']}/{settings['environment']}"
        headers = {"Accept-Language": settings["language"]} if "language" in settings else {}
        base_url = f"{base.rstrip('/')}/api/{settings.get('api', 'v2.0')}"
        return Service({**settings, "base_url": base_url, "headers": headers}, self.auth_of(settings))

    def _below(self, entity_set: str, ctx: Context) -> str:
        return "" if entity_set == "companies" else f"companies({self._found_company(ctx)['id']})/"

    def _found_company(self, ctx: Context) -> Mapping[str, Any]:
        """The company of the settings; it is looked up once."""
        with self._lock:
            known = self._company
        if known is not None:
            return known
        told = parse_object(self._service.get(self._service.address("companies", []), ctx, [])).get("value")
        if not isinstance(told, list) or not all(isinstance(each, dict) and "id" in each for each in told):
            raise SystemFailure("Business Central did not answer with its companies.")
        found = _chosen(told, self.settings.get("company"))
        with self._lock:
            self._company = found
        return found


def _chosen(companies: list[dict[str, Any]], wanted: str | None) -> dict[str, Any]:
    """The one that is meant; ConfigError when it is not one."""
    found = companies
    if wanted is not None:
        found = [each for each in companies if wanted in (each["id"], each.get("name"), each.get("displayName"))]
    if len(found) == 1:
        return found[0]
    names = ", ".join(str(each.get("name")) for each in companies[:20]) or "none that these credentials may see"
    if wanted is None:
        raise ConfigError(f"Say the `company`: the environment has {names}.")
    told = "Several companies are" if found else "There is no company"
    raise ConfigError(f"{told} called {wanted!r}; the environment has {names}.")
