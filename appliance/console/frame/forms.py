"""The form of an input schema: JSON Schema to fields, what was sent back to JSON, findings at their fields."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from appliance.core.errors import Detail
from appliance.core.sentences import Sentence
from appliance.core.texts import gettext as _
from appliance.core.texts import tell

from .routing import Form

MAX_DEPTH = 4
MAX_OPTIONS = 200
LONG_TEXT = 320  # as long as an address of e-mail may be: names of hosts and of people are one line
SHORT = 12
PREFIX = "in"
_LONG_WORDS = re.compile(r"\b(csv|text|body|content|lines|document|markdown|html|xml)\b", re.IGNORECASE)
_INTEGER = re.compile(r"[+-]?\d{1,400}")
_KINDS = {"integer": "integer", "number": "number", "boolean": "checkbox", "string": "text"}
_FORMATS = {"date": "date", "email": "email", "uri": "url", "time": "time"}


@dataclass
class Field:
    """One field, or a group of them; `value` is the text that stands in it, `error` what is wrong with it."""

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
    kept: str = ""
    is_unchosen: bool = False

    @property
    def name(self) -> str:
        return f"{PREFIX}{self.pointer}"

    @property
    def is_secret(self) -> bool:
        """Whether it holds a text that is sealed at rest; `kept` then says how one that is not shown is known."""
        return self.schema.get("secret") is True

    @property
    def is_short(self) -> bool:
        """Whether it is a group of a few numbers and words, which stand beside each other."""
        numbers = ("integer", "number")
        plain = (each.kind in numbers or int(each.attributes.get("maxlength", SHORT + 1)) <= SHORT for each in self.children)
        return all(plain) and 1 < len(self.children) <= 4

    @property
    def only_for(self) -> str:
        """The neighbours this one is for, as `name=value,value;…`; empty when it is for all of them."""
        wanted = self.schema.get("only_for")
        above = self.pointer.rpartition("/")[0]
        pairs = wanted.items() if isinstance(wanted, Mapping) else ()
        return ";".join(f"{PREFIX}{above}/{_token(name)}={','.join(map(json.dumps, values))}" for name, values in pairs)

    @property
    def rows(self) -> int:
        """Height of a text area that suits what stands in it."""
        return min(max(self.value.count("\n") + 2, 3 if self.kind in ("pairs", "json") else 5), 16)

    def walk(self) -> "Iterator[Field]":
        yield self
        for child in self.children:
            yield from child.walk()


class InputForm:
    """The fields of a schema; `whole` makes it one JSON text instead."""

    def __init__(self, schema: Any, whole: bool = False) -> None:
        self.schema: Mapping[str, Any] = schema if isinstance(schema, Mapping) else {}
        self.whole = whole or not _has_fields(self.schema)
        text = Field("", _("Input"), "json", True, schema=self.schema)
        self.root = text if self.whole else _field("", _("Input"), self.schema, True, 0)
        self.problems: list[Detail] = []
        self.general: list[Detail] = []

    @property
    def fields(self) -> list[Field]:
        return [self.root] if self.whole else self.root.children

    def all_fields(self) -> Iterator[Field]:
        return self.root.walk()

    @property
    def has_example(self) -> bool:
        return bool(_examples(self.schema)) or any(_examples(found.schema) for found in self.all_fields())

    def example(self) -> Any:
        """The schema's first example, or one put together from the examples of its members."""
        examples = _examples(self.schema)
        return examples[0] if examples else _sample(self.schema, 0)

    def defaults(self) -> Any:
        """The input that the schema's defaults make."""
        return _defaults(self.schema, 0) or {}

    def fill(self, value: Any) -> None:
        """Put a JSON value into the fields."""
        _fill(self.root, value)

    def point_out(self, details: Sequence[Detail]) -> None:
        """Show every finding at the innermost field it belongs to; the rest goes above the form."""
        for detail in details:
            owners = [f for f in self.all_fields() if f.kind != "group" and _is_inside(detail.pointer, f.pointer)]
            if not owners:
                self.general.append(detail)
                continue
            owner = max(owners, key=lambda found: len(found.pointer))
            inner = detail.pointer.removeprefix(owner.pointer)
            text = f"{inner}: {tell(detail.message)}" if inner else tell(detail.message)
            owner.error = f"{owner.error} {text}".strip()


def _has_fields(schema: Mapping[str, Any]) -> bool:
    """Whether fields can stand for the input: it has members, or none and no other is allowed."""
    properties = schema.get("properties")
    return isinstance(properties, Mapping) and (bool(properties) or schema.get("additionalProperties") is False)


def _is_inside(pointer: str, outer: str) -> bool:
    return pointer == outer or pointer.startswith(f"{outer}/")


def _examples(schema: Mapping[str, Any]) -> list[Any]:
    examples = schema.get("examples")
    return examples if isinstance(examples, list) else []


def _type_of(schema: Mapping[str, Any]) -> str:
    """The one type of a schema that is not null; empty when there are several or none."""
    given = schema.get("type")
    types = [given] if isinstance(given, str) else [t for t in given if t != "null"] if isinstance(given, list) else []
    return str(types[0]) if len(types) == 1 else ""


