"""The connector `business-central`: companies of Dynamics 365 Business Central through its API v2.0."""

from collections.abc import Mapping
from typing import Any, ClassVar

from appliance.connectors.contract import Action, ConfigError, Context, Json, SystemFailure, auth_settings, object_schema
from gos_connector_odata.answer import parse_object
from gos_connector_odata.connector import OdataConnector
from gos_connector_odata.declaration import LANGUAGE, TIMEOUT, address_setting, with_samples
from gos_connector_odata.microsoft import DIRECTORY, NEEDS_DIRECTORY, TOKEN_URL, entra_auth
from gos_connector_odata.service import Service

_CLOUD = "https://api.businesscentral.dynamics.com"
_ANY_ID = "00000000-0000-0000-0000-000000000001"

SETTINGS: Json = {
    **object_schema(
        ["auth"],
        directory=DIRECTORY,
        environment={"type": "string", "pattern": "^[A-Za-z0-9_-]{1,30}$", "title": "Environment"},
        base_url=address_setting("Address", "Of an on-premises server, without /api."),
        api={
            "type": "string",
            "pattern": r"^([A-Za-z0-9_]+/[A-Za-z0-9_]+/)?(v\d+\.\d+|beta)$",
            "default": "v2.0",
            "title": "API",
            "description": "v2.0, or publisher/group/version of a custom API.",
        },
        company={
            "type": "string",
            "minLength": 1,
            "title": "Company",
            "description": "Name or id; required when there are several companies.",
        },
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
    """One company in a Business Central environment."""

    contract_version = 1
    name = "business-central"
    title = "Business Central"
    version = "0.1.0"
    tested_against = (
        "a loopback test service, generated from a description ($metadata) written for it, "
        "that follows the documentation of Business Central API v2.0"
    )
    settings_schema: ClassVar[Json] = SETTINGS
    actions: ClassVar[tuple[Action, ...]] = ACTIONS

    def __init__(self, settings: Json) -> None:
        super().__init__(settings)
        self._company: Mapping[str, Any] | None = None

    @classmethod
    def auth_of(cls, settings: Json) -> Json:
        return entra_auth(settings, _CLOUD)

    def check(self, ctx: Context) -> str:
        company = self._find_company(ctx)
        model = self._fetch_model(ctx)
        return f"Business Central answers in the company {company.get('name')} with {len(model.sets)} entity sets."

    def _make_service(self, settings: Json) -> Service:
        base = settings.get("base_url") or f"{_CLOUD}/v2.0/{settings['directory']}/{settings['environment']}"
        headers = {"Accept-Language": settings["language"]} if "language" in settings else {}
        base_url = f"{base.rstrip('/')}/api/{settings.get('api', 'v2.0')}"
        return Service({**settings, "base_url": base_url, "headers": headers}, self.auth_of(settings))

    def _path_prefix(self, entity_set: str, ctx: Context) -> str:
        return "" if entity_set == "companies" else f"companies({self._find_company(ctx)['id']})/"

    def _find_company(self, ctx: Context) -> Mapping[str, Any]:
        """The company of the settings, looked up once."""
        with self._lock:
            cached = self._company
        if cached is not None:
            return cached
        companies = parse_object(self._service.get(self._service.address("companies", []), ctx, [])).get("value")
        if not isinstance(companies, list) or not all(isinstance(each, dict) and "id" in each for each in companies):
            raise SystemFailure("Business Central did not return its companies.")
        company = _select_company(companies, self.settings.get("company"))
        with self._lock:
            self._company = company
        return company


def _select_company(companies: list[dict[str, Any]], name_or_id: str | None) -> dict[str, Any]:
    """The company with this name or id, or the only one; ConfigError when none or several match."""
    matches = companies
    if name_or_id is not None:
        matches = [each for each in companies if name_or_id in (each["id"], each.get("name"), each.get("displayName"))]
    if len(matches) == 1:
        return matches[0]
    names = ", ".join(str(each.get("name")) for each in companies[:20]) or "none that these credentials have access to"
    if name_or_id is None:
        raise ConfigError(f"Give the `company`: the environment has {names}.")
    problem = "Several companies are" if matches else "There is no company"
    raise ConfigError(f"{problem} called {name_or_id!r}; the environment has {names}.")
