"""The Salesforce connector: each action sends one request, a query one per page."""

from typing import Any, ClassVar

from appliance.connectors.contract import Action, Connector, Context, Json, Polled, Rejected, SystemFailure, Trigger
from gos_connector_business.answers import parse_object
from gos_connector_business.changes import poll_changes
from gos_connector_business.rest import object_in, records_in, segment
from gos_connector_business.salesforce.api import SYSTEM, auth_block, make_api, query, to_error_from_list
from gos_connector_business.salesforce.changed_records import ChangedRecords
from gos_connector_business.salesforce.declaration import ACTIONS, SETTINGS, TRIGGERS
from gos_connector_business.salesforce.soql import SOQL
from gos_connector_business.schema import DEFAULT_RECORDS

_DEFAULT_API_VERSION = "62.0"


class SalesforceConnector(Connector):
    """One Salesforce domain."""

    contract_version = 1
    name = "salesforce"
    title = "Salesforce"
    version = "0.1.0"
    tested_against = "a loopback test server that follows Salesforce's documentation (REST API 62.0)"
    settings_schema: ClassVar[Json] = SETTINGS
    actions: ClassVar[tuple[Action, ...]] = ACTIONS
    triggers: ClassVar[tuple[Trigger, ...]] = TRIGGERS

    def __init__(self, settings: Json) -> None:
        super().__init__(settings)
        self._api = make_api(settings, self.auth_of(settings))
        self._root = f"/services/data/v{settings.get('api', _DEFAULT_API_VERSION)}"
        self.verbs = {
            "query": self._query, "get": self._get, "create": self._create, "upsert": self._upsert, "update": self._update,
            "delete": self._delete, "composite": self._composite, "describe": self._describe, "limits": self._limits,
        }  # fmt: skip

    @classmethod
    def auth_of(cls, settings: Json) -> Json:
        return auth_block(settings)

    def check(self, ctx: Context) -> str:
        daily = self._limits({}, ctx)["limits"].get("DailyApiRequests")
        if not isinstance(daily, dict):
            raise SystemFailure("The server at this address does not respond like Salesforce; check the address.")
        remaining = f"{daily.get('Remaining')} of {daily.get('Max')}"
        return f"Connected to {self._api.base}; {remaining} daily API requests are left."

    def poll(self, trigger: str, query: Json, cursor: Any, ctx: Context) -> Polled:  # the contract's word
        if trigger != "changed_records":
            return super().poll(trigger, query, cursor, ctx)
        where = SOQL.bind(query["where"], query.get("params", {})) if "where" in query else ""

        def read(soql: str, limit: int) -> list[dict[str, Any]]:
            return self._query_records(soql, ctx, limit)[0]

        return poll_changes(ChangedRecords(read, query["type"], query["fields"], where), query, cursor)

    # -- the actions

    def _query(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        soql = SOQL.bind(inputs["soql"], inputs.get("params", {}))
        limit, deleted = inputs.get("limit", DEFAULT_RECORDS), inputs.get("deleted", False)
        records, truncated = self._query_records(soql, ctx, limit, deleted=deleted)
        return {"records": records, "truncated": truncated}

    def _get(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        params = [("fields", ",".join(inputs["fields"]))] if "fields" in inputs else []
        record = self._api.request_object("GET", self._record_path(inputs), ctx, params=params)
        return {"record": {name: value for name, value in record.items() if name != "attributes"}}

    def _create(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        body = self._api.request_object("POST", f"{self._root}/sobjects/{segment(inputs['type'])}", ctx, body=inputs["values"])
        return {"id": _id_of(body)}

    def _upsert(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        path = f"{self._root}/sobjects/{segment(inputs['type'])}/{segment(inputs['field'])}/{segment(inputs['value'])}"
        answer = self._api.request("PATCH", path, ctx, body=inputs["values"])
        return {"id": _id_of(parse_object(answer, SYSTEM)), "created": answer.status == 201}

    def _update(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        self._api.request("PATCH", self._record_path(inputs), ctx, body=inputs["values"])
        return {"updated": True}

    def _delete(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        try:
            self._api.request("DELETE", self._record_path(inputs), ctx)
        except Rejected as refusal:
            # NOT_FOUND is also the code for an unknown object type, with a different message.
            is_deleted = refusal.details.get("code") == "ENTITY_IS_DELETED" or (
                refusal.details.get("code") == "NOT_FOUND" and "requested resource" not in refusal.message
            )
            if refusal.details.get("status") == 404 and is_deleted:
                return {"deleted": False}
            raise
        return {"deleted": True}

    def _composite(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        requests = [
            {
                "referenceId": each["reference"], "method": each["method"], "url": f"{self._root}/{each['path']}",
                **({"body": each["body"]} if "body" in each else {}),
            }
            for each in inputs["requests"]
        ]  # fmt: skip
        answer = self._api.request("POST", f"{self._root}/composite", ctx, body={"allOrNone": True, "compositeRequest": requests})
        parts = records_in(parse_object(answer, SYSTEM), "compositeResponse", SYSTEM)
        # Salesforce reports every request that was not at fault as halted, and the failed one with its reason.
        failed = [each for each in parts if not 200 <= int(each.get("httpStatusCode") or 0) < 300]
        if failed:
            cause = min(failed, key=lambda part: _codes(part) == ["PROCESSING_HALTED"])
            error = to_error_from_list(_errors_of(cause), answer)
            message = f"The request {cause.get('referenceId')!r} failed and all were rolled back: {error.message}"
            raise Rejected(message, details=error.details)
        return {"results": {str(each.get("referenceId")): each.get("body") for each in parts}}

    def _describe(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        body = self._api.request_object("GET", f"{self._root}/sobjects/{segment(inputs['type'])}/describe", ctx)
        return {"fields": [_to_field(each) for each in records_in(body, "fields", SYSTEM)]}

    def _limits(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        return {"limits": object_in({"limits": self._api.request_object("GET", f"{self._root}/limits", ctx)}, "limits", SYSTEM)}

    # -- addresses

    def _record_path(self, inputs: Json) -> str:
        return f"{self._root}/sobjects/{segment(inputs['type'])}/{segment(inputs['id'])}"

    def _query_records(
        self, soql: str, ctx: Context, max_records: int, *, deleted: bool = False
    ) -> tuple[list[dict[str, Any]], bool]:
        return query(self._api, f"{self._root}/{'queryAll' if deleted else 'query'}", soql, ctx, max_records)


def _id_of(body: Json) -> str:
    number = body.get("id")
    if not isinstance(number, str) or not number:
        raise SystemFailure("Salesforce did not return the id of the record.", outcome="unknown")
    return number


def _errors_of(part: Json) -> list[dict[str, Any]]:
    body = part.get("body")
    return [each for each in body if isinstance(each, dict)] if isinstance(body, list) else []


def _codes(part: Json) -> list[str]:
    return [str(each.get("errorCode")) for each in _errors_of(part)]


def _to_field(field: Json) -> dict[str, Any]:
    options = field.get("picklistValues")
    relation = field.get("referenceTo")
    required = not field.get("nillable") and not field.get("defaultedOnCreate") and bool(field.get("createable"))
    return {
        "name": str(field.get("name")), "type": str(field.get("type")), "title": str(field.get("label") or ""),
        "required": required, "readonly": not field.get("updateable"),
        **({"external_id": True} if field.get("externalId") else {}),
        **({"options": [each.get("value") for each in options]} if isinstance(options, list) and options else {}),
        **({"relation": relation} if isinstance(relation, list) and relation else {}),
    }  # fmt: skip
