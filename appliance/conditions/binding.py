"""Replaces the placeholders of a condition with values.  An absent value never makes a condition true."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from appliance.conditions.parsing import MAX_LIST, MAX_TEXT
from appliance.conditions.tree import LISTS, TEXT, AllOf, AnyOf, Compare, Condition, Field, Inside, Never, Placeholder

Fields = Mapping[str, Field] | None


def bind(condition: Condition, values: Mapping[str, Any], fields: Fields = None) -> Condition:
    """The condition with placeholders replaced from `values` (`{"actor": …, "request": …, "now": …}`).

    A comparison becomes false, even a negated one, when its placeholder has no value or one that does not fit the field.
    So does a `_none` that contains such a comparison at any depth; otherwise the absent value would make it true.
    """
    return _Binder(values).bind(condition, fields)


class _Absent(Exception):
    """The placeholder has no value that can be compared."""


@dataclass
class _Binder:
    """Binds a tree, and counts the comparisons without a value for the negations around them."""

    values: Mapping[str, Any]
    absent_count: int = 0

    def bind(self, condition: Condition, fields: Fields) -> Condition:
        match condition:
            case AllOf(parts):
                return AllOf(tuple(self.bind(part, fields) for part in parts))
            case AnyOf(parts):
                return AnyOf(tuple(self.bind(part, fields) for part in parts))
            case Inside(name, negated, inner):
                before = self.absent_count
                bound_inner = self.bind(inner, _fields_inside(fields, name))
                return Never() if negated and self.absent_count > before else Inside(name, negated, bound_inner)
            case Compare():
                try:
                    return self._bind_comparison(condition, fields)
                except _Absent:
                    self.absent_count += 1
                    return Never()
            case _:
                return condition

    def _bind_comparison(self, compare: Compare, fields: Fields) -> Compare:
        name, operator, value = compare.field, compare.operator, compare.value
        field = fields[name] if fields else None
        if isinstance(value, tuple):
            operands = tuple(self._bind_operand(operator, part, field) for part in value)
        elif isinstance(value, Placeholder) and operator in LISTS:
            values = self._resolve(value)
            if not isinstance(values, list | tuple) or len(values) > MAX_LIST:
                raise _Absent
            operands = tuple(_convert(operator, part, field) for part in values)
        else:
            return Compare(name, operator, self._bind_operand(operator, value, field))
        return Compare(name, operator, operands)

    def _bind_operand(self, operator: str, value: Any, field: Field | None) -> Any:
        return _convert(operator, self._resolve(value), field) if isinstance(value, Placeholder) else value

    def _resolve(self, placeholder: Placeholder) -> Any:
        value: Any = self.values
        for step in placeholder.path:
            value = value.get(step) if isinstance(value, Mapping) else None
        return value


def _convert(operator: str, value: Any, field: Field | None) -> Any:
    if value is None or isinstance(value, Mapping | list | tuple):
        raise _Absent
    if operator in TEXT and (not isinstance(value, str) or len(value) > MAX_TEXT):
        raise _Absent
    try:
        return field.convert(value) if field else value
    except ValueError as error:
        raise _Absent from error


def _fields_inside(fields: Fields, name: str) -> Fields:
    if fields is None:
        return None
    get_fields = fields[name].inside
    return get_fields() if get_fields else None
