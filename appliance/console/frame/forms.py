"""Forms from JSON Schema: builds the fields, parses a submitted form to JSON, and shows errors next to their fields."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from appliance.core.errors import Detail
from appliance.core.sentences import Sentence
from appliance.core.texts import gettext as _
from appliance.core.texts import translate

from .routing import Form

MAX_DEPTH = 4
MAX_OPTIONS = 200
LONG_TEXT = 320  # The maximum length of an e-mail address; anything up to that gets a one-line field.
SHORT = 12
PREFIX = "in"
_LONG_WORDS = re.compile(r"\b(csv|text|body|content|lines|document|markdown|html|xml)\b", re.IGNORECASE)
_INTEGER = re.compile(r"[+-]?\d{1,400}")
_KINDS = {"integer": "integer", "number": "number", "boolean": "checkbox", "string": "text"}
_FORMATS = {"date": "date", "email": "email", "uri": "url", "time": "time"}


@dataclass
class Field:
    """One field or a group of fields; `value` is the text in the field, `error` the message next to it."""

    pointer: str
    label: str
    kind: str
    required: bool = False
    help: str = ""
    options: Sequence[tuple[str, str]] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    children: "list[Field]" = field(default_factory=list)
    schema: Mapping[str, Any] = field(default_factory=dict)
    value: str = ""
    error: str = ""
    secret_state: str = ""
    is_unchosen: bool = False

    @property
    def name(self) -> str:
        return f"{PREFIX}{self.pointer}"

    @property
    def is_secret(self) -> bool:
        """Whether the value is stored encrypted and never shown; `kept` then says where the current value comes from."""
        return self.schema.get("secret") is True

    @property
    def is_short(self) -> bool:
        """Whether this is a group of two to four short fields, which the page shows side by side."""
        numbers = ("integer", "number")
        plain = (each.kind in numbers or int(each.attributes.get("maxlength", SHORT + 1)) <= SHORT for each in self.children)
        return all(plain) and 1 < len(self.children) <= 4

    @property
    def only_for(self) -> str:
        """The values of sibling fields for which this field applies, as `name=value,value;…`; empty when it always applies."""
        only_for = self.schema.get("only_for")
        above = self.pointer.rpartition("/")[0]
        pairs = only_for.items() if isinstance(only_for, Mapping) else ()
        return ";".join(f"{PREFIX}{above}/{_token(name)}={','.join(map(json.dumps, values))}" for name, values in pairs)

    @property
    def rows(self) -> int:
        """The height of a text area that suits its value, in lines."""
        return min(max(self.value.count("\n") + 2, 3 if self.kind in ("pairs", "json") else 5), 16)

    def walk(self) -> "Iterator[Field]":
        yield self
        for child in self.children:
            yield from child.walk()


class InputForm:
    """The fields of a schema; with `whole` the form is a single JSON text instead."""

    def __init__(self, schema: Any, whole: bool = False) -> None:
        self.schema: Mapping[str, Any] = schema if isinstance(schema, Mapping) else {}
        self.whole = whole or not _has_fields(self.schema)
        text = Field("", _("Input"), "json", True, schema=self.schema)
        self.root = text if self.whole else _build_field("", _("Input"), self.schema, True, 0)
        self.problems: list[Detail] = []
        self.general: list[Detail] = []

    @property
    def fields(self) -> list[Field]:
        return [self.root] if self.whole else self.root.children

    def all_fields(self) -> Iterator[Field]:
        return self.root.walk()

    @property
    def has_example(self) -> bool:
        return bool(_examples(self.schema)) or any(_examples(field.schema) for field in self.all_fields())

    def example(self) -> Any:
        """The schema's first example, or one composed of the examples and defaults of its members."""
        examples = _examples(self.schema)
        return examples[0] if examples else _sample(self.schema, 0)

    def defaults(self) -> Any:
        """The input that consists of the schema's defaults."""
        return _defaults(self.schema, 0) or {}

    def fill(self, value: Any) -> None:
        """Fill the fields from a JSON value."""
        _fill(self.root, value)

    def show_errors(self, details: Sequence[Detail]) -> None:
        """Show each error at the innermost field that its pointer names; errors without a field go to `general`."""
        for detail in details:
            owners = [f for f in self.all_fields() if f.kind != "group" and _is_inside(detail.pointer, f.pointer)]
            if not owners:
                self.general.append(detail)
                continue
            owner = max(owners, key=lambda each: len(each.pointer))
            inner = detail.pointer.removeprefix(owner.pointer)
            text = f"{inner}: {translate(detail.message)}" if inner else translate(detail.message)
            owner.error = f"{owner.error} {text}".strip()


