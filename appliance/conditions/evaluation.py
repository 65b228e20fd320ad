"""A condition decided in Python, on one record."""

from collections.abc import Callable, Mapping
from typing import Any

from appliance.conditions.tree import AllOf, AnyOf, Compare, Condition, Field, Inside, Never, fold, refuse_placeholders

Fields = Mapping[str, Field] | None


def matches(condition: Condition, record: Any, fields: Fields = None) -> bool:
    """Whether the record fulfils the (bound) condition.

    With `fields`, the record's values are converted as the condition's were.  Values of kinds that cannot be compared
    (a text with a number) are unequal and unordered.  A reference holds what it leads to: an object, a list, or null.
    """
    match condition:
        case AllOf(parts):
            return all(matches(part, record, fields) for part in parts)
        case AnyOf(parts):
            return any(matches(part, record, fields) for part in parts)
        case Inside(name, negated, inner):
            return _inside(_member(record, name), inner, fields[name] if fields else None) != negated
        case Compare(name, operator, value):
            left = _member(record, name)
            if fields is not None and left is not None:
                left = fields[name].convert(left)
            return _compare(operator, left, value)
        case Never():
            return False


def _member(record: Any, name: str) -> Any:
    if name == "":
        return record
    return record.get(name) if isinstance(record, Mapping) else None


def _inside(value: Any, condition: Condition, field: Field | None) -> bool:
    fields = field.inside() if field is not None and field.inside else None
    candidates = value if isinstance(value, list | tuple) else [] if value is None else [value]
    return any(matches(condition, candidate, fields) for candidate in candidates)


def _compare(operator: str, left: Any, right: Any) -> bool:
    refuse_placeholders(right)
    if operator == "_null":
        return (left is None) is right
    if left is None:
        return operator in ("_neq", "_nin")
    return _COMPARISONS[operator](left, right)


def _same(left: Any, right: Any) -> bool:
    return _kind(left) is _kind(right) and bool(left == right)


def _kind(value: Any) -> type:
    return float if isinstance(value, int | float) and not isinstance(value, bool) else type(value)


def _ordered(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compare(left: Any, right: Any) -> bool:
        return _kind(left) is _kind(right) and isinstance(left, str | int | float) and test(left, right)

    return compare


def _contains(left: Any, right: str) -> bool:
    return right in left if isinstance(left, str | list) else False


def _between(left: Any, right: tuple[Any, Any]) -> bool:
    return _COMPARISONS["_gte"](left, right[0]) and _COMPARISONS["_lte"](left, right[1])


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "_eq": _same,
    "_neq": lambda left, right: not _same(left, right),
    "_lt": _ordered(lambda left, right: left < right),
    "_lte": _ordered(lambda left, right: left <= right),
    "_gt": _ordered(lambda left, right: left > right),
    "_gte": _ordered(lambda left, right: left >= right),
    "_in": lambda left, right: any(_same(left, item) for item in right),
    "_nin": lambda left, right: not any(_same(left, item) for item in right),
    "_contains": _contains,
    "_icontains": lambda left, right: isinstance(left, str) and fold(right) in fold(left),
    "_starts_with": lambda left, right: isinstance(left, str) and left.startswith(right),
    "_between": _between,
}
