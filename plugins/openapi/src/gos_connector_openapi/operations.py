"""Turns a document's operations into actions: name, effect, input, output, and the plan for sending the request.  Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urljoin

from gos_connector_openapi.bodies import body_plan
from gos_connector_openapi.document import CHOOSE_OPERATIONS, Document, UnusableDocument
from gos_connector_openapi.outputs import output_of
from gos_connector_openapi.pagination import paging_plan
from gos_connector_openapi.parameters import SENT_BY_US, parameter_plan
from gos_connector_openapi.samples import sample_of
from gos_connector_openapi.security import security_plan
from gos_connector_openapi.shaping import Schema, Shaper
from gos_connector_openapi.swagger import convert_head, convert_operation

METHODS = ("get", "head", "options", "put", "delete", "post", "patch")
_EFFECTS = {"get": "read", "head": "read", "options": "read", "put": "idempotent", "delete": "idempotent"}
MAX_OPERATIONS = 5000
_MAX_TAGS_LISTED = 8
_MAX_FULL_OPERATIONS, _FULL_SCHEMAS = 1250, 1000  # what more operations have together fits into an answer of the worker
_MAX_INPUT_PARTS = 2000
_MAX_OUTPUT_PARTS = 600
_MAX_NAME_LENGTH = 110
_MAX_SUMMARY_LENGTH = 300


LocatedOperation = tuple[str, str, Mapping[str, Any], Mapping[str, Any]]
"""A path, a method, its operation, and the path item."""


class Reader:
    """Turns a document into actions; `settings` are the integration's settings without secrets."""

    def __init__(self, document: Document, settings: Mapping[str, Any]) -> None:
        document = convert_head(document) if document.is_swagger else document
        self._document, self._settings = document, settings
        self._inputs, self._outputs = self._make_shapers(1)
        self._names: set[str] = set()

    def read(self) -> Iterator[dict[str, Any]]:
        """The parts of an action for every operation that the settings select; UnusableDocument when there are none."""
        document = self._document
        server = _server(document.root.get("servers"), self._settings)
        chosen = self._choose()
        self._inputs, self._outputs = self._make_shapers(len(chosen))
        for path, method, operation, item in chosen:
            shared = {**item, "default_server": server}
            if document.is_swagger:
                pointer = f"/paths/{path.replace('~', '~0').replace('/', '~1')}/{method}"
                operation, shared["parameters"] = convert_operation(document, pointer, item, operation), []  # noqa: PLW2901
            yield self._action(path, method, operation, shared)

    def _make_shapers(self, count: int) -> tuple[Shaper, Shaper]:
        """The shapers of inputs and outputs; beyond `_MOST_AT_FULL_LENGTH` operations each schema gets fewer parts."""
        share = 1.0 if count <= _MAX_FULL_OPERATIONS else _FULL_SCHEMAS / count
        inputs = Shaper(self._document, for_input=True, max_parts=int(_MAX_INPUT_PARTS * share))
        strict = self._settings.get("answers") == "checked"
        return inputs, Shaper(self._document, for_input=False, max_parts=int(_MAX_OUTPUT_PARTS * share), strict=strict)

    def _choose(self) -> list[LocatedOperation]:
        """The selected operations; UnusableDocument when there are none or too many, before any schema is built."""
        operations = list(self._find_operations())
        if not operations:
            raise UnusableDocument("The document describes no operation.")
        chosen = [each for each in operations if self._is_chosen(each[0], each[2])]
        if not chosen:
            raise UnusableDocument(
                f"only_tags and only_paths leave none of the document's {len(operations)} operations. {_name_tags(operations)}"
            )
        if len(chosen) > MAX_OPERATIONS:
            raise UnusableDocument(
                f"{len(chosen)} operations are selected; an integration can have at most {MAX_OPERATIONS}: "
                f"{CHOOSE_OPERATIONS}. {_name_tags(chosen)}"
            )
        return chosen

    def _find_operations(self) -> Iterator[LocatedOperation]:
        for path, item in self._document.mapping(self._document.root.get("paths")).items():
            shared = self._document.mapping(item)
            for method in METHODS:
                operation = shared.get(method)
                if isinstance(operation, Mapping) and str(path).startswith("/"):
                    yield str(path), method, operation, shared

    def _is_chosen(self, path: str, operation: Mapping[str, Any]) -> bool:
        tags, paths = self._settings.get("only_tags"), self._settings.get("only_paths")
        if tags and not set(tags).intersection(_tags_of(operation)):
            return False
        return not paths or any(f"{path}/".startswith(f"{each.rstrip('/')}/") for each in paths)

    def _action(self, path: str, method: str, operation: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
        document = self._document
        name = self._name(operation.get("operationId"), method, path)
        parameters = [*_as_list(shared.get("parameters")), *_as_list(operation.get("parameters"))]
        by_name = {(each.get("in"), each.get("name")): each for each in map(document.mapping, parameters)}
        schema: Schema = {"type": "object", "additionalProperties": False, "properties": {}, "required": []}
        plan: dict[str, Any] = {"method": method.upper(), "path": path, "parameters": []}
        for parameter in [each for each in by_name.values() if _is_offered(each)]:
            self._add_parameter(schema, plan, parameter)
        self._add_undeclared(schema, plan, path)
        if method not in ("get", "head") and (body := document.mapping(operation.get("requestBody"))):
            self._add_body(schema, plan, body)
        output = output_of(document, self._outputs, operation, checking=self._settings.get("answers", "typed"))
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

    def _name(self, operation_id: Any, method: str, path: str) -> str:
        """A unique action name, from the operationId where there is one, else from method and path."""
        text = operation_id if isinstance(operation_id, str) and operation_id.strip() else f"{method} {path}"
        text = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", text)
        name = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:_MAX_NAME_LENGTH]
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
        """Add the names in the path that no parameter declares."""
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
    "description": "A file: its bytes in base64, or text.",
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
    """The schema of a body with its files in the form that `write_body` accepts."""
    if step["kind"] == "binary":
        return {"type": "string", "description": "The bytes in base64."}
    members = shaped.get("properties", {})
    for name in step.get("files", ()):
        if name in members:
            many = members[name].get("type") == "array"
            members[name] = {"type": "array", "items": _FILE} if many else _FILE
    return shaped


