"""Converts Swagger 2.0 (https://swagger.io/specification/v2/) to OpenAPI 3, which the rest of the connector reads.  Pure.

The head of a document is converted at once, its operations one at a time.  References and their targets stay unchanged.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from gos_connector_openapi.bodies import FORM, MULTIPART, is_json
from gos_connector_openapi.document import Document, UnusableDocument

_STYLES = {"ssv": "spaceDelimited", "tsv": "tabDelimited", "pipes": "pipeDelimited"}
_NON_SCHEMA_MEMBERS = ("name", "in", "required", "description", "collectionFormat", "allowEmptyValue")
_STATUSES_WITHOUT_BODY = ("204", "205")


def convert_head(document: Document) -> Document:
    """The document with `servers` and `components.securitySchemes` added."""
    whole = document.root
    declared = whole.get("securityDefinitions")
    schemes = {name: _scheme(each) for name, each in declared.items()} if isinstance(declared, Mapping) else {}
    return Document({**whole, "servers": _servers(whole, whole.get("schemes")), "components": {"securitySchemes": schemes}})


def _scheme(declared: Any) -> Any:
    """Only `basic` has another name in OpenAPI 3; every flow of OAuth 2 ends in a bearer token."""
    if isinstance(declared, Mapping) and declared.get("type") == "basic":
        return {"type": "http", "scheme": "basic"}
    return declared


def _servers(whole: Mapping[str, Any], schemes: Any) -> list[dict[str, str]]:
    """The servers; without a host or scheme, the address is relative to the one the document was fetched from."""
    host, base = str(whole.get("host") or "").strip(), str(whole.get("basePath") or "").strip().strip("/")
    offered = schemes if isinstance(schemes, list) else []
    scheme = next((f"{each}:" for each in ("https", "http") if each in offered), "")
    if "://" in host:  # violates the specification, but is unambiguous
        scheme, _, host = host.rpartition("//")
    return [{"url": f"{scheme}//{host}/{base}" if host else f"/{base}"}]


def convert_operation(
    document: Document, pointer: str, item: Mapping[str, Any], operation: Mapping[str, Any]
) -> dict[str, Any]:
    """The operation including the parameters of its path; `pointer` is its JSON Pointer.

    UnusableDocument, with the pointer, for anything that OpenAPI 3 cannot express.
    """
    whole = document.root
    consumes = _media_types(operation.get("consumes", whole.get("consumes")))
    produces = _media_types(operation.get("produces", whole.get("produces")))
    parameters = _parameters(document, pointer, item, operation)
    converted = {
        **operation,
        "parameters": [_parameter(where, each) for where, each in parameters if each.get("in") not in ("body", "formData")],
        "responses": {
            str(status): _response(document.mapping(each), str(status), produces)
            for status, each in document.mapping(operation.get("responses")).items()
        },
    }
    form = [(where, each) for where, each in parameters if each.get("in") == "formData"]
    if form:
        converted["requestBody"] = _form(form, consumes)
    for _, body in (each for each in parameters if each[1].get("in") == "body"):
        converted["requestBody"] = _body(body, consumes)
    if "schemes" in operation:
        converted["servers"] = _servers(whole, operation["schemes"])
    return converted


def _parameters(
    document: Document, pointer: str, item: Mapping[str, Any], operation: Mapping[str, Any]
) -> list[tuple[str, Mapping[str, Any]]]:
    """The parameters of the path, overridden by the operation's own, each with its pointer."""
    by_key: dict[tuple[str, str], tuple[str, Mapping[str, Any]]] = {}
    for holder, place in ((item, pointer.rpartition("/")[0]), (operation, pointer)):
        listed = holder.get("parameters")
        bodies: list[str] = []
        for index, each in enumerate(listed if isinstance(listed, list) else []):
            parameter, where = document.mapping(each), f"{place}/parameters/{index}"
            kind = str(parameter.get("in"))
            if kind == "body":
                bodies.append(where)
            by_key[kind, "" if kind == "body" else str(parameter.get("name"))] = (where, parameter)
        if len(bodies) > 1:
            raise UnusableDocument(f"The document gives one operation a second body at {bodies[1]}; remove it.")
    kinds = {kind for kind, _ in by_key}
    if {"body", "formData"} <= kinds:
        where = next(where for where, each in by_key.values() if each.get("in") == "body")
        raise UnusableDocument(f"The document gives one operation both a form and a body at {where}; remove one of them.")
    return list(by_key.values())


