"""The subschemas of a JSON Schema that a validator can reach, and what each of them applies to the same value or to its members."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

# Larger schemas take seconds to compile, and nothing else runs in the meantime.
MOST_VALUES, MOST_SUBSCHEMAS = 200_000, 10_000


@dataclass(frozen=True)
class _Link:
    """What a keyword leads to: subschemas of this `kind` of a node."""

    kind: str
    holds_map: bool = False
    is_reference: bool = False


_LINKS = (
    {name: _Link("same") for name in ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")}
    | {name: _Link("same", holds_map=True) for name in ("dependentSchemas", "dependencies")}
    | {name: _Link("same", is_reference=True) for name in ("$ref", "$dynamicRef")}
    | {name: _Link("either") for name in ("prefixItems", "items", "additionalProperties")}
    | {"properties": _Link("either", holds_map=True), "patternProperties": _Link("each", holds_map=True)}
    | {name: _Link("each") for name in ("contains", "propertyNames", "unevaluatedItems", "unevaluatedProperties")}
)
UNEVALUATED = ("unevaluatedItems", "unevaluatedProperties")


class TooLarge(ValueError):
    """The schema is larger than any that is compiled; the text says by what."""


@dataclass(eq=False)
class Node:
    """A subschema at `pointer`.  `same` apply to the same value; of `either` at most one applies to a member of the value, of
    `each` all may."""

    schema: dict[str, Any]
    pointer: str
    number: int
    same: list["Node"] = field(default_factory=list)
    either: list["Node"] = field(default_factory=list)
    each: list["Node"] = field(default_factory=list)


@dataclass
class Document:
    """What the whole text of a schema holds: its patterns, its anchors, and whether a part of it has an address of its own."""

    patterns: set[str] = field(default_factory=set)
    anchors: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    has_resources: bool = False


def read_document(schema: Any) -> Document:
    """Look through everything that stands in a schema, also where the validator does not look; TooLarge."""
    document = Document()
    parts = [schema]
    count = 0
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            count += len(part)
            _read_part(document, part, part is schema)
            parts.extend(part.values())
        elif isinstance(part, list | tuple):
            count += len(part)
            parts.extend(part)
        if count > MOST_VALUES:
            raise TooLarge(f"it has more than {MOST_VALUES:,} values; write it shorter")
    return document


def _read_part(document: Document, part: dict[str, Any], is_root: bool) -> None:
    if isinstance(pattern := part.get("pattern"), str):
        document.patterns.add(pattern)
    if isinstance(named := part.get("patternProperties"), dict):
        document.patterns.update(named)
    for keyword in ("$anchor", "$dynamicAnchor"):
        if isinstance(name := part.get(keyword), str):
            document.anchors.setdefault(name, []).append(part)
    if not is_root and isinstance(part.get("$id"), str):
        document.has_resources = True


class Graph:
    """The nodes of a schema, the root first.  `is_whole` is False where a reference leads to what this module cannot follow:
    into a part with an address of its own, or to the meta-schema.  TooLarge."""

    def __init__(self, root: dict[str, Any], document: Document) -> None:
        self.nodes: list[Node] = []
        self.is_whole = True
        self._root, self._document = root, document
        self._known: dict[int, Node] = {}
        list(self._add(root, "#"))
        for node in self.nodes:  # grows while it is walked through
            self._connect(node)

    def _add(self, schema: Any, pointer: str) -> Iterator[Node]:
        """The node of a subschema; none for `true`, `false` and what is no schema, which the compiler refuses."""
        if not isinstance(schema, dict):
            return
        node = self._known.get(id(schema))
        if node is None:
            if len(self.nodes) >= MOST_SUBSCHEMAS:
                raise TooLarge(f"it has more than {MOST_SUBSCHEMAS:,} subschemas; split it up, or describe less")
            node = self._known[id(schema)] = Node(schema, pointer, len(self.nodes))
            self.nodes.append(node)
        yield node

    def _connect(self, node: Node) -> None:
        for keyword, value in node.schema.items():
            if (link := _LINKS.get(keyword)) is None:
                continue
            if link.is_reference:
                if isinstance(value, str):
                    node.same += self._follow(value, keyword == "$dynamicRef")
            else:
                getattr(node, link.kind).extend(self._held_by(value, f"{node.pointer}/{keyword}", link.holds_map))

    def _held_by(self, value: Any, pointer: str, holds_map: bool) -> Iterator[Node]:
        """The nodes of a keyword's value: a subschema, a list of them, or an object of them by name."""
        if isinstance(value, list | tuple):
            for number, schema in enumerate(value):
                yield from self._add(schema, f"{pointer}/{number}")
        elif not holds_map:
            yield from self._add(value, pointer)
        elif isinstance(value, dict):
            for name, schema in value.items():
                yield from self._add(schema, f"{pointer}/{name}")

    def _follow(self, reference: str, is_dynamic: bool) -> Iterator[Node]:
        fragment = unquote(reference[1:])
        anchored = self._document.anchors.get(fragment, [])
        if not reference.startswith("#") or self._document.has_resources:
            self.is_whole = False
        elif anchored:
            for schema in anchored if is_dynamic else anchored[:1]:
                yield from self._add(schema, reference)
        else:
            yield from self._add(self._at(fragment), reference)

    def _at(self, fragment: str) -> Any:
        """What a JSON pointer leads to; None for nothing, which the compiler refuses."""
        part: Any = self._root
        for token in fragment.split("/")[1:]:
            name = token.replace("~1", "/").replace("~0", "~")
            if isinstance(part, dict):
                part = part.get(name)
            elif isinstance(part, list | tuple) and name.isdecimal() and int(name) < len(part):
                part = part[int(name)]
            else:
                return None
        return part


def order_of(nodes: list[Node]) -> list[Node] | None:
    """The nodes, each after those that apply to the same value as it; None where one of them applies itself again."""
    done, entered, ordered = set[int](), set[int](), list[Node]()
    for first in nodes:
        stack = [(first, iter(first.same))] if first.number not in done else []
        entered.add(first.number)
        while stack:
            node, rest = stack[-1]
            following = next((each for each in rest if each.number not in done), None)
            if following is None:
                stack.pop()
                done.add(node.number)
                ordered.append(node)
            elif following.number in entered:
                return None
            else:
                entered.add(following.number)
                stack.append((following, iter(following.same)))
    return ordered
