"""JSON, XML and plain text: strict reading, a mapping that comes back, attacks refused."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.formats import FormatFailed
from appliance.formats.errors import ContentInvalid
from appliance.formats.json_text import parse_json

from .conftest import Perform

FailureOf = Callable[..., FormatFailed]
NAMES = st.from_regex(r"[a-z][a-z0-9_.-]{0,8}", fullmatch=True)
TEXTS = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1, max_size=12).filter(str.strip)
ELEMENTS = st.recursive(
    st.none() | TEXTS,
    lambda inner: st.dictionaries(NAMES, inner | st.lists(inner, min_size=2, max_size=3), min_size=1, max_size=4),
    max_leaves=8,
)


def test_json_comes_out_as_it_is(perform: Perform) -> None:
    value = {"a": [1, 2.5, None, True, "ä\n"], "b": {"c": {}}}
    assert perform("parse.json", json.dumps(value).encode()).records == [value]
    assert perform("parse.json", json.dumps(value).encode("utf-16")).records == [value]
    assert perform("parse.json", b"[1,2]", each=True).records == [1, 2]
    assert perform("parse.ndjson", b'{"a":1}\n\n[2]\r\n').records == [{"a": 1}, [2]]


def test_integers_that_would_round_travel_as_text() -> None:
    assert parse_json("[9007199254740993, 9007199254740992]", "it") == ["9007199254740993", 9007199254740992]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1,]", '{"a":1,"a":2}', "NaN", "1e999", '"\\u0000"', '"\\ud800"', "[" * 200 + "]" * 200, "[" * 100_000, "// x\n1"],
)
def test_json_that_cannot_be_stored_is_refused(text: str) -> None:
    with pytest.raises(ContentInvalid):
        parse_json(text, "the content")


def test_a_broken_line_is_named(failure_of: FailureOf) -> None:
    assert failure_of("parse.ndjson", b'{"a":1}\n{"a"\n').message.startswith("line 2 is not valid JSON")
    assert "must be a list" in failure_of("parse.json", b"{}", each=True).message


def test_rows_are_written_as_json_and_lines(perform: Perform) -> None:
    rows = b'{"a":1}\n{"a":"\xc3\xa4"}\n'
    assert json.loads(perform("write.json", rows).content) == [{"a": 1}, {"a": "ä"}]
    assert perform("write.ndjson", rows).content == rows
    assert json.loads(perform("write.json", b'{"x":1}\n', whole=True).content) == {"x": 1}
    assert json.loads(perform("write.json", b"").content) == []


def test_xml_becomes_members_lists_and_attributes(perform: Perform) -> None:
    content = b'<o:order xmlns:o="urn:x" no="7"><line>a</line><line q="2">b</line><note/><to> M\xc3\xbcller </to></o:order>'
    assert perform("parse.xml", content).records == [
        {"order": {"@no": "7", "line": ["a", {"@q": "2", "#text": "b"}], "note": None, "to": "Müller"}}
    ]
    assert perform("parse.xml", content, each="line").records == ["a", {"@q": "2", "#text": "b"}]
    assert perform("parse.xml", b"<a><b>1</b></a>", lists=["b"]).records == [{"a": {"b": ["1"]}}]


@settings(max_examples=15, deadline=None)
@given(st.dictionaries(NAMES, ELEMENTS, min_size=1, max_size=1))
def test_what_is_written_as_xml_is_read_back(perform: Perform, value: dict[str, Any]) -> None:
    written = perform("write.xml", json.dumps(value).encode(), whole=True)
    assert perform("parse.xml", written.content).records == [_trimmed(value)]


def _trimmed(value: Any) -> Any:
    """As XML keeps it: text without white space around it."""
    if isinstance(value, dict):
        return {name: _trimmed(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_trimmed(each) for each in value]
    return value.strip() if isinstance(value, str) else value


BOMB = (
    b'<!DOCTYPE z [<!ENTITY a "aaaaaaaaaa">'
    + b"".join(
        b'<!ENTITY a%d "&a%s;&a%s;">' % (n, b"%d" % (n - 1) if n > 1 else b"", b"%d" % (n - 1) if n > 1 else b"")
        for n in range(1, 40)
    )
    + b"]><z>&a39;</z>"
)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (BOMB, "document type"),
        (b'<!DOCTYPE x [<!ENTITY f SYSTEM "file:///etc/passwd">]><x>&f;</x>', "document type"),
        (b'<!DOCTYPE x SYSTEM "http://127.0.0.1/x.dtd"><x/>', "document type"),
        (b"<a>" * 200 + b"</a>" * 200, "nested more than"),
        (b"<a><b></a>", "not valid XML"),
        (b"", "not valid XML"),
        (b"<a>\x00</a>", "not valid XML"),
        (b'<?xml version="1.0" encoding="klingon"?><a/>', "not valid XML"),
    ],
)
def test_hostile_or_invalid_xml_is_refused(failure_of: FailureOf, content: bytes, expected: str) -> None:
    assert expected in failure_of("parse.xml", content).message


@pytest.mark.parametrize("value", [{"a b": 1}, {"a": 1, "b": 2}, {"a": [1, 2]}, {"a": {"#text": []}}, [1], {"a": {"@<": "x"}}])
def test_values_that_xml_cannot_express_are_refused(failure_of: FailureOf, value: Any) -> None:
    assert failure_of("write.xml", json.dumps(value).encode(), whole=True).code == "content_invalid"


def test_text_is_decoded_and_encoded(perform: Perform, failure_of: FailureOf) -> None:
    result = perform("parse.text", "Schöne Grüße\r\naus Köln\r".encode("cp1252"))
    assert (result.records, result.facts["encoding"]) == (["Schöne Grüße\naus Köln\n"], "cp1252")
    assert perform("write.text", "Grüße".encode(), encoding="latin-1").content == "Grüße".encode("latin-1")
    assert "NUL" in failure_of("parse.text", b"a\x00b", encoding="utf-8").message
    assert "use utf-8" in failure_of("write.text", "中".encode(), encoding="ascii").message
