"""A condition as a decision: no value evades a comparison by its type, and unknown values stay undecided."""

from typing import Any

import pytest

from appliance.conditions import UNKNOWN, Condition, Incomparable, Placeholder, compile_test, matches, parse
from appliance.conditions.tree import Compare

RECORD = {
    "total": 1500, "price": "99.90", "name": "Ann", "open": True, "tags": ["a", "b"], "none": None,
    "lines": [{"n": 1}, {"n": 7}], "customer": {"country": "DE"},
}  # fmt: skip


def decide(document: Any, record: Any = RECORD) -> bool | None:
    return compile_test(parse(document))(record)


@pytest.mark.parametrize(
    "document",
    [
        {"total": {"_gt": 1000}}, {"total": {"_gt": 2000}}, {"total": {"_between": [1, 1500]}}, {"total": {"_in": [1, 1500]}},
        {"total": {"_nin": [1, 1500]}}, {"name": "Ann"}, {"name": {"_neq": "Ann"}}, {"name": {"_lt": "B"}},
        {"name": {"_icontains": "aN"}}, {"name": {"_starts_with": "B"}}, {"open": True}, {"open": {"_neq": True}},
        {"none": None}, {"none": {"_gt": 1}}, {"none": {"_neq": 1}}, {"absent": {"_null": False}}, {"tags": {"_contains": "b"}},
        {"lines": {"n": {"_gt": 5}}}, {"lines": {"_none": {"n": {"_gt": 5}}}}, {"tags": {"_some": {"_eq": "a"}}},
        {"customer": {"country": "DE"}}, {"_or": [{"total": 1}, {"name": "Ann"}]}, {"_and": [{"total": 1}, {"name": "Ann"}]},
    ],
)  # fmt: skip
def test_a_decision_agrees_with_a_filter_when_types_match(document: Any) -> None:
    assert decide(document) is matches(parse(document), RECORD)


@pytest.mark.parametrize(
    ("document", "answer"),
    [
        ({"price": {"_gt": 99}}, True),
        ({"price": {"_lt": 99}}, False),
        ({"price": {"_eq": 99.9}}, True),
        ({"price": {"_in": [1, 99.9]}}, True),
        ({"total": {"_eq": "1500"}}, True),
        ({"total": {"_neq": "1500.00"}}, False),
        ({"price": {"_eq": "99.9"}}, False),
    ],
)
def test_numeric_text_compares_as_a_number(document: Any, answer: bool) -> None:
    assert decide(document) is answer


@pytest.mark.parametrize(
    "document",
    [
        {"name": {"_gt": 5}}, {"tags": {"_gt": 5}}, {"open": {"_lt": 5}}, {"total": {"_starts_with": "1"}},
        {"tags": {"_eq": "a"}}, {"customer": {"_in": ["DE"]}}, {"open": {"_eq": "true"}}, {"name": {"country": "DE"}},
        {"total": {"_lt": "abc"}}, {"customer": {"_contains": "DE"}}, {"nan": {"_gt": 5}},
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_refused_and_not_revealed(document: Any) -> None:
    with pytest.raises(Incomparable) as refused:
        decide(document, {**RECORD, "nan": float("nan"), "name": "confidential"})
    assert "confidential" not in str(refused.value)


@pytest.mark.parametrize(
    ("document", "answer"),
    [
        ({"gone": {"_gt": 5}}, None),
        ({"gone": {"_null": True}}, None),
        ({"gone": {"inside": 1}}, None),
        ({"gone": 1, "total": 1500}, None),
        ({"gone": 1, "total": 1}, False),
        ({"_or": [{"gone": 1}, {"total": 1500}]}, True),
        ({"_or": [{"gone": 1}, {"total": 1}]}, None),
        ({"lines": {"_some": {"n": 7}}}, True),
        ({"lines": {"_some": {"n": 9}}}, None),
        ({"lines": {"_none": {"n": 9}}}, None),
        ({"lines": {"_none": {"n": 7}}}, False),
    ],
)
def test_an_unknown_value_leaves_the_decision_open_unless_the_rest_decides(document: Any, answer: bool | None) -> None:
    assert decide(document, {**RECORD, "gone": UNKNOWN, "lines": [{"n": UNKNOWN}, {"n": 7}]}) is answer


@pytest.mark.parametrize("condition", [Compare("a", "_eq", Placeholder(("actor",))), Compare("a", "_in", (Placeholder(("now",)),))])
def test_an_unbound_condition_cannot_decide(condition: Condition) -> None:
    with pytest.raises(TypeError, match="bind the placeholders"):
        compile_test(condition)