def _field(pointer: str, name: str, schema: Mapping[str, Any], required: bool, depth: int) -> Field:
    label = str(schema.get("title") or name)
    found = Field(pointer, label, "json", required, str(schema.get("description") or ""), schema=schema)
    kind = "object" if depth == 0 else _type_of(schema)
    options = _options(schema)
    properties = schema.get("properties")
    if 0 < len(options) <= MAX_OPTIONS:
        found.kind, found.options = "select", options
    elif kind == "object" and isinstance(properties, Mapping) and properties and depth < MAX_DEPTH:
        found.kind = "group"
        needed = schema.get("required")
        found.children = [
            _field(f"{pointer}/{_token(key)}", key, member, isinstance(needed, list) and key in needed, depth + 1)
            for key, member in properties.items()
            if isinstance(member, Mapping)
        ]
    elif kind in _KINDS and not any(name in schema for name in ("oneOf", "anyOf", "allOf", "$ref")):
        _plain_field(found, kind, name)
    elif kind == "object" and not properties and _is_of_texts(schema.get("additionalProperties")):
        found.kind, found.help = "pairs", f"{found.help} {_('One per line, as name: value.')}".strip()
    return found


def _options(schema: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What can be chosen, as JSON and as it is called: an `enum`, or a `oneOf` of constants with titles."""
    listed = schema.get("enum")
    if isinstance(listed, list):
        return [(json.dumps(value), value if isinstance(value, str) else json.dumps(value)) for value in listed]
    named = schema.get("oneOf")
    if isinstance(named, list) and all(isinstance(each, Mapping) and "const" in each for each in named):
        return [(json.dumps(each["const"]), str(each.get("title", each["const"]))) for each in named]
    return []


def _is_of_texts(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "string" and not schema.get("secret")


def _plain_field(found: Field, kind: str, name: str) -> None:
    schema = found.schema
    found.kind = _KINDS[kind]
    if kind == "boolean" and not found.required and "default" not in schema:
        found.kind, found.options = "select", [("true", _("yes")), ("false", _("no"))]
    if kind == "string" and found.is_secret:
        found.kind = "secret_text" if _is_key_text(found.schema, name) else "password"
    elif kind == "string":
        found.kind = "textarea" if _is_long(schema, name) else _FORMATS.get(str(schema.get("format")), "text")
    if kind in ("number", "integer"):
        # Not type=number: a browser sends nothing for what it cannot read, and the mistake would pass for an empty field.
        found.attributes = {"inputmode": "numeric" if kind == "integer" else "decimal"}
    elif found.kind == "text" and isinstance(schema.get("maxLength"), int):
        found.attributes = {"maxlength": str(schema["maxLength"])}


def _is_key_text(schema: Mapping[str, Any], name: str) -> bool:
    """Whether a secret has several lines, which a password field would lose."""
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
    """The names of a pointer, outermost first."""
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def member_of(pointer: str) -> str:
    """The last name of a pointer."""
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
            target.kind = "textarea"  # a field of one line would lose the others


def read_form(form: InputForm, sent: Form) -> Any:
    """The JSON value that was sent; `form` keeps the texts and notes in `problems` what cannot be read."""
    value = _read(form, form.root, sent)
    form.point_out(form.problems)
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
    """The value of a field's text; ValueError says what is wrong with it."""
    if target.kind == "integer":
        if not _INTEGER.fullmatch(text.strip()):
            raise ValueError(_("Enter a whole number"))
        return int(text)
    if target.kind == "number":
        return _number(text.strip())
    if target.kind == "pairs":
        return _json(text) if text.lstrip().startswith("{") else _pairs(text)
    if target.kind == "json" and _takes_text(target.schema) and not _is_json(text):
        return text
    if target.kind in ("json", "select"):
        return _json(text)
    return text


def _takes_text(schema: Mapping[str, Any]) -> bool:
    """Whether the value may be a text beside something else."""
    choices = [each for name in ("anyOf", "oneOf") for each in schema.get(name, ()) if isinstance(each, Mapping)]
    return any(each.get("type") == "string" for each in choices)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _pairs(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        name, colon, value = line.partition(":")
        if line.strip() and (not colon or not name.strip()):
            raise ValueError(f"Line {number} is not name: value")
        if line.strip():
            found[name.strip()] = value.strip()
    return found


def _number(text: str) -> int | float:
    if _INTEGER.fullmatch(text):
        return int(text)
    try:
        value = float(text)
    except ValueError:
        raise ValueError(_("Enter a number, with a point before the decimals")) from None
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError(_("Enter a finite number"))
    return value


def _json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        where = {"line": error.lineno, "column": error.colno}
        raise ValueError(_("Invalid JSON: %(fault)s at line %(line)s, column %(column)s", fault=error.msg, **where)) from None
    except RecursionError:
        raise ValueError(_("This JSON is nested too deeply")) from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(_("%(name)s is not valid JSON", name=name))
