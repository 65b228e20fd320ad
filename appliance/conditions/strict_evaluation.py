"""Compiles a condition into a strict test function, for policy decisions that a crafted record must not evade.

It differs from `matches` in three ways: a value of an unexpected type raises Incomparable instead of comparing as false; a
number equals a text that spells it; an UNKNOWN value makes the result None unless the rest of the condition decides it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from operator import ge, gt, le, lt
from typing import Any

from appliance.conditions.tree import AllOf, AnyOf, Compare, Condition, Inside, Never, Placeholder, fold

Test = Callable[[Any], bool | None]
Comparison = Callable[[Any], bool]
_DECIMAL = re.compile(r"[+-]?\d{1,40}(\.\d{1,40})?", re.ASCII)
_MAX_NUMBER_LENGTH = 82


class Unknown:
    """The type of UNKNOWN, which stands for a value that was not stored."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = Unknown()


class Incomparable(ValueError):
    """A value has another type than the comparison expects; the message names the field and both types."""


def compile_test(condition: Condition) -> Test:
    """Compile a bound condition into a function from a record to True, False or None (undecided); it raises Incomparable."""
    match condition:
        case AllOf(parts):
            return _compile_all(tuple(map(compile_test, parts)))
        case AnyOf(parts):
            return _compile_any(tuple(map(compile_test, parts)))
        case Inside(name, negated, inner):
            return _compile_inside(name, negated, compile_test(inner))
        case Compare(name, operator, value):
            return _compile_comparison(name, operator, value)
        case Never():
            return lambda record: False


def _compile_all(tests: Sequence[Test]) -> Test:
    def test(record: Any) -> bool | None:
        is_undecided = False
        for each in tests:
            result = each(record)
            if result is False:
                return False
            is_undecided = is_undecided or result is None
        return None if is_undecided else True

    return test


def _compile_any(tests: Sequence[Test]) -> Test:
    def test(record: Any) -> bool | None:
        is_undecided = False
        for each in tests:
            result = each(record)
            if result:
                return True
            is_undecided = is_undecided or result is None
        return None if is_undecided else False

    return test


def _compile_inside(name: str, negated: bool, inner: Test) -> Test:
    def test(record: Any) -> bool | None:
        value = _get_member(record, name)
        if value is UNKNOWN:
            return None
        if type(value) is dict:
            result = inner(value)
            return None if result is None else result is not negated
        is_undecided = False
        for candidate in value if isinstance(value, list | tuple) else () if value is None else (value,):
            result = inner(candidate)
            if result:
                return not negated
            is_undecided = is_undecided or result is None
        return None if is_undecided else negated

    return test


def _get_member(record: Any, name: str) -> Any:
    if name == "":
        return record
    if type(record) is dict:  # The common case, and much faster than the check for any Mapping.
        return record.get(name)
    if isinstance(record, Mapping):
        return record.get(name)
    if record is None or record is UNKNOWN:
        return record
    raise Incomparable(f"cannot read the member {name!r} of {_describe_type(record)}")


def _compile_comparison(name: str, operator: str, operand: Any) -> Test:
    if isinstance(operand, Placeholder) or (isinstance(operand, tuple) and any(isinstance(v, Placeholder) for v in operand)):
        raise TypeError("bind the placeholders of a condition before you compile it into a test")
    if operator == "_null":
        return _compile_null(name, operand)
    result_for_null = operator in ("_neq", "_nin")
    decide = _COMPARISONS[operator](operand)

    def test(record: Any) -> bool | None:
        value = _get_member(record, name)
        if value is None:
            return result_for_null
        if value is UNKNOWN:
            return None
        try:
            return decide(value)
        except Incomparable as error:
            raise Incomparable(f"{name or 'an element'}: {error}") from error

    return test


def _compile_null(name: str, expect_null: bool) -> Test:
    def test(record: Any) -> bool | None:
        value = _get_member(record, name)
        return None if value is UNKNOWN else (value is None) is expect_null

    return test


