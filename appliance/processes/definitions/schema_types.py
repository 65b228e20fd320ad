"""JSON Schema 2020-12 as TypeScript types, in one line each or with comments for editors; pure.

A type never says more than the schema: what TypeScript cannot express (patterns, bounds, conditions) is left out.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# A longer type is of no use in an editor and slows down the type checker.
MAX_LENGTH, MAX_DEPTH = 60_000, 24
_NAME = re.compile(r"[A-Za-z_$][\w$]*", re.ASCII)
_SIMPLE = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean", "null": "null"}
_OBJECT = ("properties", "required", "additionalProperties", "patternProperties", "minProperties", "maxProperties")
_ARRAY = ("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains")


@dataclass(frozen=True)
class Direction:
    """`anything`: the type of a value without a schema; `closed`: an object has no unlisted members unless it allows them."""

    unknown_type: str
    closed: bool


# Values that code sends may be anything the schema does not forbid.  Values it receives have the listed members, and those that
# the schema leaves open are typed `any`, so that code can use them without narrowing.
SENT = Direction("unknown", closed=False)
RECEIVED = Direction("any", closed=True)
OPEN = Direction("any", closed=False)


def to_typescript(schema: Any, direction: Direction = SENT, *, root: Any = None) -> str:
    """The type of the values that are valid against `schema`; `direction.unknown_type` if it cannot be expressed.

    References are resolved in `root` if the schema is a part of a larger document.
    """
    text = _Converter(schema if root is None else root, direction).convert(schema, ())
    return text if len(text) <= MAX_LENGTH else direction.unknown_type


def literal(value: Any) -> str:
    """A JSON value as a TypeScript literal type."""
    if isinstance(value, dict):
        return "{ " + " ".join(f"{member_name(name)}: {literal(each)};" for name, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(literal(each) for each in value) + "]"
    return json.dumps(value)


def member_name(name: str) -> str:
    """A member name in an interface, quoted unless it is an identifier."""
    return name if _NAME.fullmatch(name) else json.dumps(name)


def union(types: Iterable[str]) -> str:
    """The union of these types without duplicates; `never` if there are none."""
    unique = list(dict.fromkeys(types))
    return " | ".join(unique) if unique else "never"


def comment(*sentences: object) -> str:
    """A documentation comment followed by a space; empty if all sentences are."""
    text = ". ".join(" ".join(str(each).split()).rstrip(".") for each in sentences if each)
    return f"/** {text.replace('*/', '* /')[:500]} */ " if text else ""


class _Converter:
    def __init__(self, root: Any, direction: Direction) -> None:
        self._root, self._direction = root, direction
        self._length = 0

    def convert(self, schema: Any, open_references: tuple[str, ...]) -> str:
        """The type of `schema`; `open_references` are the enclosing ones, at which a recursive type stops."""
        anything = self._direction.unknown_type
        if schema is False:
            return "never"
        if not isinstance(schema, Mapping) or self._length > MAX_LENGTH or len(open_references) > MAX_DEPTH:
            return anything
        parts = [part for part in self._parts(schema, open_references) if part != anything]
        text = " & ".join(_grouped(part) for part in dict.fromkeys(parts)) if len(set(parts)) > 1 else (parts or [anything])[0]
        if schema.get("nullable") is True and parts:
            text = f"{text} | null"
        self._length += len(text)
        return text

    def _parts(self, schema: Mapping[str, Any], open_references: tuple[str, ...]) -> Iterable[str]:
        """The types whose intersection is the type of the value."""
        if isinstance(schema.get("$ref"), str):
            yield self._reference(schema["$ref"], open_references)
        if "const" in schema:
            yield literal(schema["const"])
        elif isinstance(schema.get("enum"), list):
            yield union(literal(value) for value in schema["enum"])
        else:
            yield self._by_type(schema, open_references)
        for keyword in ("anyOf", "oneOf"):
            if isinstance(schema.get(keyword), list):
                yield self._one_of(schema[keyword], open_references)
        if isinstance(schema.get("allOf"), list):
            for each in schema["allOf"]:
                yield self.convert(each, (*open_references, ""))

    def _one_of(self, options: list[Any], open_references: tuple[str, ...]) -> str:
        """The union of the options; `anything` as soon as one of them is unknown."""
        types = [self.convert(each, (*open_references, "")) for each in options]
        return self._direction.unknown_type if self._direction.unknown_type in types else union(types)

    def _reference(self, reference: str, open_references: tuple[str, ...]) -> str:
        if reference in open_references:
            return self._direction.unknown_type
        target = self._root
        for token in reference.removeprefix("#").split("/")[1:] if reference.startswith("#") else [""]:
            name = token.replace("~1", "/").replace("~0", "~")
            if isinstance(target, list) and name.isdigit() and int(name) < len(target):
                target = target[int(name)]
            else:
                target = target.get(name, True) if isinstance(target, Mapping) else True
        return self.convert(target, (*open_references, reference))

    def _by_type(self, schema: Mapping[str, Any], open_references: tuple[str, ...]) -> str:
        kinds = schema.get("type")
        if isinstance(kinds, list):
            return union(_grouped(self._of_type(str(kind), schema, open_references)) for kind in kinds)
        if isinstance(kinds, str):
            return self._of_type(kinds, schema, open_references)
        if "properties" in schema:
            return self._object(schema, open_references)
        if "items" in schema or "prefixItems" in schema:
            return self._array(schema, open_references)
        return self._direction.unknown_type

    def _of_type(self, kind: str, schema: Mapping[str, Any], open_references: tuple[str, ...]) -> str:
        if kind == "object":
            return self._object(schema, open_references)
        if kind == "array":
            return self._array(schema, open_references)
        return _SIMPLE.get(kind, self._direction.unknown_type)

    def _array(self, schema: Mapping[str, Any], open_references: tuple[str, ...]) -> str:
        items = schema.get("items", True)
        first = schema.get("prefixItems")
        if not isinstance(first, list) or not first:
            return f"{_grouped(self.convert(items, (*open_references, '')))}[]"
        least = schema.get("minItems", 0)
        types = [_grouped(self.convert(each, (*open_references, ""))) for each in first]
        out = [each if isinstance(least, int) and number < least else f"{each}?" for number, each in enumerate(types)]
        if items is not False:
            out.append(f"...{_grouped(self.convert(items, (*open_references, '')))}[]")
        return f"[{', '.join(out)}]"

    def _object(self, schema: Mapping[str, Any], open_references: tuple[str, ...]) -> str:
        listed = schema.get("properties")
        properties: Mapping[str, Any] = listed if isinstance(listed, Mapping) else {}
        required = [each for each in schema.get("required") or [] if isinstance(each, str)]
        others = self._others(schema, bool(properties), open_references)
        if not properties and not required:
            if others == "any":  # assignable to an interface with required members, as an index signature is not
                return others
            return f"{{ [name: string]: {others} }}" if others is not None else "{ [name: string]: never }"
        members = []
        for name, each in properties.items():
            optional = "" if name in required else "?"
            members.append(f"{_describe(each)}{member_name(name)}{optional}: {self.convert(each, (*open_references, ''))};")
        members += [f"{member_name(name)}: {self._direction.unknown_type};" for name in required if name not in properties]
        if others is not None:
            members.append(f"[name: string]: {self._direction.unknown_type};")
        return "{ " + " ".join(members) + " }"

    def _others(self, schema: Mapping[str, Any], listed: bool, open_references: tuple[str, ...]) -> str | None:
        """The type of members that are not listed; None if they are not allowed."""
        if schema.get("patternProperties"):
            return self._direction.unknown_type
        others = schema.get("additionalProperties", schema.get("unevaluatedProperties"))
        if others is None:
            return None if listed and self._direction.closed else self._direction.unknown_type
        return None if others is False else self.convert(others, (*open_references, ""))


def _describe(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return ""
    form = f"({schema['format']})" if isinstance(schema.get("format"), str) else ""
    return comment(schema.get("title"), schema.get("description"), form)


def _grouped(text: str) -> str:
    """The type in parentheses if it contains an operator of lower precedence."""
    depth = 0
    quoted = False
    for index, character in enumerate(text):
        if character == '"' and (index == 0 or text[index - 1] != "\\"):
            quoted = not quoted
        elif not quoted and character in "{[(":
            depth += 1
        elif not quoted and character in "}])":
            depth -= 1
        elif not quoted and not depth and character in "|&":
            return f"({text})"
    return text