def _has_fields(schema: Mapping[str, Any]) -> bool:
    """Whether the input can be shown as fields: the schema has properties, or allows none at all."""
    properties = schema.get("properties")
    return isinstance(properties, Mapping) and (bool(properties) or schema.get("additionalProperties") is False)


def _is_inside(pointer: str, outer: str) -> bool:
    return pointer == outer or pointer.startswith(f"{outer}/")


def _examples(schema: Mapping[str, Any]) -> list[Any]:
    examples = schema.get("examples")
    return examples if isinstance(examples, list) else []


def _type_of(schema: Mapping[str, Any]) -> str:
    """The only type of a schema besides null; empty when there are several or none."""
    raw = schema.get("type")
    types = [raw] if isinstance(raw, str) else [t for t in raw if t != "null"] if isinstance(raw, list) else []
    return str(types[0]) if len(types) == 1 else ""


def _build_field(pointer: str, name: str, schema: Mapping[str, Any], required: bool, depth: int) -> Field:
    label = str(schema.get("title") or name)
    result = Field(pointer, label, "json", required, str(schema.get("description") or ""), schema=schema)
    kind = "object" if depth == 0 else _type_of(schema)
    options = _options(schema)
    properties = schema.get("properties")
    if 0 < len(options) <= MAX_OPTIONS:
        result.kind, result.options = "select", options
    elif kind == "object" and isinstance(properties, Mapping) and properties and depth < MAX_DEPTH:
        result.kind = "group"
        needed = schema.get("required")
        result.children = [
            _build_field(f"{pointer}/{_token(key)}", key, member, isinstance(needed, list) and key in needed, depth + 1)
            for key, member in properties.items()
            if isinstance(member, Mapping)
        ]
    elif kind in _KINDS and not any(name in schema for name in ("oneOf", "anyOf", "allOf", "$ref")):
        _complete_plain_field(result, kind, name)
    elif kind == "object" and not properties and _is_of_texts(schema.get("additionalProperties")):
        result.kind, result.help = "pairs", f"{result.help} {_('One per line, as name: value.')}".strip()
    return result


