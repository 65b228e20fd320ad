"""Values are formatted for pages: figures as the columns of a chart, JSON as indented text."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from appliance.console.frame.formatting import columns_of, pretty
from appliance.monitor import Summary

TEXTS = st.text(st.sampled_from('ab"\\\n{}[],: ä😀'), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=60) | st.dictionaries(TEXTS, inner, max_size=4),
)


def point(good: int, bad: int) -> Summary:
    summary = Summary()
    for result, count in (("succeeded", good), ("failed", bad)):
        summary.add(result, 0, (count, 0.0, None, None))
    return summary


def test_columns_are_stacked_with_failures_at_the_bottom() -> None:
    columns = columns_of([(0, point(0, 0)), (1, point(3, 1)), (2, point(2, 0))], 30, 20, 1)
    assert columns.none == "M0.0 18h9.0v2h-9.0z"
    assert columns.good == "M10.0 0.0h9.0v15.0h-9.0zM20.0 10.0h9.0v10.0h-9.0z"
    assert columns.bad == "M10.0 15.0h9.0v5.0h-9.0z"


@given(VALUES, st.integers(0, 400))
def test_of_a_long_value_the_beginning_is_shown_with_the_size_of_the_whole(value: Any, most: int) -> None:
    whole = (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)).encode()
    excerpt = pretty(value, most)
    if len(whole) <= most:
        assert (excerpt.text, excerpt.size) == (whole.decode(), None)
    else:
        assert (excerpt.text, excerpt.size) == (whole[:most].decode(errors="ignore"), len(whole))
