"""Reads an untrusted OpenAPI document: YAML aliases are refused, and references may only lead into the document itself."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import yaml

MAX_BYTES = 32 << 20
_MAX_YAML_BYTES = 8 << 20  # a YAML parser needs much more memory and time for the same document
_MAX_DEPTH = 100
_MAX_REFERENCES = 40
_MISSING = object()
CHOOSE_OPERATIONS = "choose the operations you need with the settings only_tags and only_paths"


class UnusableDocument(Exception):
    """Why the document cannot be used, as a sentence with the next step."""


class _Loader(yaml.CSafeLoader):
    """Loads YAML with the value types of JSON only: a date remains a string."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


class Document:
    """The parsed document; `resolve` follows references."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        self.is_swagger = "swagger" in root
        self._resolved: dict[str, Any] = {}

    def resolve(self, part: Any) -> Any:
        """`part`, or the end of its chain of references; UnusableDocument for an external, broken or circular reference."""
        for _ in range(_MAX_REFERENCES):
            if not (isinstance(part, Mapping) and isinstance(part.get("$ref"), str)):
                return part
            part = self.lookup(part["$ref"])
        raise UnusableDocument("A reference in the document refers to itself; correct the document.")

    def lookup(self, reference: str) -> Any:
        """The part of the document that a reference points to."""
        if reference not in self._resolved:
            self._resolved[reference] = self._walk(reference)
        return self._resolved[reference]

    def _walk(self, reference: str) -> Any:
        if reference != "#" and not reference.startswith("#/"):
            raise UnusableDocument(
                f"The document refers to {reference[:200]!r}, outside the document; bundle everything into one document first."
            )
        node: Any = self.root
        for token in reference.split("/")[1:]:
            node = _inside(node, token.replace("~1", "/").replace("~0", "~"))
            if node is _MISSING:
                raise UnusableDocument(
                    f"The document refers to {reference[:200]!r}, which it does not contain; correct the document."
                )
        return node

    def mapping(self, part: Any) -> Mapping[str, Any]:
        """The object that `part` is or refers to; an empty one when it is no object."""
        target = self.resolve(part)
        return target if isinstance(target, Mapping) else {}


def _inside(holder: Any, name: str) -> Any:
    """The member or item with this name, literal or percent-decoded; YAML parses a status code as a number."""
    number = int(name) if name.isdecimal() and len(name) < 10 else -1
    if isinstance(holder, list):
        return holder[number] if 0 <= number < len(holder) else _MISSING
    if not isinstance(holder, Mapping):
        return _MISSING
    return next((holder[key] for key in (name, unquote(name), number) if key in holder), _MISSING)


def parse(content: bytes) -> Document:
    """The document parsed from JSON or YAML; UnusableDocument when it is too large, malformed or of an unsupported version."""
    if len(content) > MAX_BYTES:
        raise UnusableDocument(f"The document has more than {MAX_BYTES >> 20} MB; leave out the parts you do not need.")
    root = _value(content.removeprefix(b"\xef\xbb\xbf"))
    if not isinstance(root, dict):
        raise UnusableDocument(
            "The document is not an object; provide an OpenAPI 3.0 or 3.1 or a Swagger 2.0 document as JSON or YAML."
        )
    for name, releases in (("swagger", ("2", "2.0")), ("swaggerVersion", ())):
        if name in root and str(root[name]) not in releases:
            raise UnusableDocument(
                f"The document says {name} {str(root[name])[:20]!r}; the only Swagger version supported is 2.0."
            )
    version = str(root.get("openapi", ""))
    if "swagger" not in root and not version.startswith(("3.0", "3.1")):
        raise UnusableDocument(f"The document says openapi {version[:20]!r}; this connector supports 3.0 and 3.1, and Swagger 2.0.")
    return Document(root)


def _value(content: bytes) -> Any:
    try:
        if content.lstrip()[:1] == b"{":
            return json.loads(content)
        return _yaml(content.decode("utf-8"))
    except RecursionError:
        raise UnusableDocument("The document is nested too deeply.") from None
    except UnicodeDecodeError:
        raise UnusableDocument("The document is not UTF-8.") from None
    except yaml.YAMLError as error:
        raise UnusableDocument(f"The document is not YAML: {_line(error)}.") from None
    except ValueError as error:
        raise UnusableDocument(f"The document is not JSON: {str(error)[:200]}.") from None


def _yaml(text: str) -> Any:
    if len(text) > _MAX_YAML_BYTES:
        raise UnusableDocument(f"The document has more than {_MAX_YAML_BYTES >> 20} MB of YAML; give it as JSON.")
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            raise UnusableDocument(
                f"The document uses a YAML alias in line {_line_number(event.start_mark)}; write the part out, or use $ref."
            )
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise UnusableDocument("The document is nested too deeply.")
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def _line_number(mark: Any) -> int:
    return int(mark.line) + 1


def _line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return f"line {mark.line + 1}, {getattr(error, 'problem', 'it cannot be read')}" if mark else str(error).splitlines()[0][:200]
