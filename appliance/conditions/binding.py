"""From a condition with placeholders to one of values; what is absent never opens a door."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from appliance.conditions.parsing import MAX_LIST, MAX_TEXT
from appliance.conditions.tree import LISTS, TEXT, AllOf, AnyOf, Compare, Condition, Field, Inside, Never, Placeholder

Fields = Mapping[str, Field] | None


def bind(condition: Condition, values: Mapping[str, Any], fields: Fields = None) -> Condition:
    """The condition with placeholders replaced from `values` (`{"actor": …, "request": …, "now": …}`).

    A comparison whose placeholder has no value, or one that does not fit the field, becomes false, also a negated one;
    and so does a `_none` that holds such a comparison, however deep: that nothing absent was found proves nothing.
    """
    return _Binder(values).bound(condition, fields)


class _Absent(Exception):
    """The placeholder has no value that could be compared."""


@dataclass
class _Binder:
    """Counts the comparisons that had no value, for the negations around them."""

    values: Mapping[str, Any]
    absent: int = 0

    def bound(self, condition: Condition, fields: Fields) -> Condition:
        match condition:
            case AllOf(parts):
                return AllOf(tuple(self.bound(part, fields) for part in parts))
            case AnyOf(parts):
                return AnyOf(tuple(self.bound(part, fields) for part in parts))
            case Inside(name, negated, inner):
                before = self.absent
                found = self.bound(inner, _inside(fields, name))
                return Never() if negated and self.absent > before else Inside(name, negated, found)
            case Compare():
                try:
                    return self._comparison(condition, fields)
                except _Absent:
                    self.absent += 1
                    return Never()
            case _:
                return condition

    def _comparison(self, compare: Compare, fields: Fields) -> Compare:
        name, operator, value = compare.field, compare.operator, compare.value
        field = fields[name] if fields else None
        if isinstance(value, tuple):
            several = tuple(self._operand(operator, part, field) for part in value)
        elif isinstance(value, Placeholder) and operator in LISTS:
            found = self._resolved(value)
            if not isinstance(found, list | tuple) or len(found) > MAX_LIST:
                raise _Absent
            several = tuple(_fitting(operator, part, field) for part in found)
        else:
            return Compare(name, operator, self._operand(operator, value, field))
        return Compare(name, operator, several)

    def _operand(self, operator: str, value: Any, field: Field | None) -> Any:
        return _fitting(operator, self._resolved(value), field) if isinstance(value, Placeholder) else value

    def _resolved(self, placeholder: Placeholder) -> Any:
        value: Any = self.values
        for step in placeholder.path:
            value = value.get(step) if isinstance(value, Mapping) else None
        return value


def _fitting(operator: str, value: Any, field: Field | None) -> Any:
    if value is None or isinstance(value, Mapping | list | tuple):
        raise _Absent
    if operator in TEXT and (not isinstance(value, str) or len(value) > MAX_TEXT):
        raise _Absent
    try:
        return field.convert(value) if field else value
    except ValueError as error:
        raise _Absent from error


def _inside(fields: Fields, name: str) -> Fields:
    if fields is None:
        return None
    reach = fields[name].inside
    return reach() if reach else None
