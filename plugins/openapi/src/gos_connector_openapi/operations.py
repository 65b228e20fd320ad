"""The operations of a document as actions: names, effects, inputs, outputs, and the plan by which each is sent.  Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urljoin

from gos_connector_openapi.bodies import body_plan
from gos_connector_openapi.document import Document, Refused
from gos_connector_openapi.outputs import output_of
from gos_connector_openapi.pagination import paging_plan
from gos_connector_openapi.parameters import SENT_BY_US, parameter_plan
from gos_connector_openapi.samples import sample_of
from gos_connector_openapi.security import security_plan
from gos_connector_openapi.shaping import Schema, Shaper

METHODS = ("get", "head", "options", "put", "delete", "post", "patch")
_EFFECTS = {"get": "read", "head": "read", "options": "read", "put": "idempotent", "delete": "idempotent"}
_MOST_INPUT_PARTS = 2000
_MOST_OUTPUT_PARTS = 600
_LONGEST_NAME = 110
_LONGEST_SUMMARY = 300


class Reader:
    """Makes actions of a document; `settings` are those of the integration that are no secrets."""

    def __init__(self, document: Document, settings: Mapping[str, Any]) -> None:
        self._document, self._settings = document, settings
        self._inputs = Shaper(document, given=True, most_parts=_MOST_INPUT_PARTS)
        strict = settings.get("answers") == "checked"
        self._outputs = Shaper(document, given=False, most_parts=_MOST_OUTPUT_PARTS, strict=strict)
        self._names: set[str] = set()

    def read(self) -> Iterator[dict[str, Any]]:
        """Every operation as an action's parts; Refused when the document cannot be used."""
        whole = self._document.whole
        server = _server(whole.get("servers"), self._settings)
        count = 0
        for path, item in self._document.mapping(whole.get("paths")).items():
            shared = self._document.mapping(item)
            for method in METHODS:
                operation = shared.get(method)
                if isinstance(operation, Mapping) and str(path).startswith("/"):
                    count += 1
                    yield self._action(str(path), method, operation, {**shared, "default_server": server})
        if not count:
            raise Refused("The document describes no operation.")

    def _action(self, path: str, method: str, operation: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
        document = self._document
        name = self._name(operation.get("operationId"), method, path)
        parameters = [*_listed(shared.get("parameters")), *_listed(operation.get("parameters"))]
        known = {(each.get("in"), each.get("name")): each for each in map(document.mapping, parameters)}
        schema: Schema = {"type": "object", "additionalProperties": False, "properties": {}, "required": []}
        plan: dict[str, Any] = {"method": method.upper(), "path": path, "parameters": []}
        for parameter in [each for each in known.values() if _is_wanted(each)]:
            self._add_parameter(schema, plan, parameter)
        self._add_undeclared(schema, plan, path)
        if method not in ("get", "head") and (found := document.mapping(operation.get("requestBody"))):
            self._add_body(schema, plan, found)
        output = output_of(document, self._outputs, operation, held=self._settings.get("answers", "typed"))
        plan["accept"] = output.accept
        servers = operation.get("servers") or shared.get("servers")
        plan["server"] = _server(servers, self._settings) if servers else shared["default_server"]
        plan["security"] = security_plan(document, operation)
        paging = paging_plan(name, self._settings.get("paging", {}), plan, output) if method == "get" else None
        if paging is not None:
            plan["paging"] = paging
            schema["properties"][paging["input"]] = {
                "type": "integer", "minimum": 1, "maximum": 1000, "description": "Read up to this many pages and join their items."
            }  # fmt: skip
        if not schema["required"]:
            del schema["required"]
        return {
            "name": name, "summary": _summary(operation, method, path), "effect": self._effect(name, operation, method),
            "input": schema, "output": output.schema, "sample": sample_of(schema), "plan": plan,
        }  # fmt: skip

    def _name(self, given: Any, method: str, path: str) -> str:
        """A name that no other operation has; the document's own where it says one."""
        text = given if isinstance(given, str) and given.strip() else f"{method} {path}"
        text = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", text)
        name = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:_LONGEST_NAME]
        name = name if name[:1].isalpha() else f"op_{name}"
        free, number = name, 2
        while free in self._names:
            free, number = f"{name}_{number}", number + 1
        self._names.add(free)
        return free

    def _effect(self, name: str, operation: Mapping[str, Any], method: str) -> str:
        chosen = self._settings.get("effects", {})
        return str(chosen.get(name) or chosen.get(operation.get("operationId")) or _EFFECTS.get(method, "write"))

    def _add_parameter(self, schema: Schema, plan: dict[str, Any], parameter: Mapping[str, Any]) -> None:
        name, place = str(parameter["name"]), str(parameter["in"])
        member = name
        while member in schema["properties"] or member == "body":
            member = f"{member}_{place}"
        step, inner = parameter_plan(self._document, parameter)
        shaped = self._inputs.shape(inner)
        if isinstance(parameter.get("description"), str):
            shaped.setdefault("description", " ".join(parameter["description"].split())[:160])
        schema["properties"][member] = shaped
        plan["parameters"].append({"member": member, **step})
        if parameter.get("required") is True or place == "path":
            schema["required"].append(member)

    def _add_undeclared(self, schema: Schema, plan: dict[str, Any], path: str) -> None:
        """Names in the path that no parameter declares."""
        declared = {step["name"] for step in plan["parameters"] if step["in"] == "path"}
        for name in dict.fromkeys(re.findall(r"\{([^{}]+)\}", path)):
            if name not in declared:
                self._add_parameter(schema, plan, {"name": name, "in": "path", "schema": {"type": "string"}})

    def _add_body(self, schema: Schema, plan: dict[str, Any], body: Mapping[str, Any]) -> None:
        step, inner = body_plan(self._document, body)
        if step is None:
            return
        shaped = self._inputs.shape(inner) if isinstance(inner, Mapping) else {}
        plan["body"] = step
        schema["properties"]["body"] = _with_files(shaped, step)
        if body.get("required") is True:
            schema["required"].append("body")


