"""The HubSpot connector: each action sends one request, searches and lists one per page."""

from collections.abc import Mapping
from typing import Any, ClassVar

from appliance.connectors.contract import Action, Connector, Context, Json, Polled, Rejected, SystemFailure, Trigger
from gos_connector_business.answers import parse_object
from gos_connector_business.changes import poll_changes
from gos_connector_business.hubspot.api import SYSTEM, make_api, partial_failure
from gos_connector_business.hubspot.changed_records import ChangedRecords
from gos_connector_business.hubspot.declaration import ACTIONS, SETTINGS, TRIGGERS
from gos_connector_business.rest import records_in, segment
from gos_connector_business.schema import DEFAULT_RECORDS

_PAGE = 200
_PAGE_OF_ASSOCIATIONS = 500


class HubspotConnector(Connector):
    """One HubSpot account."""

    contract_version = 1
    name = "hubspot"
    title = "HubSpot"
    version = "0.1.0"
    tested_against = "a loopback test server that follows HubSpot's documentation (CRM v3, associations v4)"
    settings_schema: ClassVar[Json] = SETTINGS
    actions: ClassVar[tuple[Action, ...]] = ACTIONS
    triggers: ClassVar[tuple[Trigger, ...]] = TRIGGERS

    def __init__(self, settings: Json) -> None:
        super().__init__(settings)
        self._api = make_api(settings)
        self.verbs = {
            "search": self._search, "get": self._get, "create": self._create, "upsert": self._upsert, "update": self._update,
            "delete": self._delete, "associate": self._associate, "associations": self._associations, "describe": self._describe,
        }  # fmt: skip

    def check(self, ctx: Context) -> str:
        account = self._api.request_object("GET", "/account-info/v3/details", ctx)
        if not isinstance(account.get("portalId"), int):
            raise SystemFailure("The server at this address does not respond like HubSpot; check the address.")
        return f"Connected to the HubSpot account {account['portalId']}."

    def poll(self, trigger: str, query: Json, cursor: Any, ctx: Context) -> Polled:
        if trigger != "changed_records":
            return super().poll(trigger, query, cursor, ctx)

        def search(body: dict[str, Any], limit: int) -> list[dict[str, Any]]:
            return self._search_pages(query["type"], body, ctx, limit)

        source = ChangedRecords(search, query["type"], query["properties"], [_to_filter(each) for each in query.get("filters", [])])
        return poll_changes(source, query, cursor)

    # -- the actions

    def _search(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        limit = inputs.get("limit", DEFAULT_RECORDS)
        body: dict[str, Any] = {"properties": inputs["properties"]}
        if inputs.get("filters"):
            body["filterGroups"] = [{"filters": [_to_filter(each) for each in group]} for group in inputs["filters"]]
        if "query" in inputs:
            body["query"] = inputs["query"]
        if "sort" in inputs:
            direction = "DESCENDING" if inputs["sort"].get("descending", False) else "ASCENDING"
            body["sorts"] = [{"propertyName": inputs["sort"]["property"], "direction": direction}]
        records = self._search_pages(inputs["type"], body, ctx, limit + 1)
        return {"records": records[:limit], "truncated": len(records) > limit}

    def _get(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        params = [("properties", ",".join(inputs["properties"])), *_id_property_params(inputs)]
        return {"record": self._api.request_object("GET", _path(inputs["type"], inputs["id"]), ctx, params=params)}

    def _create(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        body = {"properties": _to_properties(inputs["values"])}
        return {"record": self._api.request_object("POST", _path(inputs["type"]), ctx, body=body)}

    def _upsert(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        id_property = inputs["id_property"]
        batch = [
            {"idProperty": id_property, "id": str(each["id"]), "properties": _to_properties(each["values"])}
            for each in inputs["records"]
        ]
        answer = self._api.request("POST", f"{_path(inputs['type'])}/batch/upsert", ctx, body={"inputs": batch})
        body = parse_object(answer, SYSTEM)
        if answer.status == 207 or body.get("errors"):
            raise partial_failure(body.get("errors"))
        results = records_in(body, "results", SYSTEM)
        return {"records": [{"id": str(each.get("id")), "new": bool(each.get("new"))} for each in results]}

    def _update(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        body = {"properties": _to_properties(inputs["values"])}
        path, params = _path(inputs["type"], inputs["id"]), _id_property_params(inputs)
        return {"record": self._api.request_object("PATCH", path, ctx, params=params, body=body)}

    def _delete(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        try:
            self._api.request("DELETE", _path(inputs["type"], inputs["id"]), ctx)
        except Rejected as refusal:
            if refusal.details.get("status") == 404 and refusal.details.get("code") == "OBJECT_NOT_FOUND":
                return {"deleted": False}
            raise
        return {"deleted": True}

    def _associate(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        source, target = (inputs["from_type"], inputs["from_id"]), (inputs["to_type"], inputs["to_id"])
        path = f"/crm/v4/objects/{'/'.join(map(segment, source))}/associations/default/{'/'.join(map(segment, target))}"
        self._api.request("PUT", path, ctx)
        return {"associated": True}

    def _associations(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        limit = inputs.get("limit", DEFAULT_RECORDS)
        source = f"{segment(inputs['from_type'])}/{segment(inputs['from_id'])}"
        path = f"/crm/v4/objects/{source}/associations/{segment(inputs['to_type'])}"
        associations: list[dict[str, Any]] = []
        after: str | None = ""
        while after is not None and len(associations) <= limit:
            params = [("limit", str(_PAGE_OF_ASSOCIATIONS)), *([("after", after)] if after else [])]
            page = self._api.request_object("GET", path, ctx, params=params)
            associations += records_in(page, "results", SYSTEM)
            after = _next_page(page, after)
        truncated = len(associations) > limit or after is not None
        return {"records": [_to_association(each) for each in associations[:limit]], "truncated": truncated}

    def _describe(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        body = self._api.request_object("GET", f"/crm/v3/properties/{segment(inputs['type'])}", ctx)
        return {"properties": [_to_property(each) for each in records_in(body, "results", SYSTEM)]}

    # -- pages

    def _search_pages(self, kind: str, body: dict[str, Any], ctx: Context, max_records: int) -> list[dict[str, Any]]:
        """Run a search and return at most `max_records` records."""
        records: list[dict[str, Any]] = []
        after: str | None = ""
        while after is not None and len(records) < max_records:
            request = {**body, "limit": min(_PAGE, max_records - len(records)), **({"after": after} if after else {})}
            page = self._api.request_object("POST", f"{_path(kind)}/search", ctx, body=request)
            records += records_in(page, "results", SYSTEM)
            after = _next_page(page, after)
        return records[:max_records]


def _path(kind: str, number: str | int | None = None) -> str:
    return f"/crm/v3/objects/{segment(kind)}" + ("" if number is None else f"/{segment(number)}")


def _id_property_params(inputs: Json) -> list[tuple[str, str]]:
    return [("idProperty", inputs["id_property"])] if "id_property" in inputs else []


def _next_page(page: Json, previous: str) -> str | None:
    """Return the cursor of the next page, None after the last; SystemFailure when it is the previous cursor again."""
    try:
        after = page["paging"]["next"]["after"]
    except (KeyError, TypeError):
        return None
    if str(after) == previous:
        raise SystemFailure("HubSpot repeated the cursor of the previous page, so paging would not end.")
    return str(after)


def _to_properties(values: Mapping[str, Any]) -> dict[str, str]:
    """Convert values to the texts that HubSpot expects, null to the empty text."""
    return {name: _to_text(value) for name, value in values.items()}


def _to_text(value: Any) -> str:
    if value is None:
        return ""
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _to_filter(condition: Json) -> dict[str, Any]:
    hubspot_filter: dict[str, Any] = {"propertyName": condition["property"], "operator": condition["operator"]}
    if "value" in condition:
        hubspot_filter["value"] = _to_text(condition["value"])
    if "high_value" in condition:
        hubspot_filter["highValue"] = _to_text(condition["high_value"])
    if "values" in condition:
        hubspot_filter["values"] = [_to_text(each) for each in condition["values"]]
    return hubspot_filter


def _to_association(association: Json) -> dict[str, Any]:
    kinds = association.get("associationTypes")
    labels = [str(each["label"]) for each in kinds if each.get("label")] if isinstance(kinds, list) else []
    return {"id": str(association.get("toObjectId")), "labels": labels}


def _to_property(definition: Json) -> dict[str, Any]:
    rules = definition.get("modificationMetadata")
    options = definition.get("options")
    return {
        "name": str(definition.get("name")), "type": str(definition.get("type")), "title": str(definition.get("label") or ""),
        "readonly": bool(rules.get("readOnlyValue")) if isinstance(rules, Mapping) else False,
        "unique": bool(definition.get("hasUniqueValue")),
        **({"options": [str(each.get("value")) for each in options]} if isinstance(options, list) and options else {}),
    }  # fmt: skip
