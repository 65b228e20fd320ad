"""YAML is read by the rules of YAML 1.2, with bounds."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.core import yaml12, yaml_events
from appliance.core.yaml12 import YamlInvalid

APPLIANCE = Path(__file__).parents[2] / "appliance"
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc", "Cn")) | st.sampled_from("\n\t"), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
    | st.sampled_from(["on", "no", "2026-01-31", "1e3", "0x10", "~", "null", "=", "<<", "1_000", "12:30:00", "- a", "a: b", "# x"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on: {push: [no, yes, off]}", {"on": {"push": ["no", "yes", "off"]}}),
        ("day: 2026-01-31", {"day": "2026-01-31"}),
        ("at: 2026-01-31T09:30:00Z", {"at": "2026-01-31T09:30:00Z"}),
        ("[true, True, false, null, ~, ]", [True, True, False, None, None]),
        ("[1, -2, +3, 0x1F, 0o17, 017, 1_000]", [1, -2, 3, 31, 15, 17, "1_000"]),
        ("[1.5, 1e3, .5, 12:30:00]", [1.5, 1000.0, 0.5, "12:30:00"]),
        ("{1: a, true: b, null: c}", {"1": "a", "true": "b", "null": "c"}),
        ("'quoted: no'", "quoted: no"),
        ("<<: {a: 1}", {"<<": {"a": 1}}),
        ("=", "="),
        ("", None),
        ("a: &x [1]\nb: *x", {"a": [1], "b": [1]}),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: Any) -> None:
    assert repr(yaml12.load(text)) == repr(value)
    # A document with an anchor is read by another reader.
    assert repr(yaml12.load(f"--- &all\n{text}")) == repr(value)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: 2\na: 3", 3, "appears twice"),
        ("a: {x: 1, x: 2}", 1, "appears twice"),
        ("a: 1\n'a': 2", 2, "appears twice"),
        ("a: !!python/object/apply:os.system [id]", 1, "not allowed"),
        ("a: !ref x", 1, "not allowed"),
        ("a: !!binary aGk=", 1, "not allowed"),
        ("? [a, b]\n: c", 1, "must be a string"),
        ("a: *nobody", 1, "undefined alias"),
        ("a: &a [*a]", 1, ""),
        ("a: &a {b: *a}", 1, ""),
        ("a: [1, 2", 1, ""),
        ("a:\n\t- b", 2, ""),
        ("a: 1\n---\nb: 2", 2, "another document"),
        ("a: \x01", 1, ""),
        ("a: " + "[" * 65 + "]" * 65, 1, "deeper than 64"),
        ("a: " + "[" * 5000, 1, "deeper than 64"),
        ("- x\n" * 200_001, 1, "too large"),
        ("x" * ((1 << 20) + 1), 1, "larger than 1 MiB"),
        (BOMB, 1, "too many aliases"),
    ],
    ids=range(19),
)
def test_invalid_yaml_is_refused_with_its_line(text: str, line: int, words: str) -> None:
    with pytest.raises(YamlInvalid) as refusal:
        yaml12.load(text)
    assert words in refusal.value.message
    if line > 1:
        assert refusal.value.line == line


def test_a_bomb_is_refused_at_once() -> None:
    few = "a: &a [x,x,x,x]\n" + "".join(
        f"{name}: &{name} [*{before},*{before},*{before},*{before}]\n"
        for before, name in zip("abcdefghijk", "bcdefghijkl", strict=True)
    )
    began = time.monotonic()
    for text in (BOMB, few):
        with pytest.raises(YamlInvalid):
            yaml12.load(text)
    assert time.monotonic() - began < 20


def test_every_value_knows_its_line() -> None:
    _, lines = yaml12.load_with_lines("id: a\nsteps:\n  - id: b\n    when: x\n  -\n    id: c\na/b~c: {d: 1}\n")
    expected = {"/id": 1, "/steps": 2, "/steps/0/id": 3, "/steps/0/when": 4, "/steps/1/id": 6, "/a~1b~0c": 7, "/a~1b~0c/d": 7}
    assert {pointer: lines[pointer] for pointer in expected} == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"name": "\U0001f600 Order"}, "name: \U0001f600 Order\n"),
        ({"name": "\U0001f600\x85"}, 'name: "\\U0001F600\\N"\n'),  # PyYAML's own emitter would lose the \x85
        ({"path": "C:\\Users"}, "path: C:\\Users\n"),
    ],
)
def test_emoji_are_written_as_they_are_where_they_are_read_back(value: Any, text: str) -> None:
    assert yaml12.dump(value) == text
    assert yaml12.load(text) == value


@given(VALUES)
def test_what_is_written_is_read_back(value: Any) -> None:
    assert yaml12.load(yaml12.dump(value)) == value


@pytest.mark.parametrize("load", [yaml12.load_with_lines, yaml12.load_texts])
@given(VALUES, st.booleans())
def test_a_document_with_an_anchor_is_read_like_one_without(load: Callable[[str], Any], value: Any, is_json: bool) -> None:
    text = json.dumps(value, ensure_ascii=False) if is_json else yaml12.dump(value)
    plain, lines = load(text)
    anchored, lines_below = load(f"--- &all\n{text}")
    assert repr(plain) == repr(anchored)
    del lines[""], lines_below[""]  # the value begins with its anchor
    assert lines == {pointer: line - 1 for pointer, line in lines_below.items()}


@pytest.mark.parametrize("path", sorted(APPLIANCE.rglob("*.yaml")), ids=lambda path: path.parent.name)
def test_usual_documents_need_no_nodes(path: Path) -> None:
    assert yaml_events.read(path.read_text("utf8"), {}, max_nodes=10_000, max_depth=64) is not None


@given(st.text(max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    with suppress(YamlInvalid):
        yaml12.load(text)


def test_a_value_that_needs_quotes_is_reported() -> None:
    with pytest.raises(YamlInvalid, match="put a value that contains a colon and a space in quotes"):
        yaml12.load("output: = {total: steps.sum}\n")


PLACES = """a:
  plain: one two
  single: 'one two'
  double: "one two"
  escaped: "one\\ttwo"
  broken: "one
    two"
  literal: |-  # a comment

      one
        two
  folded: >
    one
    two
  empty: |
