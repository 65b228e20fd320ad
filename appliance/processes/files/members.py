"""The settings of `file` and `ocr` steps as JSON Schemas: used by the parser, by editors, and on evaluated expressions."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from appliance.core.json_schema import Schema, compile_schema
from appliance.processes.definitions.reader import Reader, pointer_token
from appliance.processes.definitions.schema_parts import FLAG, INTERPOLATED, TEXT, JsonSchema, integer, list_of, object_schema
from appliance.processes.definitions.template import Template

Variant = tuple[str, str | None]  # operation and format
OPERATIONS = ("parse", "write", "convert", "zip", "unzip")
CONSTANT = ("operation", "format", "to", "as")  # no expressions, because they determine the other settings
ROW_FORMATS = ("csv", "xlsx", "ndjson", "json", "xml")
MOST_DOCUMENTS = 100

_DOCUMENT: JsonSchema = {
    "anyOf": [TEXT, {"type": "object", "required": ["id"]}],
    "description": "The id of a document, or an object with an `id`, such as the output of another step.",
}
_ENCODING: JsonSchema = {"type": "string", "minLength": 1, "maxLength": 40, "description": "utf-8, cp1252, …; detected by default."}
_SIGN: JsonSchema = {"type": "string", "minLength": 1, "maxLength": 1, "not": {"enum": ["\n", "\r", " "]}}
_NAMES = list_of({"type": "string"}, minItems=1, maxItems=16_384)
_TYPES = {"type": "object", "additionalProperties": {"enum": ["text", "integer", "number", "boolean"]}}
_PLACE: JsonSchema = {"folder": {"type": "string"}, "tags": list_of(TEXT, maxItems=50)}
_DOCUMENT_MEMBERS: JsonSchema = {"name": TEXT, **_PLACE}
_READ: JsonSchema = {"document": _DOCUMENT, "revision": integer(1, 1_000_000_000)}
_TABLE: JsonSchema = {"header": {"anyOf": [FLAG, _NAMES]}, "types": _TYPES}
_TO: JsonSchema = object_schema(
    {
        "collection": TEXT,
        "key": list_of(TEXT, minItems=1),
        "fields": {"type": "object", "minProperties": 1, "additionalProperties": TEXT},
        "on_error": {"enum": ["refuse", "report"]},
    },
    ("collection",),
)
_TARGET: JsonSchema = {"to": _TO, "as": {"const": "document"}, **_DOCUMENT_MEMBERS}
_PARSE: Mapping[str, JsonSchema] = {
    "csv": {"encoding": _ENCODING, "delimiter": _SIGN, "quote": {"anyOf": [_SIGN, {"const": ""}]}, **_TABLE},
    "xlsx": {"sheet": {"anyOf": [TEXT, integer(1, 10_000)]}, **_TABLE},
    "json": {"encoding": _ENCODING, "each": FLAG},
    "ndjson": {"encoding": _ENCODING},
    "xml": {"encoding": _ENCODING, "each": TEXT, "lists": list_of(TEXT)},
    "text": {"encoding": _ENCODING},
    "pdf": {"pages": TEXT},
}
_WRITE: Mapping[str, JsonSchema] = {
    "csv": {
        "columns": _NAMES, "header": FLAG, "delimiter": _SIGN, "quote": _SIGN, "encoding": _ENCODING,
        "formulas": {"enum": ["escape", "keep"]}, "line_end": {"enum": ["\r\n", "\n"]},
    },
    "xlsx": {"columns": _NAMES, "header": FLAG, "sheet": TEXT},
    "json": {"indent": integer(0, 8)},
    "ndjson": {},
    "xml": {"root": TEXT, "row": TEXT},
    "text": {"encoding": _ENCODING},
}  # fmt: skip
_CONVERT: JsonSchema = {
    "document": _DOCUMENT, "revision": integer(1, 1_000_000_000), "content": {"type": "string"},
    "from": {"enum": ["markdown", "html", "text"]}, "encoding": _ENCODING, "title": {"type": "string"},
    "language": {"type": "string", "pattern": "^[a-z]{2,3}$"}, **_DOCUMENT_MEMBERS,
}  # fmt: skip
_PAPER: JsonSchema = {"paper": {"enum": ["a4", "a3", "a5", "letter", "legal"]}, "landscape": FLAG, "page_numbers": FLAG}
OCR: JsonSchema = {
    **_READ,
    "languages": list_of({"type": "string", "pattern": "^[a-z]{2}$"}, minItems=1),
    "pages": TEXT,
    "dpi": integer(72, 600),
    "min_confidence": {"type": "number", "minimum": 0, "maximum": 1},
    "boxes": FLAG,
}


def _variants() -> dict[Variant, JsonSchema]:
    """The settings allowed for each operation and format."""
    anything: JsonSchema = {}
    variants: dict[Variant, JsonSchema] = {
        ("zip", None): object_schema(
            {"documents": list_of(_DOCUMENT, minItems=1, maxItems=MOST_DOCUMENTS), **_DOCUMENT_MEMBERS}, ("documents", "name")
        ),
        ("unzip", None): object_schema({**_READ, "only": list_of(TEXT, minItems=1), **_PLACE}, ("document",)),
        ("convert", "pdf"): object_schema({**_CONVERT, **_PAPER}, ("format", "name")),
        ("convert", "html"): object_schema(_CONVERT, ("format", "name")),
        ("parse", None): object_schema({**_READ, **_TARGET}, ("document",)),
    }
    for form, options in _PARSE.items():
        variants["parse", form] = object_schema({**_READ, **(_TARGET if form in ROW_FORMATS else {}), **options}, ("document",))
    for form, options in _WRITE.items():
        variants["write", form] = object_schema({"data": anything, **_DOCUMENT_MEMBERS, **options}, ("format", "data", "name"))
    return variants


VARIANTS = _variants()
FORMATS = {operation: tuple(form for name, form in VARIANTS if name == operation and form) for operation in OPERATIONS}


def options_of(operation: str, form: str) -> frozenset[str]:
    """The names of the settings that are passed to the formats worker."""
    members = {"parse": _PARSE, "write": _WRITE}.get(operation, {}).get(form)
    if members is None:
        members = OCR if operation == "ocr" else {**_CONVERT, **_PAPER}
    return frozenset(members) - {"document", "revision", "content", "boxes", *_DOCUMENT_MEMBERS}


# -- the parser


_DYNAMIC = re.compile(INTERPOLATED["pattern"])


def parse_file_step(reader: Reader, value: Any, pointer: str) -> tuple[dict[str, Any], dict[str, Template]]:
    """Parses a `file` step into its constant settings and the template of the others."""
    if "operation" not in value:
        reader.problem(f"{pointer}/operation", "'operation' is required")
        return {}, {}
    operation, form = value["operation"], value.get("format")
    if not isinstance(operation, str) or operation not in OPERATIONS:
        reader.problem(f"{pointer}/operation", f"this must be one of {', '.join(OPERATIONS)}")
        return {}, {}
    formats = FORMATS[operation]
    if "format" in value and formats and form not in formats:
        reader.problem(f"{pointer}/format", f"this must be one of {', '.join(formats)}")
        return {}, {}
    if formats and (operation, form) not in VARIANTS:
        reader.problem(f"{pointer}/format", "'format' is required")
        return {}, {}
    _check_literals(reader, value, pointer, VARIANTS[operation, form if formats else None])
    _check_combinations(reader, operation, value, pointer)
    rest = {name: each for name, each in value.items() if name not in CONSTANT}
    settings = {name: value[name] for name in CONSTANT if name in value}
    return settings, {"arguments": reader.template(rest, pointer)}


def parse_ocr_step(reader: Reader, value: Any, pointer: str) -> tuple[dict[str, Any], dict[str, Template]]:
    _check_literals(reader, value, pointer, object_schema(OCR, ("document",)))
    return {}, {"arguments": reader.template(value, pointer)}


def _check_literals(reader: Reader, value: dict[str, Any], pointer: str, allowed: JsonSchema) -> None:
    """Validates literal values; expressions are validated once they have a value."""
    fixed = ("operation", "format") if allowed["properties"] is not OCR else ()
    names = (*fixed, *allowed["properties"])
    if "operation" in fixed and not FORMATS.get(value["operation"]):
        names = tuple(name for name in names if name != "format")
    members = reader.mapping(value, pointer, names, tuple(allowed.get("required", ())))
    for name, each in members.items():
        if name not in allowed["properties"] or (isinstance(each, str) and name not in CONSTANT and _DYNAMIC.search(each)):
            continue
        at = f"{pointer}/{pointer_token(name)}"
        for detail in _member(name, repr(allowed["properties"][name])).problems(each):
            reader.problem(f"{at}{detail.pointer}", detail.message)


def _check_combinations(reader: Reader, operation: str, value: dict[str, Any], pointer: str) -> None:
    if operation == "convert" and ("document" in value) == ("content" in value):
        reader.problem(pointer, "give either a `document` or `content`")
    if operation != "parse":
        return
    if "to" in value and "as" in value:
        reader.problem(f"{pointer}/as", "use either `to` (a collection) or `as` (a document)")
    for name in _DOCUMENT_MEMBERS:
        if name in value and "as" not in value:
            reader.problem(f"{pointer}/{name}", f"`{name}` needs `as: document`")


_SHAPES: dict[str, JsonSchema] = {}


def _member(name: str, key: str) -> Schema:
    """The compiled schema of a setting, shared by the variants that have it."""
    return _compiled(key)


@cache
def _compiled(key: str) -> Schema:
    return compile_schema(_SHAPES[key])


for _shape in (*VARIANTS.values(), object_schema(OCR)):
    for _each in _shape["properties"].values():
        _SHAPES[repr(_each)] = _each


# -- when the step runs


@cache
def _compile_variant(variant: Variant) -> Schema:
    allowed = object_schema(OCR, ("document",)) if variant[0] == "ocr" else VARIANTS[variant]
    needed = [name for name in allowed.get("required", ()) if name != "format"]
    return compile_schema({**allowed, "required": needed})


def check_members(variant: Variant, members: Mapping[str, Any]) -> list[str]:
    """The problems of the evaluated settings, each as `name: message`."""
    details = _compile_variant(variant).problems(dict(members))
    return [f"{detail.pointer.lstrip('/') or 'the step'}: {detail.message}" for detail in details]


# -- the published schema


def file_schema() -> JsonSchema:
    """The schema of a `file` step for editors; the allowed settings depend on operation and format."""
    cases = []
    for operation in OPERATIONS:
        formats = FORMATS[operation]
        inner = [
            {"if": {"properties": {"format": {"const": form}}, "required": ["format"]}, "then": _variant_schema(operation, form)}
            for form in formats
        ]
        then: JsonSchema = (
            {"allOf": inner, "properties": {"format": {"enum": list(formats)}}} if formats else _variant_schema(operation, None)
        )
        if operation == "parse":
            inner.append({"if": {"not": {"required": ["format"]}}, "then": _variant_schema(operation, None)})
        elif formats:
            then["required"] = ["format"]
        cases.append({"if": {"properties": {"operation": {"const": operation}}}, "then": then})
    return {"type": "object", "required": ["operation"], "properties": {"operation": {"enum": list(OPERATIONS)}}, "allOf": cases}


def ocr_schema() -> JsonSchema:
    return object_schema({name: {"anyOf": [INTERPOLATED, each]} for name, each in OCR.items()}, ("document",))


def _variant_schema(operation: str, form: str | None) -> JsonSchema:
    allowed = VARIANTS[operation, form]
    members: JsonSchema = {"operation": {"const": operation}} | ({"format": {"const": form}} if form else {})
    for name, each in allowed["properties"].items():
        members[name] = each if name in CONSTANT or not each else {"anyOf": [INTERPOLATED, each]}
    schema = object_schema(members, tuple(allowed["required"]))
    if operation == "convert":
        schema["oneOf"] = [{"required": ["document"]}, {"required": ["content"]}]
    if "to" in members:
        schema["not"] = {"required": ["to", "as"]}
        schema["dependentRequired"] = {name: ["as"] for name in _DOCUMENT_MEMBERS}
    return schema
