"""The ERPNext connector: each action sends one request, a list one per page."""

import json
from typing import Any, ClassVar

from appliance.connectors.contract import (
    Action,
    AuthError,
    Connector,
    Context,
    Json,
    Polled,
    Rejected,
    SystemFailure,
    Trigger,
)
from gos_connector_business.changes import poll_changes
from gos_connector_business.erpnext.api import SYSTEM, make_api
from gos_connector_business.erpnext.changed_documents import ChangedDocuments
from gos_connector_business.erpnext.declaration import ACTIONS, SETTINGS, TRIGGERS
from gos_connector_business.rest import object_in, records_in, segment
from gos_connector_business.schema import DEFAULT_RECORDS

_PAGE = 500


class ErpnextConnector(Connector):
    """One Frappe site."""

    contract_version = 1
    name = "erpnext"
    title = "ERPNext"
    version = "0.1.0"
    tested_against = "a loopback test server that follows Frappe's documentation (REST API, version 15)"
    settings_schema: ClassVar[Json] = SETTINGS
    actions: ClassVar[tuple[Action, ...]] = ACTIONS
    triggers: ClassVar[tuple[Trigger, ...]] = TRIGGERS

    def __init__(self, settings: Json) -> None:
        super().__init__(settings)
        self._api = make_api(settings)
        self.verbs = {
            "list": self._list, "get": self._get, "create": self._create, "update": self._update, "delete": self._delete,
            "call": self._call, "describe": self._describe,
        }  # fmt: skip

    def check(self, ctx: Context) -> str:
        user = self._api.request_object("GET", "/api/method/frappe.auth.get_logged_user", ctx).get("message")
        if not isinstance(user, str):
            raise SystemFailure("The server at this address does not respond like ERPNext; check the address.")
        return f"Connected to {self._api.base} as {user}."

    def poll(self, trigger: str, query: Json, cursor: Any, ctx: Context) -> Polled:
        if trigger != "changed_documents":
            return super().poll(trigger, query, cursor, ctx)
        fields = sorted({*query["fields"], "name", "modified"})

        def read(filters: list[Any], order: str, limit: int) -> list[dict[str, Any]]:
            request = {"type": query["type"], "fields": fields, "filters": [*query.get("filters", []), *filters], "order": order}
            return self._page(request, 0, limit, ctx)

        return poll_changes(ChangedDocuments(read), query, cursor)

    # -- the actions

    def _list(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        limit = inputs.get("limit", DEFAULT_RECORDS)
        order = inputs.get("order", "modified desc")
        # Without the name as the last criterion, documents that sort equally could move from page to page.
        request = {**inputs, "order": order if "name" in order.replace(",", " ").split() else f"{order}, name"}
        documents: list[dict[str, Any]] = []
        while len(documents) <= limit:
            size = min(_PAGE, limit + 1 - len(documents))
            page = self._page(request, len(documents), size, ctx)
            documents += page
            if len(page) < size:
                break
        return {"records": documents[:limit], "truncated": len(documents) > limit}

    def _get(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        return {"document": object_in(self._api.request_object("GET", _path(inputs), ctx), "data", SYSTEM)}

    def _create(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        body = self._api.request_object("POST", f"/api/resource/{segment(inputs['type'])}", ctx, body=inputs["values"])
        return {"document": object_in(body, "data", SYSTEM)}

    def _update(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        return {"document": object_in(self._api.request_object("PUT", _path(inputs), ctx, body=inputs["values"]), "data", SYSTEM)}

    def _delete(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        try:
            self._api.request("DELETE", _path(inputs), ctx)
        except Rejected as refusal:
            if refusal.details.get("code") == "DoesNotExistError" and self._has_type(inputs["type"], ctx):
                return {"deleted": False}
            raise
        return {"deleted": True}

    def _has_type(self, kind: str, ctx: Context) -> bool:
        """Whether the site has the type; its error for an unknown type is the same as for an unknown document."""
        try:
            self._api.request("GET", f"/api/resource/DocType/{segment(kind)}", ctx)
        except Rejected:
            return False
        except AuthError:
            return True  # a user with permission to delete documents may lack permission to read their DocType
        return True

    def _call(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        body = self._api.request_object("POST", f"/api/method/{segment(inputs['method'])}", ctx, body=inputs.get("args", {}))
        return {"result": body.get("message")}

    def _describe(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        body = self._api.request_object("GET", f"/api/resource/DocType/{segment(inputs['type'])}", ctx)
        fields = records_in(object_in(body, "data", SYSTEM), "fields", SYSTEM)
        return {"fields": [_to_field(each) for each in fields]}

    def _page(self, request: Json, start: int, size: int, ctx: Context) -> list[dict[str, Any]]:
        params = [
            ("fields", json.dumps(request["fields"])), ("filters", json.dumps(request.get("filters", []))),
            ("order_by", request["order"]), ("limit_start", str(start)), ("limit_page_length", str(size)),
        ]  # fmt: skip
        if "any_filters" in request:
            params.append(("or_filters", json.dumps(request["any_filters"])))
        body = self._api.request_object("GET", f"/api/resource/{segment(request['type'])}", ctx, params=params)
        return records_in(body, "data", SYSTEM)


def _path(inputs: Json) -> str:
    return f"/api/resource/{segment(inputs['type'])}/{segment(inputs['name'])}"


def _to_field(field: Json) -> dict[str, Any]:
    return {
        "name": str(field.get("fieldname")), "type": str(field.get("fieldtype")), "title": str(field.get("label") or ""),
        "required": bool(field.get("reqd")), "readonly": bool(field.get("read_only")),
        **({"options": str(field["options"])} if field.get("options") else {}),
    }  # fmt: skip