def _compile_equal(operand: Any) -> Comparison:
    number = _parse_number(operand)

    def decide(value: Any) -> bool:
        if isinstance(value, Mapping | list | tuple) or isinstance(value, bool) != isinstance(operand, bool):
            raise Incomparable(f"cannot compare {_describe_type(value)} with {_describe_type(operand)}")
        if type(value) is type(operand):
            return bool(value == operand)
        return number is not None and _parse_number(value) == number

    return decide


def _parse_number(value: Any) -> Decimal | None:
    """The value as a number, also when it is a text that spells one; otherwise None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        if value - value != 0:
            raise Incomparable(f"cannot compare {value}, which is not a finite number")
        return Decimal(repr(value))
    if isinstance(value, int):
        return Decimal(value)
    return _parse_decimal(value) if isinstance(value, str) and len(value) <= _MAX_NUMBER_LENGTH else None


@lru_cache(1_024)
def _parse_decimal(text: str) -> Decimal | None:
    return Decimal(text) if _DECIMAL.fullmatch(text) else None


def _order_compiler(order: Callable[[Any, Any], bool]) -> Callable[[Any], Comparison]:
    def make(operand: Any) -> Comparison:
        is_text = isinstance(operand, str)
        number = None if is_text else _parse_number(operand)

        def decide(value: Any) -> bool:
            if is_text and isinstance(value, str):
                return order(value, operand)
            if number is not None and type(value) is int:
                return order(value, operand)
            other = None if number is None else _parse_number(value)
            if other is None:
                raise Incomparable(f"cannot order {_describe_type(value)} and {_describe_type(operand)}")
            return order(other, number)

        return decide

    return make


def _text_compiler(test: Callable[[str, str], bool], *, lists: bool = False) -> Callable[[Any], Comparison]:
    def make(operand: str) -> Comparison:
        same = _compile_equal(operand)

        def decide(value: Any) -> bool:
            if isinstance(value, str):
                return test(value, operand)
            if lists and isinstance(value, list | tuple):
                return any(same(item) for item in value if item is not None)
            raise Incomparable(f"cannot search for text in {_describe_type(value)}")

        return decide

    return make


def _icontains(value: str, operand: str) -> bool:
    return fold(operand) in fold(value)


def _compile_in(operands: Any) -> Comparison:
    tests = tuple(map(_compile_equal, operands))
    return lambda value: any(test(value) for test in tests)


def _compile_between(operands: Any) -> Comparison:
    is_at_least, is_at_most = _order_compiler(ge)(operands[0]), _order_compiler(le)(operands[1])
    return lambda value: is_at_least(value) and is_at_most(value)


def _negate(make: Callable[[Any], Comparison]) -> Callable[[Any], Comparison]:
    def negated(operand: Any) -> Comparison:
        decide = make(operand)
        return lambda value: not decide(value)

    return negated


def _describe_type(value: Any) -> str:
    """The type of a value in words, for error messages; never the value itself, which may be confidential."""
    if isinstance(value, bool):
        return "true or false"
    kinds = ((str, "a text"), (int | float, "a number"), (Mapping, "an object"), (list | tuple, "a list"))
    return next((word for kind, word in kinds if isinstance(value, kind)), "nothing")


_COMPARISONS: Mapping[str, Callable[[Any], Comparison]] = {
    "_eq": _compile_equal,
    "_neq": _negate(_compile_equal),
    "_lt": _order_compiler(lt),
    "_lte": _order_compiler(le),
    "_gt": _order_compiler(gt),
    "_gte": _order_compiler(ge),
    "_in": _compile_in,
    "_nin": _negate(_compile_in),
    "_contains": _text_compiler(lambda value, operand: operand in value, lists=True),
    "_icontains": _text_compiler(_icontains),
    "_starts_with": _text_compiler(str.startswith),
    "_between": _compile_between,
}
