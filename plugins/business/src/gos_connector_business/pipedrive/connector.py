"""The Pipedrive connector: each action sends one request, a list one per page."""

from collections.abc import Mapping
from typing import Any, ClassVar

from appliance.connectors.contract import Action, Connector, Context, Json, Polled, Rejected, SystemFailure, Trigger
from gos_connector_business.changes import poll_changes
from gos_connector_business.pipedrive.api import SYSTEM, list_records, make_api
from gos_connector_business.pipedrive.changed_records import ChangedRecords
from gos_connector_business.pipedrive.declaration import ACTIONS, SETTINGS, TRIGGERS
from gos_connector_business.rest import Pairs, object_in
from gos_connector_business.schema import DEFAULT_RECORDS, MAX_RECORDS

_FIELD_LISTS = {
    "deals": "dealFields", "persons": "personFields", "organizations": "organizationFields", "activities": "activityFields",
    "products": "productFields",
}  # fmt: skip


class PipedriveConnector(Connector):
    """One Pipedrive company."""

    contract_version = 1
    name = "pipedrive"
    title = "Pipedrive"
    version = "0.1.0"
    tested_against = "a loopback test server that follows Pipedrive's documentation (API v2)"
    settings_schema: ClassVar[Json] = SETTINGS
    actions: ClassVar[tuple[Action, ...]] = ACTIONS
    triggers: ClassVar[tuple[Trigger, ...]] = TRIGGERS

    def __init__(self, settings: Json) -> None:
        super().__init__(settings)
        self._api = make_api(settings)
        self.verbs = {
            "list": self._list, "search": self._search, "get": self._get, "create": self._create, "update": self._update,
            "delete": self._delete, "describe": self._describe,
        }  # fmt: skip

    def check(self, ctx: Context) -> str:
        user = object_in(self._api.request_object("GET", "/api/v1/users/me", ctx), "data", SYSTEM)
        if "company_name" not in user:
            raise SystemFailure("The server at this address does not respond like Pipedrive; check the address.")
        return f"Connected to the Pipedrive company {user['company_name']} as {user.get('name')}."

    def poll(self, trigger: str, query: Json, cursor: Any, ctx: Context) -> Polled:
        if trigger != "changed_records":
            return super().poll(trigger, query, cursor, ctx)
        where = _to_params(query.get("where", {}))

        def read(params: Pairs, max_records: int) -> list[dict[str, Any]]:
            return list_records(self._api, f"/api/v2/{query['kind']}", ctx, [*where, *params], max_records)[0]

        return poll_changes(ChangedRecords(read), query, cursor)

    # -- the actions

    def _list(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        params = _to_params(inputs.get("where", {}))
        if "sort" in inputs:
            params += [("sort_by", inputs["sort"]), ("sort_direction", "desc" if inputs.get("descending", False) else "asc")]
        records, truncated = list_records(self._api, f"/api/v2/{inputs['kind']}", ctx, params, inputs.get("limit", DEFAULT_RECORDS))
        return {"records": records, "truncated": truncated}

    def _search(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        params = [("term", inputs["term"]), ("exact_match", "true" if inputs.get("exact", False) else "false")]
        if "fields" in inputs:
            params.append(("fields", ",".join(inputs["fields"])))
        path, limit = f"/api/v2/{inputs['kind']}/search", inputs.get("limit", DEFAULT_RECORDS)
        records, truncated = list_records(self._api, path, ctx, params, limit)
        return {"records": records, "truncated": truncated}

    def _get(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        return {"record": object_in(self._api.request_object("GET", _path(inputs), ctx), "data", SYSTEM)}

    def _create(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        body = self._api.request_object("POST", f"/api/v2/{inputs['kind']}", ctx, body=inputs["values"])
        return {"record": object_in(body, "data", SYSTEM)}

    def _update(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        return {"record": object_in(self._api.request_object("PATCH", _path(inputs), ctx, body=inputs["values"]), "data", SYSTEM)}

    def _delete(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        try:
            self._api.request("DELETE", _path(inputs), ctx)
        except Rejected as refusal:
            if refusal.details.get("status") in (404, 410):
                return {"deleted": False}
            raise
        return {"deleted": True}

    def _describe(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        fields, _ = list_records(self._api, f"/api/v2/{_FIELD_LISTS[inputs['kind']]}", ctx, (), MAX_RECORDS)
        return {"fields": [_to_field(each) for each in fields]}


def _to_field(field: Json) -> dict[str, Any]:
    options = field.get("options")
    return {
        "name": str(field.get("field_code")), "type": str(field.get("field_type")), "title": str(field.get("field_name") or ""),
        **({"options": options} if isinstance(options, list) else {}),
    }  # fmt: skip


def _path(inputs: Json) -> str:
    return f"/api/v2/{inputs['kind']}/{int(inputs['id'])}"


def _to_params(where: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, str(value).lower() if isinstance(value, bool) else str(value)) for name, value in where.items()]
