"""The connector: each action is one call, a search one call per page."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from appliance.connectors.contract import Action, ConfigError, Connector, Context, Json, Polled, SystemFailure, Trigger
from gos_connector_business.changes import poll_changes
from gos_connector_business.odoo.changed import ChangedRecords
from gos_connector_business.odoo.declaration import ACTIONS, SETTINGS, TRIGGERS
from gos_connector_business.odoo.server import Call, Server
from gos_connector_business.odoo.value import imported_ids, to_imported, to_odoo, to_plain
from gos_connector_business.schema import USUAL_RECORDS

_PAGE = 1000
# A model that gets another field is known anew after ten minutes.
_FIELDS_SECONDS = 600.0
_ATTRIBUTES = ["type", "string", "required", "readonly", "relation", "selection"]


class OdooConnector(Connector):
    """One database of an Odoo server."""

    contract_version = 1
    name = "odoo"
    title = "Odoo"
    version = "0.1.0"
    tested_against = "a server of the test on loopback that follows Odoo's documentation and published source of 17 to 19"
    settings_schema: ClassVar[Json] = SETTINGS
    actions: ClassVar[tuple[Action, ...]] = ACTIONS
    triggers: ClassVar[tuple[Trigger, ...]] = TRIGGERS

    def __init__(self, settings: Json) -> None:
        super().__init__(settings)
        self._server = Server(settings)
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, dict[str, dict[str, Any]]]] = {}
        self._verbs: Mapping[str, Callable[[Json, Context], dict[str, Any]]] = {
            "search": self._search, "read": self._read, "create": self._create, "upsert": self._upsert, "update": self._update,
            "delete": self._delete, "call": self._call, "describe": self._describe,
        }  # fmt: skip

    def check(self, ctx: Context) -> str:
        return self._server.greet(ctx)

    def call(self, action: str, input: Json, ctx: Context) -> dict[str, Any]:  # noqa: A002 - the contract's word
        verb = self._verbs.get(action)
        if verb is None:
            raise ConfigError(f"{self.title} has no action {action!r}; it has {', '.join(self._verbs)}.")
        return verb(input, ctx)

    def poll(self, trigger: str, query: Json, cursor: Any, ctx: Context) -> Polled:
        if trigger != "changed_records":
            raise ConfigError(f"{self.title} has no trigger {trigger!r}; it has changed_records.")
        fields = sorted({*query["fields"], "write_date"})

        def read(domain: list[Any], order: str, limit: int) -> list[dict[str, Any]]:
            asked = {"domain": [*query.get("domain", []), *domain], "fields": fields, "order": order, "limit": limit}
            return self._records(query, self._run(query, "search_read", None, asked, ctx), ctx)

        return poll_changes(ChangedRecords(read), query, cursor)

    # -- the actions

    def _search(self, given: Json, ctx: Context) -> dict[str, Any]:
        limit, offset = given.get("limit", USUAL_RECORDS), given.get("offset", 0)
        asked = {"domain": given.get("domain", []), "fields": given["fields"]}
        if "order" in given:
            # Without the id, records that are equal in the order could move from page to page.
            asked["order"] = given["order"] if "id" in given["order"].replace(",", " ").split() else f"{given['order']}, id"
        found: list[dict[str, Any]] = []
        while len(found) <= limit:
            size = min(_PAGE, limit + 1 - len(found))
            page = self._run(given, "search_read", None, {**asked, "offset": offset + len(found), "limit": size}, ctx)
            found += self._records(given, page, ctx)
            if len(page) < size:
                break
        return {"records": found[:limit], "truncated": len(found) > limit}

    def _read(self, given: Json, ctx: Context) -> dict[str, Any]:
        found = self._records(given, self._run(given, "read", given["ids"], {"fields": given["fields"]}, ctx), ctx)
        places = {number: place for place, number in enumerate(given["ids"])}
        return {"records": sorted(found, key=lambda record: places.get(record.get("id"), len(places)))}

    def _create(self, given: Json, ctx: Context) -> dict[str, Any]:
        records = [self._typed(given, record, ctx) for record in given["records"]]
        ids = self._run(given, "create", None, {"vals_list": records}, ctx)
        if not isinstance(ids, list) or len(ids) != len(records) or not all(isinstance(each, int) for each in ids):
            raise SystemFailure("Odoo did not answer with the ids of what it created.", outcome="unknown")
        return {"ids": ids}

    def _upsert(self, given: Json, ctx: Context) -> dict[str, Any]:
        wanted = [each["external_id"] for each in given["records"]]
        if len(set(wanted)) != len(wanted):
            raise ConfigError("Two of the records have the same external_id.")
        rows = [self._imported(given, each["values"], ctx) for each in given["records"]]
        columns = sorted(rows[0])
        if any(sorted(row) != columns for row in rows):
            raise ConfigError("Records that are imported together set the same fields; give others to a call of their own.")
        data = [[name, *(row[column] for column in columns)] for name, row in zip(wanted, rows, strict=True)]
        told = self._run(given, "load", None, {"fields": ["id", *columns], "data": data}, ctx)
        return {"ids": imported_ids(told)}

    def _update(self, given: Json, ctx: Context) -> dict[str, Any]:
        self._run(given, "write", given["ids"], {"vals": self._typed(given, given["values"], ctx)}, ctx)
        return {"updated": len(given["ids"])}

    def _delete(self, given: Json, ctx: Context) -> dict[str, Any]:
        # Odoo refuses to delete what is not there; a repeated call finds what is left of the first.
        hidden = {**given, "context": {**given.get("context", {}), "active_test": False}}
        found = self._run(hidden, "search_read", None, {"domain": [["id", "in", given["ids"]]], "fields": ["id"]}, ctx)
        left = [int(record["id"]) for record in _checked(found)]
        if left:
            self._run(given, "unlink", left, {}, ctx)
        return {"deleted": len(left)}

    def _call(self, given: Json, ctx: Context) -> dict[str, Any]:
        return {"result": self._run(given, given["method"], given.get("ids"), given.get("args", {}), ctx)}

    def _describe(self, given: Json, ctx: Context) -> dict[str, Any]:
        fields = self._fetch_fields(given["model"], ctx)
        return {
            "fields": [
                {
                    "name": name, "type": str(field.get("type")), "title": str(field.get("string") or ""),
                    "required": bool(field.get("required")), "readonly": bool(field.get("readonly")),
                    **({"relation": str(field["relation"])} if field.get("relation") else {}),
                    **({"options": field["selection"]} if isinstance(field.get("selection"), list) else {}),
                }
                for name, field in sorted(fields.items())
            ]
        }  # fmt: skip

    # -- calls

    def _run(self, given: Json, method: str, ids: list[int] | None, args: Mapping[str, Any], ctx: Context) -> Any:
        """Long in parameters because a call has that many parts."""
        return self._server.run(Call(given["model"], method, ids, args, given.get("context", {})), ctx)

    def _records(self, given: Json, found: Any, ctx: Context) -> list[dict[str, Any]]:
        if not _checked(found):
            return []
        fields = self._fields(given["model"], ctx)
        return [{name: to_plain(_type_of(fields, name), value) for name, value in record.items()} for record in found]

    def _typed(self, given: Json, values: Json, ctx: Context) -> dict[str, Any]:
        fields = self._knowing(given["model"], values, ctx)
        return {name: to_odoo(name, _type_of(fields, name), value) for name, value in values.items()}

    def _imported(self, given: Json, values: Json, ctx: Context) -> dict[str, str]:
        fields = self._knowing(given["model"], values, ctx)
        return dict(to_imported(name, _type_of(fields, name), value) for name, value in values.items())

    def _knowing(self, model: str, values: Json, ctx: Context) -> dict[str, dict[str, Any]]:
        """The model's fields; ConfigError when the values have one that it does not have."""
        fields = self._fields(model, ctx)
        missing = [name for name in values if name not in fields]
        if missing:
            raise ConfigError(f"The model {model} has no field {missing[0]!r}; the action describe lists what it has.")
        return fields

    def _fields(self, model: str, ctx: Context) -> dict[str, dict[str, Any]]:
        with self._lock:
            until, fields = self._known.get(model, (0.0, {}))
        return fields if time.monotonic() < until else self._fetch_fields(model, ctx)

    def _fetch_fields(self, model: str, ctx: Context) -> dict[str, dict[str, Any]]:
        found = self._server.run(Call(model, "fields_get", None, {"attributes": _ATTRIBUTES}), ctx)
        if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
            raise SystemFailure("Odoo did not answer with the fields of the model.")
        with self._lock:
            self._known[model] = (time.monotonic() + _FIELDS_SECONDS, found)
        return found


def _type_of(fields: Mapping[str, Mapping[str, Any]], name: str) -> str:
    return str(fields.get(name, {}).get("type", ""))


def _checked(found: Any) -> list[dict[str, Any]]:
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise SystemFailure("Odoo did not answer with records.")
    return found
