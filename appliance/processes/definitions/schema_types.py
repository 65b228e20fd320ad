"""JSON Schema 2020-12 as TypeScript types, in one line each or with comments for editors; pure.

A type says at most what the schema says: what TypeScript cannot express (patterns, bounds, conditions) is left out.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# A schema that becomes longer than this helps nobody in an editor, and costs the checker its time.
LONGEST, DEEPEST = 60_000, 24
_NAME = re.compile(r"[A-Za-z_$][\w$]*", re.ASCII)
_SIMPLE = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean", "null": "null"}
_OBJECT = ("properties", "required", "additionalProperties", "patternProperties", "minProperties", "maxProperties")
_ARRAY = ("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains")


@dataclass(frozen=True)
class Direction:
    """`anything`: what a value without a schema is; `closed`: an object that lists members has no others unless it says so."""

    anything: str
    closed: bool


# What code hands over may be whatever the schema does not forbid. What it is handed has the members that the schema lists,
# and values that the schema leaves open are used without proof.
GIVEN = Direction("unknown", closed=False)
RECEIVED = Direction("any", closed=True)
OPEN = Direction("any", closed=False)


def to_typescript(schema: Any, direction: Direction = GIVEN, *, root: Any = None) -> str:
    """The type of the values that are valid against `schema`; `anything` where that cannot be said.

    References lead into `root` when the schema is a part of that.
    """
    text = _Converter(schema if root is None else root, direction).convert(schema, ())
    return text if len(text) <= LONGEST else direction.anything


def literal(value: Any) -> str:
    """A JSON value as a type that has only this value."""
    if isinstance(value, dict):
        return "{ " + " ".join(f"{member_name(name)}: {literal(each)};" for name, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(literal(each) for each in value) + "]"
    return json.dumps(value)


def member_name(name: str) -> str:
    """A name as it stands in an interface: in quotes where it is no plain word."""
    return name if _NAME.fullmatch(name) else json.dumps(name)


def union(types: Iterable[str]) -> str:
    """One of these types, each once; `never` of none."""
    found = list(dict.fromkeys(types))
    return " | ".join(found) if found else "never"


def comment(*sentences: object) -> str:
    """A documentation comment with a blank behind it; empty when there is nothing to say."""
    text = ". ".join(" ".join(str(each).split()).rstrip(".") for each in sentences if each)
    return f"/** {text.replace('*/', '* /')[:500]} */ " if text else ""


class _Converter:
    def __init__(self, root: Any, direction: Direction) -> None:
        self._root, self._direction = root, direction
        self._length = 0

    def convert(self, schema: Any, open_references: tuple[str, ...]) -> str:
        """`open_references` are those around this place: a type that contains itself ends there."""
        anything = self._direction.anything
        if schema is False:
            return "never"
        if not isinstance(schema, Mapping) or self._length > LONGEST or len(open_references) > DEEPEST:
            return anything
        parts = [part for part in self._parts(schema, open_references) if part != anything]
        text = " & ".join(_grouped(part) for part in dict.fromkeys(parts)) if len(set(parts)) > 1 else (parts or [anything])[0]
        if schema.get("nullable") is True and parts:
            text = f"{text} | null"
        self._length += len(text)
        return text

    def _parts(self, schema: Mapping[str, Any], around: tuple[str, ...]) -> Iterable[str]:
        """Types that a value has all of."""
        if isinstance(schema.get("$ref"), str):
            yield self._referred(schema["$ref"], around)
        if "const" in schema:
            yield literal(schema["const"])
        elif isinstance(schema.get("enum"), list):
            yield union(literal(value) for value in schema["enum"])
        else:
            yield self._typed(schema, around)
        for keyword in ("anyOf", "oneOf"):
            if isinstance(schema.get(keyword), list):
                yield self._one_of(schema[keyword], around)
        if isinstance(schema.get("allOf"), list):
            for each in schema["allOf"]:
                yield self.convert(each, (*around, ""))

    def _one_of(self, options: list[Any], around: tuple[str, ...]) -> str:
        """An option that says nothing about the type makes the others say nothing."""
        types = [self.convert(each, (*around, "")) for each in options]
        return self._direction.anything if self._direction.anything in types else union(types)

    def _referred(self, reference: str, around: tuple[str, ...]) -> str:
        if reference in around:
            return self._direction.anything
        found = self._root
        for token in reference.removeprefix("#").split("/")[1:] if reference.startswith("#") else [""]:
            name = token.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and name.isdigit() and int(name) < len(found):
                found = found[int(name)]
            else:
                found = found.get(name, True) if isinstance(found, Mapping) else True
        return self.convert(found, (*around, reference))

    def _typed(self, schema: Mapping[str, Any], around: tuple[str, ...]) -> str:
        kinds = schema.get("type")
        if isinstance(kinds, list):
            return union(_grouped(self._of_type(str(kind), schema, around)) for kind in kinds)
        if isinstance(kinds, str):
            return self._of_type(kinds, schema, around)
        if "properties" in schema:
            return self._object(schema, around)
        if "items" in schema or "prefixItems" in schema:
            return self._array(schema, around)
        return self._direction.anything

    def _of_type(self, kind: str, schema: Mapping[str, Any], around: tuple[str, ...]) -> str:
        if kind == "object":
            return self._object(schema, around)
        if kind == "array":
            return self._array(schema, around)
        return _SIMPLE.get(kind, self._direction.anything)

    def _array(self, schema: Mapping[str, Any], around: tuple[str, ...]) -> str:
        items = schema.get("items", True)
        first = schema.get("prefixItems")
        if not isinstance(first, list) or not first:
            return f"{_grouped(self.convert(items, (*around, '')))}[]"
        least = schema.get("minItems", 0)
        types = [_grouped(self.convert(each, (*around, ""))) for each in first]
        out = [each if isinstance(least, int) and number < least else f"{each}?" for number, each in enumerate(types)]
        if items is not False:
            out.append(f"...{_grouped(self.convert(items, (*around, '')))}[]")
        return f"[{', '.join(out)}]"

    def _object(self, schema: Mapping[str, Any], around: tuple[str, ...]) -> str:
        given = schema.get("properties")
        properties: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
        required = [each for each in schema.get("required") or [] if isinstance(each, str)]
        others = self._others(schema, bool(properties), around)
        if not properties and not required:
            if others == "any":  # assignable to an interface with required members, as an index signature is not
                return others
            return f"{{ [name: string]: {others} }}" if others is not None else "{ [name: string]: never }"
        members = []
        for name, each in properties.items():
            optional = "" if name in required else "?"
            members.append(f"{_described(each)}{member_name(name)}{optional}: {self.convert(each, (*around, ''))};")
        members += [f"{member_name(name)}: {self._direction.anything};" for name in required if name not in properties]
        if others is not None:
            members.append(f"[name: string]: {self._direction.anything};")
        return "{ " + " ".join(members) + " }"

    def _others(self, schema: Mapping[str, Any], listed: bool, around: tuple[str, ...]) -> str | None:
        """The type of members that are not listed, None when there are none."""
        if schema.get("patternProperties"):
            return self._direction.anything
        others = schema.get("additionalProperties", schema.get("unevaluatedProperties"))
        if others is None:
            return None if listed and self._direction.closed else self._direction.anything
        return None if others is False else self.convert(others, (*around, ""))


def _described(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return ""
    form = f"({schema['format']})" if isinstance(schema.get("format"), str) else ""
    return comment(schema.get("title"), schema.get("description"), form)


def _grouped(text: str) -> str:
    """In brackets where another operator would take a part of it."""
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
