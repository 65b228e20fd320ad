"""A condition as a decision: no value slips past a comparison by its kind, and what is unknown stays open."""

from typing import Any

import pytest

from appliance.conditions import UNKNOWN, Condition, Incomparable, Placeholder, compile_test, matches, parse
from appliance.conditions.tree import Compare

RECORD = {
    "total": 1500, "price": "99.90", "name": "Ann", "open": True, "tags": ["a", "b"], "none": None,
    "lines": [{"n": 1}, {"n": 7}], "customer": {"country": "DE"},
}  # fmt: skip


def held(document: Any, record: Any = RECORD) -> bool | None:
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
def test_it_answers_as_a_filter_does_where_the_kinds_fit(document: Any) -> None:
    assert held(document) is matches(parse(document), RECORD)


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
def test_a_number_and_a_text_that_spells_it_are_the_same(document: Any, answer: bool) -> None:
    assert held(document) is answer


@pytest.mark.parametrize(
    "document",
    [
        {"name": {"_gt": 5}}, {"tags": {"_gt": 5}}, {"open": {"_lt": 5}}, {"total": {"_starts_with": "1"}},
        {"tags": {"_eq": "a"}}, {"customer": {"_in": ["DE"]}}, {"open": {"_eq": "true"}}, {"name": {"country": "DE"}},
        {"total": {"_lt": "abc"}}, {"customer": {"_contains": "DE"}}, {"nan": {"_gt": 5}},
    ],
)  # fmt: skip
def test_a_value_of_another_kind_is_refused_and_not_told(document: Any) -> None:
    with pytest.raises(Incomparable) as refused:
        held(document, {**RECORD, "nan": float("nan"), "name": "confidential"})
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
def test_what_is_unknown_leaves_the_answer_open_unless_the_rest_settles_it(document: Any, answer: bool | None) -> None:
    assert held(document, {**RECORD, "gone": UNKNOWN, "lines": [{"n": UNKNOWN}, {"n": 7}]}) is answer


@pytest.mark.parametrize("condition", [Compare("a", "_eq", Placeholder(("actor",))), Compare("a", "_in", (Placeholder(("now",)),))])
def test_a_condition_with_placeholders_is_no_decision(condition: Condition) -> None:
    with pytest.raises(TypeError, match="bind the placeholders"):
        compile_test(condition)
