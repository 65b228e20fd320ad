"""The subschemas of a JSON Schema that a validator can reach, and which of them apply to the same value or to its members."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

# Larger schemas take seconds to compile, which blocks every other thread.
MOST_VALUES, MOST_SUBSCHEMAS = 200_000, 10_000


@dataclass(frozen=True)
class _Link:
    """How a keyword's subschemas belong to its node: `kind` is the list of `Node` they go into."""

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
    """The schema exceeds a limit of those that are compiled; the message says which."""


@dataclass(eq=False)
class Node:
    """A subschema at `pointer`.  `same` apply to the same value; at most one of `either` applies to a member of the value, and
    all of `each` may."""

    schema: dict[str, Any]
    pointer: str
    number: int
    same: list["Node"] = field(default_factory=list)
    either: list["Node"] = field(default_factory=list)
    each: list["Node"] = field(default_factory=list)


@dataclass
class Document:
    """The patterns and anchors in the whole text of a schema, and whether a part of it has its own `$id`."""

    patterns: set[str] = field(default_factory=set)
    anchors: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    has_resources: bool = False


def read_document(schema: Any) -> Document:
    """Collect these from every part of a schema, including parts the validator ignores; TooLarge."""
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
    if isinstance(pattern_properties := part.get("patternProperties"), dict):
        document.patterns.update(pattern_properties)
    for keyword in ("$anchor", "$dynamicAnchor"):
        if isinstance(name := part.get(keyword), str):
            document.anchors.setdefault(name, []).append(part)
    if not is_root and isinstance(part.get("$id"), str):
        document.has_resources = True


class Graph:
    """The nodes of a schema, the root first.  `is_whole` is False if a reference cannot be followed here: into a part with its
    own `$id`, or to the meta-schema.  TooLarge."""

    def __init__(self, root: dict[str, Any], document: Document) -> None:
        self.nodes: list[Node] = []
        self.is_whole = True
        self._root, self._document = root, document
        self._known: dict[int, Node] = {}
        list(self._add(root, "#"))
        for node in self.nodes:  # grows during the iteration
            self._connect(node)

    def _add(self, schema: Any, pointer: str) -> Iterator[Node]:
        """The node of a subschema; none for `true`, `false` and anything that is not a schema, which the compiler refuses."""
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
        """The part at a JSON pointer; None if there is none, which the compiler refuses."""
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
    """The nodes in dependency order, each after those it applies to the same value; None if there is a cycle."""
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
