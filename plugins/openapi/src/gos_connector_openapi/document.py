"""An OpenAPI document that nobody trusts: parsed without aliases, its references followed inside itself only."""

import json
from collections.abc import Mapping
from typing import Any

import yaml

MOST_BYTES = 32 << 20
_MOST_YAML_BYTES = 8 << 20  # a YAML parser needs much more memory and time for the same document
_DEEPEST = 100
_MOST_STEPS = 40


class Refused(Exception):
    """Why the document cannot be used, as a sentence with the next step."""


class _Loader(yaml.CSafeLoader):
    """YAML with JSON's values only: a date stays a text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


class Document:
    """The parsed document; `find` follows references."""

    def __init__(self, whole: Mapping[str, Any]) -> None:
        self.whole = whole
        self._found: dict[str, Any] = {}

    def find(self, part: Any) -> Any:
        """`part`, or what its chain of references ends at; Refused for one that leads elsewhere, nowhere or in a circle."""
        for _ in range(_MOST_STEPS):
            if not (isinstance(part, Mapping) and isinstance(part.get("$ref"), str)):
                return part
            part = self.refer(part["$ref"])
        raise Refused("A reference of the document ends in a circle of references; mend the document.")

    def refer(self, reference: str) -> Any:
        """What stands at a reference into the document."""
        if reference not in self._found:
            self._found[reference] = self._walk(reference)
        return self._found[reference]

    def _walk(self, reference: str) -> Any:
        if reference != "#" and not reference.startswith("#/"):
            raise Refused(f"The document refers to {reference[:200]!r}, outside of itself; bundle it into one document first.")
        found: Any = self.whole
        for token in reference.split("/")[1:]:
            name = _unescaped(token)
            if isinstance(found, Mapping) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                raise Refused(f"The document refers to {reference[:200]!r}, which it does not have; mend the document.")
        return found

    def mapping(self, part: Any) -> Mapping[str, Any]:
        """What `part` is or refers to, when that is an object; otherwise an empty one."""
        found = self.find(part)
        return found if isinstance(found, Mapping) else {}


def _unescaped(token: str) -> str:
    return token.replace("%7B", "{").replace("%7D", "}").replace("%20", " ").replace("~1", "/").replace("~0", "~")


def parse(content: bytes) -> Document:
    """The document of JSON or YAML; Refused when it is none of OpenAPI 3, or is made to cost more than documents do."""
    if len(content) > MOST_BYTES:
        raise Refused(f"The document has more than {MOST_BYTES >> 20} MB; leave out the parts you do not need.")
    whole = _value(content.removeprefix(b"\xef\xbb\xbf"))
    if not isinstance(whole, dict):
        raise Refused("The document is no object; give an OpenAPI 3.0 or 3.1 document as JSON or YAML.")
    version = str(whole.get("openapi", ""))
    if "swagger" in whole:
        raise Refused("The document is Swagger 2; convert it to OpenAPI 3 first.")
    if not version.startswith(("3.0", "3.1")):
        raise Refused(f"The document says openapi {version[:20]!r}; this connector reads 3.0 and 3.1.")
    return Document(whole)


def _value(content: bytes) -> Any:
    try:
        if content.lstrip()[:1] == b"{":
            return json.loads(content)
        return _yaml(content.decode("utf-8"))
    except RecursionError:
        raise Refused("The document is nested too deeply.") from None
    except UnicodeDecodeError:
        raise Refused("The document is not UTF-8.") from None
    except yaml.YAMLError as error:
        raise Refused(f"The document is not YAML: {_line(error)}.") from None
    except ValueError as error:
        raise Refused(f"The document is not JSON: {str(error)[:200]}.") from None


def _yaml(text: str) -> Any:
    if len(text) > _MOST_YAML_BYTES:
        raise Refused(f"The document has more than {_MOST_YAML_BYTES >> 20} MB of YAML; give it as JSON.")
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            raise Refused(
                f"The document uses a YAML alias in line {_line_number(event.start_mark)}; write the part out, or use $ref."
            )
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise Refused("The document is nested too deeply.")
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
