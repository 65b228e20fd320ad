"""The connector: each action is one request, a list one request per page."""

import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from appliance.connectors.contract import (
    Action,
    AuthError,
    ConfigError,
    Connector,
    Context,
    Json,
    Polled,
    Rejected,
    SystemFailure,
    Trigger,
)
from gos_connector_business.changes import poll_changes
from gos_connector_business.erpnext.api import WHO, make_api
from gos_connector_business.erpnext.changed import ChangedDocuments
from gos_connector_business.erpnext.declaration import ACTIONS, SETTINGS, TRIGGERS
from gos_connector_business.rest import object_in, records_in, segment
from gos_connector_business.schema import USUAL_RECORDS

_PAGE = 500


class ErpnextConnector(Connector):
    """One Frappe site."""

    contract_version = 1
    name = "erpnext"
    title = "ERPNext"
    version = "0.1.0"
    tested_against = "a server of the test on loopback that follows Frappe's documentation (REST API, version 15)"
    settings_schema: ClassVar[Json] = SETTINGS
    actions: ClassVar[tuple[Action, ...]] = ACTIONS
    triggers: ClassVar[tuple[Trigger, ...]] = TRIGGERS

    def __init__(self, settings: Json) -> None:
        super().__init__(settings)
        self._api = make_api(settings)
        self._verbs: Mapping[str, Callable[[Json, Context], dict[str, Any]]] = {
            "list": self._list, "get": self._get, "create": self._create, "update": self._update, "delete": self._delete,
            "call": self._call, "describe": self._describe,
        }  # fmt: skip

    def check(self, ctx: Context) -> str:
        who = self._api.told("GET", "/api/method/frappe.auth.get_logged_user", ctx).get("message")
        if not isinstance(who, str):
            raise SystemFailure("What answers at this address does not speak as ERPNext does.")
        return f"{self._api.base} answers to {who}."

    def call(self, action: str, input: Json, ctx: Context) -> dict[str, Any]:  # noqa: A002 - the contract's word
        verb = self._verbs.get(action)
        if verb is None:
            raise ConfigError(f"{self.title} has no action {action!r}; it has {', '.join(self._verbs)}.")
        return verb(input, ctx)

    def poll(self, trigger: str, query: Json, cursor: Any, ctx: Context) -> Polled:
        if trigger != "changed_documents":
            raise ConfigError(f"{self.title} has no trigger {trigger!r}; it has changed_documents.")
        fields = sorted({*query["fields"], "name", "modified"})

        def read(filters: list[Any], order: str, most: int) -> list[dict[str, Any]]:
            asked = {"type": query["type"], "fields": fields, "filters": [*query.get("filters", []), *filters], "order": order}
            return self._page(asked, 0, most, ctx)

        return poll_changes(ChangedDocuments(read), query, cursor)

    # -- the actions

    def _list(self, given: Json, ctx: Context) -> dict[str, Any]:
        limit = given.get("limit", USUAL_RECORDS)
        order = given.get("order", "modified desc")
        # Without the name, documents that are equal in the order could move from page to page.
        asked = {**given, "order": order if "name" in order.replace(",", " ").split() else f"{order}, name"}
        found: list[dict[str, Any]] = []
        while len(found) <= limit:
            size = min(_PAGE, limit + 1 - len(found))
            page = self._page(asked, len(found), size, ctx)
            found += page
            if len(page) < size:
                break
        return {"records": found[:limit], "truncated": len(found) > limit}

    def _get(self, given: Json, ctx: Context) -> dict[str, Any]:
        return {"document": object_in(self._api.told("GET", _path(given), ctx), "data", WHO)}

    def _create(self, given: Json, ctx: Context) -> dict[str, Any]:
        told = self._api.told("POST", f"/api/resource/{segment(given['type'])}", ctx, body=given["values"])
        return {"document": object_in(told, "data", WHO)}

    def _update(self, given: Json, ctx: Context) -> dict[str, Any]:
        return {"document": object_in(self._api.told("PUT", _path(given), ctx, body=given["values"]), "data", WHO)}

    def _delete(self, given: Json, ctx: Context) -> dict[str, Any]:
        try:
            self._api.ask("DELETE", _path(given), ctx)
        except Rejected as refusal:
            if refusal.details.get("code") == "DoesNotExistError" and self._has_type(given["type"], ctx):
                return {"deleted": False}
            raise
        return {"deleted": True}

    def _has_type(self, kind: str, ctx: Context) -> bool:
        """Whether the site has the type: what it says of a type that it does not have is the same as of a document."""
        try:
            self._api.ask("GET", f"/api/resource/DocType/{segment(kind)}", ctx)
        except Rejected:
            return False
        except AuthError:
            return True  # a user who may delete documents need not be one who may read their definition
        return True

    def _call(self, given: Json, ctx: Context) -> dict[str, Any]:
        told = self._api.told("POST", f"/api/method/{segment(given['method'])}", ctx, body=given.get("args", {}))
        return {"result": told.get("message")}

    def _describe(self, given: Json, ctx: Context) -> dict[str, Any]:
        told = self._api.told("GET", f"/api/resource/DocType/{segment(given['type'])}", ctx)
        fields = records_in(object_in(told, "data", WHO), "fields", WHO)
        return {"fields": [_described(each) for each in fields]}

    def _page(self, asked: Json, start: int, size: int, ctx: Context) -> list[dict[str, Any]]:
        params = [
            ("fields", json.dumps(asked["fields"])), ("filters", json.dumps(asked.get("filters", []))),
            ("order_by", asked["order"]), ("limit_start", str(start)), ("limit_page_length", str(size)),
        ]  # fmt: skip
        if "any_filters" in asked:
            params.append(("or_filters", json.dumps(asked["any_filters"])))
        return records_in(self._api.told("GET", f"/api/resource/{segment(asked['type'])}", ctx, params=params), "data", WHO)


def _path(given: Json) -> str:
    return f"/api/resource/{segment(given['type'])}/{segment(given['name'])}"


def _described(field: Json) -> dict[str, Any]:
    return {
        "name": str(field.get("fieldname")), "type": str(field.get("fieldtype")), "title": str(field.get("label") or ""),
        "required": bool(field.get("reqd")), "readonly": bool(field.get("read_only")),
        **({"options": str(field["options"])} if field.get("options") else {}),
    }  # fmt: skip
