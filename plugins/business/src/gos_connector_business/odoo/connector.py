"""The Odoo connector: each action is one call, a search one call per page."""

import threading
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from appliance.connectors.contract import Action, ConfigError, Connector, Context, Json, Polled, SystemFailure, Trigger
from gos_connector_business.changes import poll_changes
from gos_connector_business.odoo.changed_records import ChangedRecords
from gos_connector_business.odoo.declaration import ACTIONS, SETTINGS, TRIGGERS
from gos_connector_business.odoo.server import Call, Server
from gos_connector_business.odoo.values import imported_ids, to_import_cell, to_odoo, to_plain
from gos_connector_business.schema import DEFAULT_RECORDS

_PAGE = 1000
# The fields of a model are cached for ten minutes; a new field is available after that.
_FIELDS_SECONDS = 600.0
_ATTRIBUTES = ["type", "string", "required", "readonly", "relation", "selection"]


class OdooConnector(Connector):
    """One database of an Odoo server."""

    contract_version = 1
    name = "odoo"
    title = "Odoo"
    version = "0.1.0"
    tested_against = "a loopback test server that follows Odoo's documentation and published source of 17 to 19"
    settings_schema: ClassVar[Json] = SETTINGS
    actions: ClassVar[tuple[Action, ...]] = ACTIONS
    triggers: ClassVar[tuple[Trigger, ...]] = TRIGGERS

    def __init__(self, settings: Json) -> None:
        super().__init__(settings)
        self._server = Server(settings)
        self._lock = threading.Lock()
        self._fields_by_model: dict[str, tuple[float, dict[str, dict[str, Any]]]] = {}
        self.verbs = {
            "search": self._search, "read": self._read, "create": self._create, "upsert": self._upsert, "update": self._update,
            "delete": self._delete, "call": self._call, "describe": self._describe,
        }  # fmt: skip

    def check(self, ctx: Context) -> str:
        return self._server.check(ctx)

    def poll(self, trigger: str, query: Json, cursor: Any, ctx: Context) -> Polled:
        if trigger != "changed_records":
            return super().poll(trigger, query, cursor, ctx)
        fields = sorted({*query["fields"], "write_date"})

        def read(domain: list[Any], order: str, limit: int) -> list[dict[str, Any]]:
            args = {"domain": [*query.get("domain", []), *domain], "fields": fields, "order": order, "limit": limit}
            return self._records(query, self._run(query, "search_read", None, args, ctx), ctx)

        return poll_changes(ChangedRecords(read), query, cursor)

    # -- the actions

    def _search(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        limit, offset = inputs.get("limit", DEFAULT_RECORDS), inputs.get("offset", 0)
        args = {"domain": inputs.get("domain", []), "fields": inputs["fields"]}
        if "order" in inputs:
            # Without the id as the last criterion, records that sort equally could move from page to page.
            args["order"] = inputs["order"] if "id" in inputs["order"].replace(",", " ").split() else f"{inputs['order']}, id"
        records: list[dict[str, Any]] = []
        while len(records) <= limit:
            size = min(_PAGE, limit + 1 - len(records))
            page = self._run(inputs, "search_read", None, {**args, "offset": offset + len(records), "limit": size}, ctx)
            records += self._records(inputs, page, ctx)
            if len(page) < size:
                break
        return {"records": records[:limit], "truncated": len(records) > limit}

    def _read(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        records = self._records(inputs, self._run(inputs, "read", inputs["ids"], {"fields": inputs["fields"]}, ctx), ctx)
        positions = {number: position for position, number in enumerate(inputs["ids"])}
        return {"records": sorted(records, key=lambda record: positions.get(record.get("id"), len(positions)))}

    def _create(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        records = [self._to_odoo_values(inputs, record, ctx) for record in inputs["records"]]
        ids = self._run(inputs, "create", None, {"vals_list": records}, ctx)
        if not isinstance(ids, list) or len(ids) != len(records) or not all(isinstance(each, int) for each in ids):
            raise SystemFailure("Odoo did not return the ids of the created records.", outcome="unknown")
        return {"ids": ids}

    def _upsert(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        external_ids = [each["external_id"] for each in inputs["records"]]
        if len(set(external_ids)) != len(external_ids):
            raise ConfigError("Two of the records have the same external_id; every external_id must be unique.")
        rows = [self._to_import_row(inputs, each["values"], ctx) for each in inputs["records"]]
        columns = sorted(rows[0])
        if any(sorted(row) != columns for row in rows):
            raise ConfigError("All records of one upsert must set the same fields; use a separate call for the others.")
        data = [[name, *(row[column] for column in columns)] for name, row in zip(external_ids, rows, strict=True)]
        result = self._run(inputs, "load", None, {"fields": ["id", *columns], "data": data}, ctx)
        return {"ids": imported_ids(result)}

    def _update(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        self._run(inputs, "write", inputs["ids"], {"vals": self._to_odoo_values(inputs, inputs["values"], ctx)}, ctx)
        return {"updated": len(inputs["ids"])}

    def _delete(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        # Odoo refuses to delete records that do not exist, so a repeated call deletes only the remaining ones.
        with_archived = {**inputs, "context": {**inputs.get("context", {}), "active_test": False}}
        existing = self._run(with_archived, "search_read", None, {"domain": [["id", "in", inputs["ids"]]], "fields": ["id"]}, ctx)
        ids = [int(record["id"]) for record in _require_records(existing)]
        if ids:
            self._run(inputs, "unlink", ids, {}, ctx)
        return {"deleted": len(ids)}

    def _call(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        return {"result": self._run(inputs, inputs["method"], inputs.get("ids"), inputs.get("args", {}), ctx)}

    def _describe(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        fields = self._fetch_fields(inputs["model"], ctx)
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

    def _run(self, target: Json, method: str, ids: list[int] | None, args: Mapping[str, Any], ctx: Context) -> Any:
        """Run a method of the target's `model` in its `context`."""
        return self._server.run(Call(target["model"], method, ids, args, target.get("context", {})), ctx)

    def _records(self, target: Json, records: Any, ctx: Context) -> list[dict[str, Any]]:
        if not _require_records(records):
            return []
        fields = self._fields(target["model"], ctx)
        return [{name: to_plain(_type_of(fields, name), value) for name, value in record.items()} for record in records]

    def _to_odoo_values(self, target: Json, values: Json, ctx: Context) -> dict[str, Any]:
        fields = self._fields_for(target["model"], values, ctx)
        return {name: to_odoo(name, _type_of(fields, name), value) for name, value in values.items()}

    def _to_import_row(self, target: Json, values: Json, ctx: Context) -> dict[str, str]:
        fields = self._fields_for(target["model"], values, ctx)
        return dict(to_import_cell(name, _type_of(fields, name), value) for name, value in values.items())

    def _fields_for(self, model: str, values: Json, ctx: Context) -> dict[str, dict[str, Any]]:
        """Return the model's fields; ConfigError when `values` has a field that the model does not have."""
        fields = self._fields(model, ctx)
        missing = [name for name in values if name not in fields]
        if missing:
            raise ConfigError(f"The model {model} has no field {missing[0]!r}; the action describe lists what it has.")
        return fields

    def _fields(self, model: str, ctx: Context) -> dict[str, dict[str, Any]]:
        with self._lock:
            expires_at, fields = self._fields_by_model.get(model, (0.0, {}))
        return fields if time.monotonic() < expires_at else self._fetch_fields(model, ctx)

    def _fetch_fields(self, model: str, ctx: Context) -> dict[str, dict[str, Any]]:
        fields = self._server.run(Call(model, "fields_get", None, {"attributes": _ATTRIBUTES}), ctx)
        if not isinstance(fields, dict) or not all(isinstance(each, dict) for each in fields.values()):
            raise SystemFailure("Odoo did not return the fields of the model.")
        with self._lock:
            self._fields_by_model[model] = (time.monotonic() + _FIELDS_SECONDS, fields)
        return fields


def _type_of(fields: Mapping[str, Mapping[str, Any]], name: str) -> str:
    return str(fields.get(name, {}).get("type", ""))


def _require_records(records: Any) -> list[dict[str, Any]]:
    if not isinstance(records, list) or not all(isinstance(each, dict) for each in records):
        raise SystemFailure("Odoo did not return records.")
    return records
