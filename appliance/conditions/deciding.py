"""A condition made into one function that refuses to guess: for decisions that are made often and must not be evaded.

It differs from `matches` where a record may be shaped to slip past a comparison: values of kinds that the condition did
not expect raise Incomparable instead of being false, a number and a text that spells it are the same number, and what is
UNKNOWN leaves the answer open (None) unless the rest of the condition settles it.
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
_LONGEST_NUMBER = 82


class Unknown:
    """Stands for a value that was not kept."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = Unknown()


class Incomparable(ValueError):
    """A value of another kind than the comparison expects; the message names the field and both kinds."""


def make_test(condition: Condition) -> Test:
    """A function from a record to whether it fulfils the (bound) condition; it raises Incomparable."""
    match condition:
        case AllOf(parts):
            return _all(tuple(map(make_test, parts)))
        case AnyOf(parts):
            return _any(tuple(map(make_test, parts)))
        case Inside(name, negated, inner):
            return _inside(name, negated, make_test(inner))
        case Compare(name, operator, value):
            return _compare(name, operator, value)
        case Never():
            return lambda record: False


def _all(tests: Sequence[Test]) -> Test:
    def test(record: Any) -> bool | None:
        is_open = False
        for each in tests:
            found = each(record)
            if found is False:
                return False
            is_open = is_open or found is None
        return None if is_open else True

    return test


def _any(tests: Sequence[Test]) -> Test:
    def test(record: Any) -> bool | None:
        is_open = False
        for each in tests:
            found = each(record)
            if found:
                return True
            is_open = is_open or found is None
        return None if is_open else False

    return test


def _inside(name: str, negated: bool, inner: Test) -> Test:
    def test(record: Any) -> bool | None:
        value = _member(record, name)
        if value is UNKNOWN:
            return None
        if type(value) is dict:
            found = inner(value)
            return None if found is None else found is not negated
        is_open = False
        for candidate in value if isinstance(value, list | tuple) else () if value is None else (value,):
            found = inner(candidate)
            if found:
                return not negated
            is_open = is_open or found is None
        return None if is_open else negated

    return test


def _member(record: Any, name: str) -> Any:
    if name == "":
        return record
    if type(record) is dict:  # nearly always, and much quicker to see than any mapping
        return record.get(name)
    if isinstance(record, Mapping):
        return record.get(name)
    if record is None or record is UNKNOWN:
        return record
    raise Incomparable(f"a member {name!r} is asked of {_named(record)}")


def _compare(name: str, operator: str, operand: Any) -> Test:
    if isinstance(operand, Placeholder) or (isinstance(operand, tuple) and any(isinstance(v, Placeholder) for v in operand)):
        raise TypeError("a condition with placeholders is bound before it is made into a test")
    if operator == "_null":
        return _null(name, operand)
    if_null = operator in ("_neq", "_nin")
    decide = _COMPARISONS[operator](operand)

    def test(record: Any) -> bool | None:
        value = _member(record, name)
        if value is None:
            return if_null
        if value is UNKNOWN:
            return None
        try:
            return decide(value)
        except Incomparable as error:
            raise Incomparable(f"{name or 'an element'}: {error}") from error

    return test


def _null(name: str, wanted: bool) -> Test:
    def test(record: Any) -> bool | None:
        value = _member(record, name)
        return None if value is UNKNOWN else (value is None) is wanted

    return test


def _same(operand: Any) -> Comparison:
    number = _number(operand)

    def decide(value: Any) -> bool:
        if isinstance(value, Mapping | list | tuple) or isinstance(value, bool) != isinstance(operand, bool):
            raise Incomparable(f"{_named(value)} is compared with {_named(operand)}")
        if type(value) is type(operand):
            return bool(value == operand)
        return number is not None and _number(value) == number

    return decide


def _number(value: Any) -> Decimal | None:
    """The number a value is or spells."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        if value - value != 0:
            raise Incomparable(f"{value} is no number to compare")
        return Decimal(repr(value))
    if isinstance(value, int):
        return Decimal(value)
    return _spelt(value) if isinstance(value, str) and len(value) <= _LONGEST_NUMBER else None


@lru_cache(1_024)
def _spelt(text: str) -> Decimal | None:
    return Decimal(text) if _DECIMAL.fullmatch(text) else None


def _ordered(order: Callable[[Any, Any], bool]) -> Callable[[Any], Comparison]:
    def make(operand: Any) -> Comparison:
        is_text = isinstance(operand, str)
        number = None if is_text else _number(operand)

        def decide(value: Any) -> bool:
            if is_text and isinstance(value, str):
                return order(value, operand)
            if number is not None and type(value) is int:
                return order(value, operand)
            other = None if number is None else _number(value)
            if other is None:
                raise Incomparable(f"{_named(value)} is put in order with {_named(operand)}")
            return order(other, number)

        return decide

    return make


def _text(test: Callable[[str, str], bool], *, lists: bool = False) -> Callable[[Any], Comparison]:
    def make(operand: str) -> Comparison:
        same = _same(operand)

        def decide(value: Any) -> bool:
            if isinstance(value, str):
                return test(value, operand)
            if lists and isinstance(value, list | tuple):
                return any(same(item) for item in value if item is not None)
            raise Incomparable(f"a text is sought in {_named(value)}")

        return decide

    return make


def _icontains(value: str, operand: str) -> bool:
    return fold(operand) in fold(value)


def _listed(operands: Any) -> Comparison:
    tests = tuple(map(_same, operands))
    return lambda value: any(test(value) for test in tests)


def _between(operands: Any) -> Comparison:
    least, most = _ordered(ge)(operands[0]), _ordered(le)(operands[1])
    return lambda value: least(value) and most(value)


def _negated(make: Callable[[Any], Comparison]) -> Callable[[Any], Comparison]:
    def negated(operand: Any) -> Comparison:
        decide = make(operand)
        return lambda value: not decide(value)

    return negated


def _named(value: Any) -> str:
    """The kind of a value in words; never the value, which may be confidential."""
    if isinstance(value, bool):
        return "true or false"
    kinds = ((str, "a text"), (int | float, "a number"), (Mapping, "an object"), (list | tuple, "a list"))
    return next((word for kind, word in kinds if isinstance(value, kind)), "nothing")


_COMPARISONS: Mapping[str, Callable[[Any], Comparison]] = {
    "_eq": _same,
    "_neq": _negated(_same),
    "_lt": _ordered(lt),
    "_lte": _ordered(le),
    "_gt": _ordered(gt),
    "_gte": _ordered(ge),
    "_in": _listed,
    "_nin": _negated(_listed),
    "_contains": _text(lambda value, operand: operand in value, lists=True),
    "_icontains": _text(_icontains),
    "_starts_with": _text(str.startswith),
    "_between": _between,
}
