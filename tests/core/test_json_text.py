"""JSON from outside: what is nested too deeply is refused, however it is written."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.core import json_text
from appliance.core.errors import InvalidJson, PayloadTooLarge
from appliance.core.json_text import load_json, refuse_doubled

TEXTS = st.text(alphabet='[]{}"\\\u00e9a', max_size=6)
VALUES = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda each: st.lists(each, max_size=3) | st.dictionaries(TEXTS, each, max_size=3),
    max_leaves=12,
)


def depth_of(value: Any) -> int:
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if members is None else 1 + max(map(depth_of, members), default=0)


@given(VALUES, st.integers(min_value=1, max_value=5))
def test_the_depth_counts_brackets_outside_of_strings(value: Any, most: int) -> None:
    raw = json.dumps(value).encode()
    if depth_of(value) > most:
        with pytest.raises(PayloadTooLarge):
            load_json(raw, most)
    else:
        assert load_json(raw, most) == value


@pytest.mark.parametrize("raw", [b'["a, [[[[]]]]', b"[[[[}}}}", b"]]]][[[[", b'"\\"[[[[]]]]', b"[{]}[{]}"])
def test_brackets_that_do_not_match_are_no_json(raw: bytes) -> None:
    with pytest.raises((InvalidJson, PayloadTooLarge)):
        load_json(raw, 2)


def test_a_duplicate_member_is_found_in_linear_time() -> None:
    compared: list[str] = []

    class Name(str):
        """A name that records each comparison."""

        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            compared.append(self)
            return str.__eq__(self, str(other))

    pairs: list[tuple[str, Any]] = [(Name(f"a{number}"), 0) for number in range(500)]
    assert json_text._Members.of([*pairs, (Name("a499"), 0)]).doubled == "a499"
    assert len(compared) < 2_000, "comparing each name with all before it takes minutes for one body of a megabyte"


def test_a_duplicate_member_is_found_in_utf_16() -> None:
    raw = '{"a":1,"a":"\u223a"}'.encode("utf-16-be")  # its two bytes are those of a colon and a quotation mark, the other way round
    with pytest.raises(InvalidJson, match="'a' appears twice"):
        refuse_doubled(raw, json.loads(raw))