def _is_offered(parameter: Mapping[str, Any]) -> bool:
    name, place = parameter.get("name"), parameter.get("in")
    if not isinstance(name, str) or not name or place not in ("path", "query", "header", "cookie"):
        return False
    return place != "header" or name.lower() not in SENT_BY_US


def _tags_of(operation: Mapping[str, Any]) -> list[str]:
    return [each for each in _as_list(operation.get("tags")) if isinstance(each, str)]


def _name_tags(operations: Iterable[LocatedOperation]) -> str:
    """A sentence with the most frequent tags and how many operations have each."""
    counted = Counter(tag for _, _, operation, _ in operations for tag in _tags_of(operation))
    if not counted:
        return "They have no tags."
    names = ", ".join(f"{tag[:60]} ({count})" for tag, count in counted.most_common(_MAX_TAGS_LISTED))
    more = len(counted) - _MAX_TAGS_LISTED
    return f"Their tags: {names}{f' and {more} more' if more > 0 else ''}."


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _summary(operation: Mapping[str, Any], method: str, path: str) -> str:
    text = operation.get("summary") or operation.get("description") or ""
    sentence = " ".join(str(text).split()).rstrip(".")[: _MAX_SUMMARY_LENGTH - 100]
    place = f"{method.upper()} {path}"
    old = ", deprecated" if operation.get("deprecated") is True else ""
    return f"{sentence} ({place}{old})"[:_MAX_SUMMARY_LENGTH] if sentence else f"{place}{old}"[:_MAX_SUMMARY_LENGTH]


def _server(servers: Any, settings: Mapping[str, Any]) -> str:
    """The first server's address with the default values of its variables; empty when there is no usable one."""
    first = servers[0] if isinstance(servers, list) and servers and isinstance(servers[0], Mapping) else {}
    url = str(first.get("url", "/"))
    variables = first.get("variables")
    for name, variable in variables.items() if isinstance(variables, Mapping) else ():
        if isinstance(variable, Mapping):
            url = url.replace(f"{{{name}}}", str(variable.get("default", "")))
    base = urljoin(settings.get("document_url", "https:"), url)
    return base.rstrip("/") if re.fullmatch(r"https?://[^\s/?#@\\{}]+(/[^\s?#\\{}]*)?", base) else ""
