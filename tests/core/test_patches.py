"""JSON merge patches: made and applied as RFC 7396 says."""

from typing import Any

import pytest

from appliance.core.patches import make_patch, merge_patch


@pytest.mark.parametrize(
    ("current", "target", "patch"),
    [
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1, "b": 2}, {"a": 1}, {"b": None}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"x": 3}}, {"a": {"x": 3, "y": None}}),
        ({"a": "deny"}, {"a": {"x": 1}}, {"a": {"x": 1}}),
        ({"a": [1, {"b": 2}]}, {"a": [1]}, {"a": [1]}),
    ],
)
def test_a_patch_turns_the_current_document_into_the_target(
    current: dict[str, Any], target: dict[str, Any], patch: dict[str, Any]
) -> None:
    assert make_patch(current, target) == patch
    assert merge_patch(current, patch) == target


@pytest.mark.parametrize(  # RFC 7396, appendix A
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_patch_is_applied_as_the_rfc_says(target: Any, patch: Any, result: Any) -> None:
    assert merge_patch(target, patch) == result


def test_an_atomic_object_is_replaced_as_a_whole() -> None:
    def is_marker(value: Any) -> bool:
        return "marker" in value

    assert merge_patch({"a": {"x": 1}}, {"a": {"marker": None}}, is_marker) == {"a": {"marker": None}}
    assert merge_patch({"a": {"marker": 1}}, {"a": {"x": 1}}, is_marker) == {"a": {"x": 1}}