_FILE: Schema = {
    "description": "A file: its bytes in base64, or a text.",
    "anyOf": [
        {"type": "string"},
        {
            "type": "object", "required": ["base64"], "additionalProperties": False,
            "properties": {
                "base64": {"type": "string"}, "filename": {"type": "string"}, "content_type": {"type": "string"},
            },
        },
    ],
}  # fmt: skip


def _with_files(shaped: Schema, step: Mapping[str, Any]) -> Schema:
    """The schema of a body where files are what `bodies` takes."""
    if step["kind"] == "binary":
        return {"type": "string", "description": "The bytes in base64."}
    members = shaped.get("properties", {})
    for name in step.get("files", ()):
        if name in members:
            many = members[name].get("type") == "array"
            members[name] = {"type": "array", "items": _FILE} if many else _FILE
    return shaped


def _is_wanted(parameter: Mapping[str, Any]) -> bool:
    name, place = parameter.get("name"), parameter.get("in")
    if not isinstance(name, str) or not name or place not in ("path", "query", "header", "cookie"):
        return False
    return place != "header" or name.lower() not in SENT_BY_US


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _summary(operation: Mapping[str, Any], method: str, path: str) -> str:
    told = operation.get("summary") or operation.get("description") or ""
    sentence = " ".join(str(told).split()).rstrip(".")[: _LONGEST_SUMMARY - 100]
    place = f"{method.upper()} {path}"
    old = ", deprecated" if operation.get("deprecated") is True else ""
    return f"{sentence} ({place}{old})"[:_LONGEST_SUMMARY] if sentence else f"{place}{old}"[:_LONGEST_SUMMARY]


def _server(servers: Any, settings: Mapping[str, Any]) -> str:
    """The first server's address with its variables' usual values; empty when there is none that can be used."""
    first = servers[0] if isinstance(servers, list) and servers and isinstance(servers[0], Mapping) else {}
    url = str(first.get("url", "/"))
    variables = first.get("variables")
    for name, variable in variables.items() if isinstance(variables, Mapping) else ():
        if isinstance(variable, Mapping):
            url = url.replace(f"{{{name}}}", str(variable.get("default", "")))
    base = urljoin(settings.get("document_url", ""), url)
    return base.rstrip("/") if re.fullmatch(r"https?://[^\s/?#@\\{}]+(/[^\s?#\\{}]*)?", base) else ""