def _options(schema: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The options of an `enum`, or of a `oneOf` of constants with titles, as (JSON value, label)."""
    listed = schema.get("enum")
    if isinstance(listed, list):
        return [(json.dumps(value), value if isinstance(value, str) else json.dumps(value)) for value in listed]
    choices = schema.get("oneOf")
    if isinstance(choices, list) and all(isinstance(each, Mapping) and "const" in each for each in choices):
        return [(json.dumps(each["const"]), str(each.get("title", each["const"]))) for each in choices]
    return []


def _is_of_texts(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "string" and not schema.get("secret")


def _complete_plain_field(target: Field, kind: str, name: str) -> None:
    schema = target.schema
    target.kind = _KINDS[kind]
    if kind == "boolean" and not target.required and "default" not in schema:
        target.kind, target.options = "select", [("true", _("yes")), ("false", _("no"))]
    if kind == "string" and target.is_secret:
        target.kind = "secret_text" if _is_key_text(target.schema, name) else "password"
    elif kind == "string":
        target.kind = "textarea" if _is_long(schema, name) else _FORMATS.get(str(schema.get("format")), "text")
    if kind in ("number", "integer"):
        # Not type=number: a browser submits an unreadable number as an empty field, so the error would go unnoticed.
        target.attributes = {"inputmode": "numeric" if kind == "integer" else "decimal"}
    elif target.kind == "text" and isinstance(schema.get("maxLength"), int):
        target.attributes = {"maxlength": str(schema["maxLength"])}


def _is_key_text(schema: Mapping[str, Any], name: str) -> bool:
    """Whether a secret has several lines, such as a PEM key, which a password field would join."""
    return "PEM" in str(schema.get("description", "")) or "private_key" in name


def _is_long(schema: Mapping[str, Any], name: str) -> bool:
    if "PEM" in str(schema.get("description", "")):
        return True
    if "contentMediaType" in schema or schema.get("format") in ("csv", "textarea", "multiline"):
        return True
    longest = schema.get("maxLength")
    if isinstance(longest, int):
        return longest > LONG_TEXT
    several_lines = any(isinstance(example, str) and "\n" in example for example in _examples(schema))
    return several_lines or bool(_LONG_WORDS.search(name.replace("_", " ")))


def _token(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def pointer_parts(pointer: str) -> list[str]:
    """The unescaped segments of a JSON pointer, outermost first."""
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def member_of(pointer: str) -> str:
    """The last segment of a JSON pointer."""
    return pointer_parts(pointer)[-1]


def _defaults(schema: Mapping[str, Any], depth: int) -> Any:
    if "default" in schema:
        return schema["default"]
    return _from_members(schema, depth, _defaults)


def _sample(schema: Mapping[str, Any], depth: int) -> Any:
    examples = _examples(schema)
    return examples[0] if examples else schema["default"] if "default" in schema else _from_members(schema, depth, _sample)


def _from_members(schema: Mapping[str, Any], depth: int, of: Any) -> Any:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or depth > MAX_DEPTH:
        return None
    values = {name: of(member, depth + 1) for name, member in properties.items() if isinstance(member, Mapping)}
    return {name: value for name, value in values.items() if value is not None} or None


def _fill(target: Field, value: Any) -> None:
    if target.kind == "group":
        members = value if isinstance(value, Mapping) else {}
        for child in target.children:
            _fill(child, members.get(member_of(child.pointer)))
    elif value is None:
        target.value = "{}" if target.pointer == "" else ""
    elif target.is_secret and isinstance(value, Mapping):
        target.value = ""
    elif target.kind == "pairs" and isinstance(value, Mapping):
        target.value = "\n".join(f"{name}: {text}" for name, text in value.items())
    elif target.kind == "json" and isinstance(value, str) and _takes_text(target.schema) and not _is_json(value):
        target.value = value
    elif target.kind == "json":
        target.value = json.dumps(value, ensure_ascii=False, indent=2)
    elif target.kind == "select" or not isinstance(value, str):
        target.value = json.dumps(value)
    else:
        target.value = value
        if target.kind == "text" and "\n" in value:
            target.kind = "textarea"  # A one-line field would drop the line breaks.


def read_form(form: InputForm, sent: Form) -> Any:
    """The JSON value that was submitted; `form` keeps the entered texts and collects parse errors in `problems`."""
    value = _read(form, form.root, sent)
    form.show_errors(form.problems)
    return {} if value is None else value


def _read(form: InputForm, target: Field, sent: Form) -> Any:
    if target.kind == "group":
        values = {member_of(child.pointer): _read(form, child, sent) for child in target.children}
        members = {name: value for name, value in values.items() if value is not None}
        return members if members or target.required else None
    text = (sent.get(target.name) or [""])[0].replace("\r\n", "\n")
    target.value = text
    if target.kind == "checkbox":
        target.value = "true" if text else "false"
        return bool(text)
    if text == "" or (target.kind != "textarea" and not text.strip()):
        return None
    try:
        return _parse(target, text)
    except ValueError as error:
        form.problems.append(Detail(target.pointer, "invalid", Sentence("%(error)s.", error=error)))
        return None


def _parse(target: Field, text: str) -> Any:
    """Parse the text of a field; ValueError with a message for the person."""
    if target.kind == "integer":
        if not _INTEGER.fullmatch(text.strip()):
            raise ValueError(_("Enter a whole number"))
        return int(text)
    if target.kind == "number":
        return _parse_number(text.strip())
    if target.kind == "pairs":
        return _parse_json(text) if text.lstrip().startswith("{") else _parse_pairs(text)
    if target.kind == "json" and _takes_text(target.schema) and not _is_json(text):
        return text
    if target.kind in ("json", "select"):
        return _parse_json(text)
    return text


def _takes_text(schema: Mapping[str, Any]) -> bool:
    """Whether the value may be a string as well as other types."""
    choices = [each for name in ("anyOf", "oneOf") for each in schema.get(name, ()) if isinstance(each, Mapping)]
    return any(each.get("type") == "string" for each in choices)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _parse_pairs(text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        name, colon, value = line.partition(":")
        if line.strip() and (not colon or not name.strip()):
            raise ValueError(_("Line %(number)s is not in the form name: value", number=number))
        if line.strip():
            pairs[name.strip()] = value.strip()
    return pairs


def _parse_number(text: str) -> int | float:
    if _INTEGER.fullmatch(text):
        return int(text)
    try:
        value = float(text)
    except ValueError:
        raise ValueError(_("Enter a number, with a point before the decimals")) from None
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError(_("Enter a finite number"))
    return value


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        where = {"line": error.lineno, "column": error.colno}
        raise ValueError(_("Invalid JSON: %(fault)s at line %(line)s, column %(column)s", fault=error.msg, **where)) from None
    except RecursionError:
        raise ValueError(_("This JSON is nested too deeply")) from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(_("%(name)s is not valid JSON", name=name))
