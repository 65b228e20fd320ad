"""The connector: each action is one request, a list one request per page."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from appliance.connectors.contract import Action, ConfigError, Connector, Context, Json, Polled, Rejected, SystemFailure, Trigger
from gos_connector_business.answer import parse_object
from gos_connector_business.changes import poll_changes
from gos_connector_business.hubspot.api import WHO, make_api, partial
from gos_connector_business.hubspot.changed import ChangedRecords
from gos_connector_business.hubspot.declaration import ACTIONS, SETTINGS, TRIGGERS
from gos_connector_business.rest import records_in, segment
from gos_connector_business.schema import USUAL_RECORDS

_PAGE = 200
_PAGE_OF_ASSOCIATIONS = 500


class HubspotConnector(Connector):
    """One HubSpot account."""

    contract_version = 1
    name = "hubspot"
    title = "HubSpot"
    version = "0.1.0"
    tested_against = "a server of the test on loopback that follows HubSpot's documentation (CRM v3, associations v4)"
    settings_schema: ClassVar[Json] = SETTINGS
    actions: ClassVar[tuple[Action, ...]] = ACTIONS
    triggers: ClassVar[tuple[Trigger, ...]] = TRIGGERS

    def __init__(self, settings: Json) -> None:
        super().__init__(settings)
        self._api = make_api(settings)
        self._verbs: Mapping[str, Callable[[Json, Context], dict[str, Any]]] = {
            "search": self._search, "get": self._get, "create": self._create, "upsert": self._upsert, "update": self._update,
            "delete": self._delete, "associate": self._associate, "associations": self._associations, "describe": self._describe,
        }  # fmt: skip

    def check(self, ctx: Context) -> str:
        told = self._api.told("GET", "/account-info/v3/details", ctx)
        if not isinstance(told.get("portalId"), int):
            raise SystemFailure("What answers at this address does not speak as HubSpot does.")
        return f"The HubSpot account {told['portalId']} answers."

    def call(self, action: str, input: Json, ctx: Context) -> dict[str, Any]:  # noqa: A002 - the contract's word
        verb = self._verbs.get(action)
        if verb is None:
            raise ConfigError(f"{self.title} has no action {action!r}; it has {', '.join(self._verbs)}.")
        return verb(input, ctx)

    def poll(self, trigger: str, query: Json, cursor: Any, ctx: Context) -> Polled:
        if trigger != "changed_records":
            raise ConfigError(f"{self.title} has no trigger {trigger!r}; it has changed_records.")

        def search(body: dict[str, Any], limit: int) -> list[dict[str, Any]]:
            return self._pages(query["type"], body, ctx, limit)

        source = ChangedRecords(search, query["type"], query["properties"], [_filter(each) for each in query.get("filters", [])])
        return poll_changes(source, query, cursor)

    # -- the actions

    def _search(self, given: Json, ctx: Context) -> dict[str, Any]:
        limit = given.get("limit", USUAL_RECORDS)
        body: dict[str, Any] = {"properties": given["properties"]}
        if given.get("filters"):
            body["filterGroups"] = [{"filters": [_filter(each) for each in group]} for group in given["filters"]]
        if "query" in given:
            body["query"] = given["query"]
        if "sort" in given:
            direction = "DESCENDING" if given["sort"].get("descending", False) else "ASCENDING"
            body["sorts"] = [{"propertyName": given["sort"]["property"], "direction": direction}]
        found = self._pages(given["type"], body, ctx, limit + 1)
        return {"records": found[:limit], "truncated": len(found) > limit}

    def _get(self, given: Json, ctx: Context) -> dict[str, Any]:
        params = [("properties", ",".join(given["properties"])), *_named(given)]
        return {"record": self._api.told("GET", _path(given["type"], given["id"]), ctx, params=params)}

    def _create(self, given: Json, ctx: Context) -> dict[str, Any]:
        return {"record": self._api.told("POST", _path(given["type"]), ctx, body={"properties": _written(given["values"])})}

    def _upsert(self, given: Json, ctx: Context) -> dict[str, Any]:
        named = given["id_property"]
        inputs = [{"idProperty": named, "id": str(each["id"]), "properties": _written(each["values"])} for each in given["records"]]
        answer = self._api.ask("POST", f"{_path(given['type'])}/batch/upsert", ctx, body={"inputs": inputs})
        told = parse_object(answer, WHO)
        if answer.status == 207 or told.get("errors"):
            raise partial(told.get("errors"))
        found = records_in(told, "results", WHO)
        return {"records": [{"id": str(each.get("id")), "new": bool(each.get("new"))} for each in found]}

    def _update(self, given: Json, ctx: Context) -> dict[str, Any]:
        body = {"properties": _written(given["values"])}
        return {"record": self._api.told("PATCH", _path(given["type"], given["id"]), ctx, params=_named(given), body=body)}

    def _delete(self, given: Json, ctx: Context) -> dict[str, Any]:
        try:
            self._api.ask("DELETE", _path(given["type"], given["id"]), ctx)
        except Rejected as refusal:
            if refusal.details.get("status") == 404 and refusal.details.get("code") == "OBJECT_NOT_FOUND":
                return {"deleted": False}
            raise
        return {"deleted": True}

    def _associate(self, given: Json, ctx: Context) -> dict[str, Any]:
        start, goal = (given["from_type"], given["from_id"]), (given["to_type"], given["to_id"])
        path = f"/crm/v4/objects/{'/'.join(map(segment, start))}/associations/default/{'/'.join(map(segment, goal))}"
        self._api.ask("PUT", path, ctx)
        return {"associated": True}

    def _associations(self, given: Json, ctx: Context) -> dict[str, Any]:
        limit = given.get("limit", USUAL_RECORDS)
        start = f"{segment(given['from_type'])}/{segment(given['from_id'])}"
        path = f"/crm/v4/objects/{start}/associations/{segment(given['to_type'])}"
        found: list[dict[str, Any]] = []
        after: str | None = ""
        while after is not None and len(found) <= limit:
            params = [("limit", str(_PAGE_OF_ASSOCIATIONS)), *([("after", after)] if after else [])]
            told = self._api.told("GET", path, ctx, params=params)
            found += records_in(told, "results", WHO)
            after = _following(told, after)
        return {"records": [_associated(each) for each in found[:limit]], "truncated": len(found) > limit or after is not None}

    def _describe(self, given: Json, ctx: Context) -> dict[str, Any]:
        found = records_in(self._api.told("GET", f"/crm/v3/properties/{segment(given['type'])}", ctx), "results", WHO)
        return {"properties": [_described(each) for each in found]}

    # -- pages

    def _pages(self, kind: str, body: dict[str, Any], ctx: Context, most: int) -> list[dict[str, Any]]:
        """Up to so many records of a search."""
        found: list[dict[str, Any]] = []
        after: str | None = ""
        while after is not None and len(found) < most:
            asked = {**body, "limit": min(_PAGE, most - len(found)), **({"after": after} if after else {})}
            told = self._api.told("POST", f"{_path(kind)}/search", ctx, body=asked)
            found += records_in(told, "results", WHO)
            after = _following(told, after)
        return found[:most]


def _path(kind: str, number: str | int | None = None) -> str:
    return f"/crm/v3/objects/{segment(kind)}" + ("" if number is None else f"/{segment(number)}")


def _named(given: Json) -> list[tuple[str, str]]:
    return [("idProperty", given["id_property"])] if "id_property" in given else []


def _following(told: Json, before: str) -> str | None:
    """Where the next page begins; None after the last."""
    try:
        after = told["paging"]["next"]["after"]
    except (KeyError, TypeError):
        return None
    if str(after) == before:
        raise SystemFailure("HubSpot's next page is the one that was read; its paging does not end.")
    return str(after)


def _written(values: Mapping[str, Any]) -> dict[str, str]:
    """Values as HubSpot takes them: texts, the empty one for nothing."""
    return {name: _text(value) for name, value in values.items()}


def _text(value: Any) -> str:
    if value is None:
        return ""
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _filter(given: Json) -> dict[str, Any]:
    made: dict[str, Any] = {"propertyName": given["property"], "operator": given["operator"]}
    if "value" in given:
        made["value"] = _text(given["value"])
    if "high_value" in given:
        made["highValue"] = _text(given["high_value"])
    if "values" in given:
        made["values"] = [_text(each) for each in given["values"]]
    return made


def _associated(found: Json) -> dict[str, Any]:
    kinds = found.get("associationTypes")
    labels = [str(each["label"]) for each in kinds if each.get("label")] if isinstance(kinds, list) else []
    return {"id": str(found.get("toObjectId")), "labels": labels}


def _described(found: Json) -> dict[str, Any]:
    rules = found.get("modificationMetadata")
    options = found.get("options")
    return {
        "name": str(found.get("name")), "type": str(found.get("type")), "title": str(found.get("label") or ""),
        "readonly": bool(rules.get("readOnlyValue")) if isinstance(rules, Mapping) else False,
        "unique": bool(found.get("hasUniqueValue")),
        **({"options": [str(each.get("value")) for each in options]} if isinstance(options, list) and options else {}),
    }  # fmt: skip