def _parameter(pointer: str, parameter: Mapping[str, Any]) -> dict[str, Any]:
    common = {name: parameter[name] for name in ("name", "in", "required", "description") if name in parameter}
    return {**common, "schema": parameter.get("schema", _schema(parameter)), **_style(pointer, parameter)}


def _schema(parameter: Mapping[str, Any]) -> dict[str, Any]:
    if parameter.get("type") == "file":
        return {"type": "string", "format": "binary"}
    return {name: value for name, value in parameter.items() if name not in _NON_SCHEMA_MEMBERS}


def _style(pointer: str, parameter: Mapping[str, Any]) -> dict[str, Any]:
    """The style in which a list is serialized; empty for any other value."""
    if parameter.get("type") != "array":
        return {}
    items = parameter.get("items")
    if isinstance(items, Mapping) and items.get("type") == "array":
        raise UnusableDocument(
            f"The document has a list of lists at {pointer}/items, which parameters cannot carry; "
            "remove it, or choose other operations with only_tags and only_paths."
        )
    how = parameter.get("collectionFormat")
    if how == "multi" and parameter.get("in") in ("query", "formData"):
        return {"style": "form", "explode": True}
    return {"style": _STYLES[how], "explode": False} if how in _STYLES else {"explode": False}


def _body(parameter: Mapping[str, Any], consumes: Iterable[str]) -> dict[str, Any]:
    content = {media: {"schema": parameter.get("schema", {})} for media in consumes or ["application/json"]}
    return {"required": parameter.get("required") is True, "content": content}


def _form(parameters: list[tuple[str, Mapping[str, Any]]], consumes: Iterable[str]) -> dict[str, Any]:
    """The request body of a form, with its fields as members; a file requires multipart, whatever the document says."""
    fields = [each for _, each in parameters]
    offered = [media.split(";")[0].strip().lower() for media in consumes]
    is_multipart = any(each.get("type") == "file" for each in fields) or (MULTIPART in offered and FORM not in offered)
    members: dict[str, Any] = {}
    styles: dict[str, Any] = {}
    for pointer, each in parameters:
        name, described = str(each.get("name")), each.get("description")
        members[name] = _schema(each) | ({"description": described} if described else {})
        if style := _style(pointer, each):
            styles[name] = {"style": "form", **style}
    required = [str(each.get("name")) for each in fields if each.get("required") is True]
    schema = {"type": "object", "properties": members, "required": required}
    content = {MULTIPART if is_multipart else FORM: {"schema": schema, "encoding": styles}}
    return {"required": bool(required), "content": content}


def _response(response: Mapping[str, Any], status: str, produces: list[str]) -> dict[str, Any]:
    """The response; documents often omit the schema of an actual answer, so that a missing schema accepts anything."""
    common = {"description": "", "headers": response.get("headers", {})}
    schema = response.get("schema")
    if status in _STATUSES_WITHOUT_BODY:
        return common
    if schema is None:
        media = next(filter(is_json, produces), "*/*")
        return {**common, "content": {media: {}}}
    if isinstance(schema, Mapping) and schema.get("type") == "file":
        return {**common, "content": {media: {} for media in produces or ["*/*"]}}
    return {**common, "content": {media: {"schema": schema} for media in produces or ["application/json"]}}


def _media_types(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
