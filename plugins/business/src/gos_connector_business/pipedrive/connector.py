"""The connector: each action is one request, a list one request per page."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from appliance.connectors.contract import Action, ConfigError, Connector, Context, Json, Polled, Rejected, SystemFailure, Trigger
from gos_connector_business.changes import poll_changes
from gos_connector_business.pipedrive.api import WHO, make_api, pages
from gos_connector_business.pipedrive.changed import ChangedRecords
from gos_connector_business.pipedrive.declaration import ACTIONS, SETTINGS, TRIGGERS
from gos_connector_business.rest import Pairs, object_in
from gos_connector_business.schema import MOST_RECORDS, USUAL_RECORDS

_FIELDS = {"deals": "deal", "persons": "person", "organizations": "organization", "activities": "activity", "products": "product"}


class PipedriveConnector(Connector):
    """One Pipedrive company."""

    contract_version = 1
    name = "pipedrive"
    title = "Pipedrive"
    version = "0.1.0"
    tested_against = "a server of the test on loopback that follows Pipedrive's documentation (API v2)"
    settings_schema: ClassVar[Json] = SETTINGS
    actions: ClassVar[tuple[Action, ...]] = ACTIONS
    triggers: ClassVar[tuple[Trigger, ...]] = TRIGGERS

    def __init__(self, settings: Json) -> None:
        super().__init__(settings)
        self._api = make_api(settings)
        self._verbs: Mapping[str, Callable[[Json, Context], dict[str, Any]]] = {
            "list": self._list, "search": self._search, "get": self._get, "create": self._create, "update": self._update,
            "delete": self._delete, "describe": self._describe,
        }  # fmt: skip

    def check(self, ctx: Context) -> str:
        who = object_in(self._api.told("GET", "/api/v1/users/me", ctx), "data", WHO)
        if "company_name" not in who:
            raise SystemFailure("What answers at this address does not speak as Pipedrive does.")
        return f"Pipedrive of {who['company_name']} answers to {who.get('name')}."

    def call(self, action: str, input: Json, ctx: Context) -> dict[str, Any]:  # noqa: A002 - the contract's word
        verb = self._verbs.get(action)
        if verb is None:
            raise ConfigError(f"{self.title} has no action {action!r}; it has {', '.join(self._verbs)}.")
        return verb(input, ctx)

    def poll(self, trigger: str, query: Json, cursor: Any, ctx: Context) -> Polled:
        if trigger != "changed_records":
            raise ConfigError(f"{self.title} has no trigger {trigger!r}; it has changed_records.")
        where = _written(query.get("where", {}))

        def read(params: Pairs, most: int) -> list[dict[str, Any]]:
            return pages(self._api, f"/api/v2/{query['kind']}", ctx, [*where, *params], most)[0]

        return poll_changes(ChangedRecords(read), query, cursor)

    # -- the actions

    def _list(self, given: Json, ctx: Context) -> dict[str, Any]:
        params = _written(given.get("where", {}))
        if "sort" in given:
            params += [("sort_by", given["sort"]), ("sort_direction", "desc" if given.get("descending", False) else "asc")]
        found, truncated = pages(self._api, f"/api/v2/{given['kind']}", ctx, params, given.get("limit", USUAL_RECORDS))
        return {"records": found, "truncated": truncated}

    def _search(self, given: Json, ctx: Context) -> dict[str, Any]:
        params = [("term", given["term"]), ("exact_match", "true" if given.get("exact", False) else "false")]
        if "fields" in given:
            params.append(("fields", ",".join(given["fields"])))
        found, truncated = pages(self._api, f"/api/v2/{given['kind']}/search", ctx, params, given.get("limit", USUAL_RECORDS))
        return {"records": found, "truncated": truncated}

    def _get(self, given: Json, ctx: Context) -> dict[str, Any]:
        return {"record": object_in(self._api.told("GET", _path(given), ctx), "data", WHO)}

    def _create(self, given: Json, ctx: Context) -> dict[str, Any]:
        return {"record": object_in(self._api.told("POST", f"/api/v2/{given['kind']}", ctx, body=given["values"]), "data", WHO)}

    def _update(self, given: Json, ctx: Context) -> dict[str, Any]:
        return {"record": object_in(self._api.told("PATCH", _path(given), ctx, body=given["values"]), "data", WHO)}

    def _delete(self, given: Json, ctx: Context) -> dict[str, Any]:
        try:
            self._api.ask("DELETE", _path(given), ctx)
        except Rejected as refusal:
            if refusal.details.get("status") in (404, 410):
                return {"deleted": False}
            raise
        return {"deleted": True}

    def _describe(self, given: Json, ctx: Context) -> dict[str, Any]:
        found, _ = pages(self._api, f"/api/v2/{_FIELDS[given['kind']]}Fields", ctx, (), MOST_RECORDS)
        return {"fields": [_described(each) for each in found]}


def _described(field: Json) -> dict[str, Any]:
    options = field.get("options")
    return {
        "name": str(field.get("field_code")), "type": str(field.get("field_type")), "title": str(field.get("field_name") or ""),
        **({"options": options} if isinstance(options, list) else {}),
    }  # fmt: skip


def _path(given: Json) -> str:
    return f"/api/v2/{given['kind']}/{int(given['id'])}"


def _written(where: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, str(value).lower() if isinstance(value, bool) else str(value)) for name, value in where.items()]
