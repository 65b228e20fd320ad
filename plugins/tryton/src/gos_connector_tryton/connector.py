"""The Tryton connector: each action is one call, which Tryton runs as one transaction."""

import threading
from typing import Any, ClassVar

from appliance.connectors.contract import Action, ConfigError, Connector, Context, Json, SystemFailure
from gos_connector_tryton.declaration import ACTIONS, DEFAULT_RECORDS, SETTINGS
from gos_connector_tryton.server import Server
from gos_connector_tryton.values import to_plain, to_tryton


class TrytonConnector(Connector):
    """One database of a Tryton server."""

    contract_version = 1
    name = "tryton"
    title = "Tryton"
    version = "0.1.0"
    tested_against = "trytond 8.2"
    settings_schema: ClassVar[Json] = SETTINGS
    actions: ClassVar[tuple[Action, ...]] = ACTIONS

    def __init__(self, settings: Json) -> None:
        super().__init__(settings)
        self._server = Server(settings)
        self._lock = threading.Lock()
        self._types: dict[tuple[str, str], str] = {}
        self.verbs = {
            "search": self._search, "read": self._read, "create": self._create, "update": self._update, "delete": self._delete,
            "call": self._call, "describe": self._describe,
        }  # fmt: skip

    def check(self, ctx: Context) -> str:
        self._server.run("model.res.user.get_preferences", [True, {}], ctx)
        return f"Connected to the Tryton database {self.settings['database']} as {self.settings['user']}."

    # -- the actions

    def _search(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        limit = inputs.get("limit", DEFAULT_RECORDS)
        args = [inputs.get("domain", []), inputs.get("offset", 0), limit + 1, inputs.get("order"), inputs["fields"]]
        records = self._records(self._run(inputs, "search_read", args, ctx))
        return {"records": records[:limit], "truncated": len(records) > limit}

    def _read(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        records = self._records(self._run(inputs, "read", [inputs["ids"], inputs["fields"]], ctx))
        # Tryton returns records in its own order.
        positions = {number: position for position, number in enumerate(inputs["ids"])}
        return {"records": sorted(records, key=lambda record: positions.get(record.get("id"), len(positions)))}

    def _create(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        records = [self._to_tryton_values(inputs["model"], record, ctx) for record in inputs["records"]]
        ids = self._run(inputs, "create", [records], ctx)
        if not isinstance(ids, list) or not all(isinstance(each, int) for each in ids):
            raise SystemFailure("Tryton did not return the ids of the created records.", outcome="unknown")
        return {"ids": ids}

    def _update(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        self._run(inputs, "write", [inputs["ids"], self._to_tryton_values(inputs["model"], inputs["values"], ctx)], ctx)
        return {"updated": len(inputs["ids"])}

    def _delete(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        # Tryton refuses to delete records that do not exist, so a repeated call deletes only the remaining ones.
        with_inactive = {**inputs, "context": {**inputs.get("context", {}), "active_test": False}}
        ids = self._run(with_inactive, "search", [[["id", "in", inputs["ids"]]]], ctx)
        if ids:
            self._run(inputs, "delete", [ids], ctx)
        return {"deleted": len(ids)}

    def _call(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        return {"result": to_plain(self._run(inputs, inputs["method"], list(inputs.get("args", [])), ctx))}

    def _describe(self, inputs: Json, ctx: Context) -> dict[str, Any]:
        fields = self._fields(inputs["model"], [], ctx)
        return {
            "fields": [
                {
                    "name": name, "type": str(field.get("type")), "title": str(field.get("string") or ""),
                    "required": bool(field.get("required")), "readonly": bool(field.get("readonly")),
                    **({"relation": str(field["relation"])} if field.get("relation") else {}),
                }
                for name, field in sorted(fields.items())
            ]
        }  # fmt: skip

    # -- calls

    def _run(self, target: Json, method: str, args: list[Any], ctx: Context) -> Any:
        return self._server.run(f"model.{target['model']}.{method}", [*args, dict(target.get("context", {}))], ctx)

    def _records(self, records: Any) -> list[dict[str, Any]]:
        if not isinstance(records, list) or not all(isinstance(each, dict) for each in records):
            raise SystemFailure("Tryton did not return records.")
        return [to_plain(each) for each in records]

    def _fields(self, model: str, names: list[str], ctx: Context) -> dict[str, dict[str, Any]]:
        fields = self._server.run(f"model.{model}.fields_get", [names, {}], ctx)
        if not isinstance(fields, dict) or not all(isinstance(each, dict) for each in fields.values()):
            raise SystemFailure("Tryton did not return the fields of the model.")
        return fields

    def _to_tryton_values(self, model: str, values: Json, ctx: Context) -> dict[str, Any]:
        """Convert values to Tryton's form according to the types of their fields."""
        with self._lock:
            unknown = [name for name in values if (model, name) not in self._types]
        if unknown:
            fields = self._fields(model, unknown, ctx)
            missing = [name for name in unknown if name not in fields]
            if missing:
                raise ConfigError(f"The model {model} has no field {missing[0]!r}; the action describe lists what it has.")
            with self._lock:
                self._types.update({(model, name): str(field.get("type")) for name, field in fields.items()})
        return {name: to_tryton(name, self._types.get((model, name), ""), value) for name, value in values.items()}
