"""The model of a service from `$metadata`: entity sets with keys and properties, and the paths of entities."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote
from xml.etree.ElementTree import Element, ParseError

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring

from appliance.connectors.contract import ConfigError, SystemFailure

_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_PLAIN = {
    "Edm.Guid": re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"),
    "Edm.Date": re.compile(r"-?\d{4,}-\d\d-\d\d"),
    "Edm.DateTimeOffset": re.compile(r"-?\d{4,}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)"),
    "Edm.TimeOfDay": re.compile(r"\d\d:\d\d(:\d\d(\.\d+)?)?"),
    **dict.fromkeys(("Edm.Byte", "Edm.SByte", "Edm.Int16", "Edm.Int32", "Edm.Int64", "Edm.Decimal"), _NUMBER),
}


@dataclass(frozen=True)
class EntityType:
    """An entity type: its key and its properties by name, including inherited ones."""

    name: str
    key: tuple[str, ...]
    properties: Mapping[str, Mapping[str, Any]]
    navigation: Mapping[str, str]


@dataclass(frozen=True)
class Model:
    """The entity sets of a service."""

    sets: Mapping[str, EntityType]

    def entity_type(self, entity_set: str) -> EntityType:
        """The type of a set's entities; ConfigError when the service has no such set."""
        kind = self.sets.get(entity_set)
        if kind is None:
            similar = [name for name in self.sets if name.lower() == entity_set.lower()]
            hint = f"; it has {similar[0]!r}" if similar else "; the action describe lists its sets"
            raise ConfigError(f"The service has no entity set {entity_set!r}{hint}.")
        return kind

    def path(self, entity_set: str, key: Any) -> str:
        """The path `Set(key)` of an entity; ConfigError when the key does not match the entity type."""
        kind = self.entity_type(entity_set)
        if isinstance(key, Mapping):
            if set(key) != set(kind.key):
                raise ConfigError(f"The key of {entity_set} consists of {', '.join(kind.key)}; give exactly these.")
            values = {name: key[name] for name in kind.key}
        elif len(kind.key) == 1:
            values = {kind.key[0]: key}
        else:
            raise ConfigError(f"The key of {entity_set} has the parts {', '.join(kind.key)}; give an object with these names.")
        literals = [(name, _literal(name, kind.properties[name]["type"], value)) for name, value in values.items()]
        inner = literals[0][1] if len(literals) == 1 else ",".join(f"{name}={literal}" for name, literal in literals)
        return f"{entity_set}({inner})"


def _literal(name: str, kind: str, value: Any) -> str:
    """A key's value as an OData literal in a path (OData 4.01 ABNF, primitiveLiteral)."""
    if kind == "Edm.Boolean":
        if not isinstance(value, bool):
            raise ConfigError(f"The key {name} must be true or false.")
        return "true" if value else "false"
    if isinstance(value, bool):
        raise ConfigError(f"The key {name} is of type {kind}, not true or false.")
    text = str(value)
    if kind in _PLAIN:
        if not _PLAIN[kind].fullmatch(text):
            raise ConfigError(f"The key {name} must be of type {kind}; {text[:60]!r} is not.")
        return quote(text, safe="")
    quoted = "'" + text.replace("'", "''") + "'"
    if kind != "Edm.String":
        quoted = ("duration" if kind == "Edm.Duration" else kind) + quoted
    return quote(quoted, safe="'")


def parse_model(content: bytes) -> Model:
    """The model of a `$metadata` document (CSDL XML 4); SystemFailure when it is invalid."""
    try:
        root = fromstring(content, forbid_dtd=True)
    except (ParseError, DefusedXmlException, ValueError) as error:
        raise SystemFailure("The service's $metadata is not well-formed XML; check the address.") from error
    version = root.get("Version", "")
    if _local_name(root) != "Edmx" or not version.startswith("4"):
        raise SystemFailure(
            f"The service's $metadata is {_local_name(root)[:40]} {version[:10]}; this connector supports only OData 4."
        )
    reader = _Reader(root)
    return Model({name: reader.entity_type(kind) for name, kind in reader.sets()})


class _Reader:
    """Reads a document whose names are qualified by a namespace or its alias."""

    def __init__(self, root: Element) -> None:
        self._schemas = [each for each in root.iter() if _local_name(each) == "Schema"]
        self._alias = {each.get("Alias", ""): each.get("Namespace", "") for each in self._schemas if each.get("Alias")}
        self._types = {
            f"{schema.get('Namespace')}.{each.get('Name')}": each
            for schema in self._schemas
            for each in _children(schema, "EntityType")
        }
        self._parsed: dict[str, EntityType] = {}

    def sets(self) -> Iterator[tuple[str, str]]:
        for schema in self._schemas:
            for container in _children(schema, "EntityContainer"):
                for each in _children(container, "EntitySet"):
                    yield each.get("Name", ""), self._qualified_name(each.get("EntityType", ""))

    def _qualified_name(self, name: str) -> str:
        before, _, last = name.rpartition(".")
        return f"{self._alias.get(before, before)}.{last}"

    def entity_type(self, name: str, derived: tuple[str, ...] = ()) -> EntityType:
        if name in self._parsed:
            return self._parsed[name]
        element = self._types.get(name)
        if element is None or name in derived:
            raise SystemFailure(f"The service's $metadata refers to the type {name[:120]!r} without defining it.")
        base = element.get("BaseType")
        parent = self.entity_type(self._qualified_name(base), (*derived, name)) if base else EntityType("", (), {}, {})
        properties = {
            **parent.properties,
            **{
                each.get("Name", ""): {"type": self._type_name(each.get("Type", "")), "nullable": each.get("Nullable") != "false"}
                for each in _children(element, "Property")
            },
        }
        links = {each.get("Name", ""): self._type_name(each.get("Type", "")) for each in _children(element, "NavigationProperty")}
        key = tuple(ref.get("Name", "") for part in _children(element, "Key") for ref in _children(part, "PropertyRef"))
        key = key or parent.key
        unknown = [part for part in key if part not in properties]
        if unknown:
            raise SystemFailure(f"The service's $metadata gives {name[:120]!r} the key {unknown[0]!r}, which is not its property.")
        kind = EntityType(name, key, properties, {**parent.navigation, **links})
        self._parsed[name] = kind
        return kind

    def _type_name(self, name: str) -> str:
        inner = re.fullmatch(r"Collection\((.*)\)", name)
        return f"Collection({self._qualified_name(inner[1])})" if inner else self._qualified_name(name)


def _children(element: Element, name: str) -> Iterator[Element]:
    return (each for each in element if _local_name(each) == name)


def _local_name(element: Element) -> str:
    return element.tag.rpartition("}")[2]
