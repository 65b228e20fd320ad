"""Evaluates a condition in Python, on one record."""

from collections.abc import Callable, Mapping
from typing import Any

from appliance.conditions.tree import AllOf, AnyOf, Compare, Condition, Field, Inside, Never, check_bound, fold

Fields = Mapping[str, Field] | None


def matches(condition: Condition, record: Any, fields: Fields = None) -> bool:
    """Whether the record matches a bound condition.

    With `fields`, the values of the record are converted in the same way as those of the condition.  Values of types that
    cannot be compared, such as a text and a number, are neither equal nor ordered.  A reference is expected to contain the
    related object, a list of them, or null.
    """
    match condition:
        case AllOf(parts):
            return all(matches(part, record, fields) for part in parts)
        case AnyOf(parts):
            return any(matches(part, record, fields) for part in parts)
        case Inside(name, negated, inner):
            return _matches_inside(_get_member(record, name), inner, fields[name] if fields else None) != negated
        case Compare(name, operator, value):
            left = _get_member(record, name)
            if fields is not None and left is not None:
                left = fields[name].convert(left)
            return _compare(operator, left, value)
        case Never():
            return False


def _get_member(record: Any, name: str) -> Any:
    if name == "":
        return record
    return record.get(name) if isinstance(record, Mapping) else None


def _matches_inside(value: Any, condition: Condition, field: Field | None) -> bool:
    fields = field.inside() if field is not None and field.inside else None
    candidates = value if isinstance(value, list | tuple) else [] if value is None else [value]
    return any(matches(condition, candidate, fields) for candidate in candidates)


def _compare(operator: str, left: Any, right: Any) -> bool:
    check_bound(right)
    if operator == "_null":
        return (left is None) is right
    if left is None:
        return operator in ("_neq", "_nin")
    return _COMPARISONS[operator](left, right)


def _equals(left: Any, right: Any) -> bool:
    return _comparison_type(left) is _comparison_type(right) and bool(left == right)


def _comparison_type(value: Any) -> type:
    return float if isinstance(value, int | float) and not isinstance(value, bool) else type(value)


def _order(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compare(left: Any, right: Any) -> bool:
        return _comparison_type(left) is _comparison_type(right) and isinstance(left, str | int | float) and test(left, right)

    return compare


def _contains(left: Any, right: str) -> bool:
    return right in left if isinstance(left, str | list) else False


def _between(left: Any, right: tuple[Any, Any]) -> bool:
    return _COMPARISONS["_gte"](left, right[0]) and _COMPARISONS["_lte"](left, right[1])


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "_eq": _equals,
    "_neq": lambda left, right: not _equals(left, right),
    "_lt": _order(lambda left, right: left < right),
    "_lte": _order(lambda left, right: left <= right),
    "_gt": _order(lambda left, right: left > right),
    "_gte": _order(lambda left, right: left >= right),
    "_in": lambda left, right: any(_equals(left, item) for item in right),
    "_nin": lambda left, right: not any(_equals(left, item) for item in right),
    "_contains": _contains,
    "_icontains": lambda left, right: isinstance(left, str) and fold(right) in fold(left),
    "_starts_with": lambda left, right: isinstance(left, str) and left.startswith(right),
    "_between": _between,
}
