"""Converts XML to JSON and back: attributes become `@name`, text beside members `#text`, repeated elements a list.

Document types, and with them entities, are rejected to prevent attacks such as XXE and entity bombs.
"""

import html
import re
from collections.abc import Iterable
from typing import Any

from . import encodings
from .errors import ContentInvalid
from .request import Records, Request
from .rows import scalar_text

MAX_DEPTH = 100
CHUNK = 256 << 10
_NAME = re.compile(r"[^\W\d][\w.-]*(:[^\W\d][\w.-]*)?")
_UNWRITABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def load() -> None:
    encodings.load()
    import defusedxml.ElementTree  # noqa: F401


class _Element:
    """An element under construction."""

    __slots__ = ("members", "name", "text")

    def __init__(self, name: str, attributes: dict[str, str]) -> None:
        self.name = name
        self.members: dict[str, Any] = {f"@{_local_name(key)}": value for key, value in attributes.items()}
        self.text: list[str] = []

    def add(self, name: str, value: Any, always_list: bool) -> None:
        if name not in self.members:
            self.members[name] = [value] if always_list else value
        elif isinstance(self.members[name], list):
            self.members[name].append(value)
        else:
            self.members[name] = [self.members[name], value]

    def value(self) -> Any:
        text = "".join(self.text).strip()
        if not self.members:
            return text or None
        return self.members | ({"#text": text} if text else {})


class _TreeBuilder:
    """Parser target that builds values; each element named `each` becomes a record and is not kept in memory."""

    def __init__(self, records: Records, each: str | None, lists: Iterable[str]) -> None:
        self._records, self._each, self._lists = records, each, frozenset(lists)
        self._open: list[_Element] = []
        self._record_depth = 0
        self.root: dict[str, Any] = {}

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise ContentInvalid(f"the XML is nested more than {MAX_DEPTH} levels deep")
        element = _Element(_local_name(tag), attributes)
        self._record_depth += element.name == self._each
        self._open.append(element)

    def data(self, text: str) -> None:
        if self._each is None or self._record_depth:
            self._open[-1].text.append(text)

    def end(self, tag: str) -> None:
        element = self._open.pop()
        is_record = element.name == self._each and self._record_depth == 1
        self._record_depth -= element.name == self._each
        if is_record:
            self._records.add(element.value())
        elif self._each is not None and not self._record_depth:
            return
        elif self._open:
            self._open[-1].add(element.name, element.value(), element.name in self._lists)
        else:
            self.root = {element.name: element.value()}

    def close(self) -> None:
        if self._each is None:
            self._records.add(self.root)


def _local_name(tag: str) -> str:
    """The name without its namespace."""
    return tag.rpartition("}")[2]


def parse(request: Request) -> dict[str, Any]:
    """Write one record, `{root: …}`; with `each: name` a record for every such element.  Names have no namespace."""
    from defusedxml.common import DefusedXmlException
    from defusedxml.ElementTree import ParseError, XMLParser

    records = Records(request.output)
    builder = _TreeBuilder(records, request.options.get("each"), request.option("lists", []))
    parser = XMLParser(target=builder, encoding=request.options.get("encoding"), forbid_dtd=True)
    try:
        while chunk := request.content.read(CHUNK):
            parser.feed(chunk)
        parser.close()
    except DefusedXmlException as error:
        raise ContentInvalid("the XML declares a document type or entities, which are not accepted; remove them") from error
    except (ParseError, LookupError, ValueError) as error:
        raise ContentInvalid(f"the content is not valid XML: {str(error)[:160]}") from error
    return {"count": records.count}


def write(request: Request) -> dict[str, Any]:
    """Write the value `{root: …}` as XML, the inverse of `parse`; or rows, each as an element `row` in a root `rows`."""
    from .json_text import parse_json

    if request.option("whole", False):
        value = parse_json(request.content.read().decode(), "`data`")
        if not isinstance(value, dict) or len(value) != 1:
            raise ContentInvalid("`data` must be an object with one member, the root element")
        parts = [_format_element(name, inner, 0) for name, inner in value.items()]
        if isinstance(next(iter(value.values())), list):
            raise ContentInvalid("the value of the root element must not be a list, because a document has only one root")
        request.output.write(f'<?xml version="1.0" encoding="UTF-8"?>\n{"".join(parts)}'.encode())
        return {"count": 1}
    root, row = request.option("root", "rows"), request.option("row", "row")
    request.output.write(f'<?xml version="1.0" encoding="UTF-8"?>\n<{_check_name(root)}>\n'.encode())
    count = 0
    for line in request.content:
        request.output.write(_format_element(row, parse_json(line.decode(), "`data`"), 1).encode())
        count += 1
    request.output.write(f"</{root}>\n".encode())
    return {"count": count}


def _format_element(name: str, value: Any, depth: int) -> str:
    if depth > MAX_DEPTH:
        raise ContentInvalid(f"`data` is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, list):
        return "".join(_format_element(name, item, depth) for item in value)
    indent, checked = "  " * depth, _check_name(name)
    if not isinstance(value, dict):
        text = _format_text(value)
        return f"{indent}<{checked}>{text}</{checked}>\n" if text else f"{indent}<{checked}/>\n"
    attributes = "".join(
        f' {_check_name(key[1:])}="{_format_attribute(scalar_text(inner))}"'
        for key, inner in value.items() if key.startswith("@")
    )  # fmt: skip
    inner = "".join(_format_element(key, each, depth + 1) for key, each in value.items() if key[:1] != "@" and key != "#text")
    text = _format_text(value.get("#text"))
    if not inner:
        return f"{indent}<{checked}{attributes}>{text}</{checked}>\n" if text else f"{indent}<{checked}{attributes}/>\n"
    return f"{indent}<{checked}{attributes}>{text}\n{inner}{indent}</{checked}>\n"


def _format_text(value: Any) -> str:
    if isinstance(value, dict | list):
        raise ContentInvalid("a `#text` member must be a text, a number or a boolean")
    return html.escape(_UNWRITABLE.sub("\ufffd", scalar_text(value)), quote=False).replace("\r", "&#13;")


def _format_attribute(text: str) -> str:
    escaped = html.escape(_UNWRITABLE.sub("\ufffd", text))
    return escaped.replace("\n", "&#10;").replace("\r", "&#13;").replace("\t", "&#9;")


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ContentInvalid(f"{name[:60]!r} cannot be the name of an element or attribute of XML")
    return name