list: [x, {key/~: y}]
"""


@pytest.mark.parametrize(
    ("pointer", "line", "column", "place"),
    [
        ("/a/plain", 1, 5, (2, 14)), ("/a/single", 1, 5, (3, 16)), ("/a/double", 1, 5, (4, 16)),
        ("/a/escaped", 1, 5, (5, 18)), ("/a/escaped", 1, 99, (5, 21)), ("/a/broken", 1, 6, (7, 6)), ("/a/broken", 9, 1, (7, 8)),
        ("/a/plain", 2, 5, (2, 10)),
        ("/a/literal", 2, 1, (10, 7)), ("/a/literal", 3, 3, (11, 9)), ("/a/folded", 1, 5, (13, 5)), ("/a/empty", 1, 1, (16, 1)),
        ("/list/0", 1, 1, (16, 8)), ("/list/1/key~1~0", 1, 1, (16, 19)),
        ("/a", 1, 1, None), ("/list/2", 1, 1, None), ("/list/x", 1, 1, None), ("/none/at", 1, 1, None),
    ],
)  # fmt: skip
def test_a_position_in_a_text_maps_to_the_document(
    pointer: str, line: int, column: int, place: tuple[int, int] | None
) -> None:
    assert yaml12.find_position(PLACES, pointer, line, column) == place


@pytest.mark.parametrize(
    "text",
    [
        "one\n  two\nthree", "one\n\ntwo's\n\n\nthree\n", "\n\n  one \n\ttwo\n", "äöü\n\u2028\x00two\n\U0001f600 three",
        "x " * 200 + "\n" + "y " * 200, 'a"b\\c\n"two"\n',
    ],
)  # fmt: skip
def test_every_position_of_a_dumped_text_is_found(text: str) -> None:
    document = yaml12.dump({"steps": [{"source": text}]})
    written = document.splitlines()
    for number, each in enumerate(text.split("\n"), 1):
        for column, character in enumerate(each, 1):
            position = yaml12.find_position(document, "/steps/0/source", number, column)
            assert position is not None
            there = written[position[0] - 1][position[1] - 1 :]
            is_broken = not there and character == " "  # where a line that is too long goes on in the next one
            assert there.startswith(character) or there[:1] == "\\" or is_broken, (number, column, there)


def test_no_position_is_found_in_invalid_yaml() -> None:
    for text in ("a: [", "a: \x00"):
        with pytest.raises(yaml12.YamlInvalid):
            yaml12.find_position(text, "/a", 1, 1)
