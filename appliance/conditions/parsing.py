"""Parses the JSON of a filter into its tree.  Limits its size; every error has a JSON pointer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from appliance.conditions.tree import (
    GROUPS,
    INSIDE,
    LISTS,
    OPERATORS,
    OPERATORS_BY_KIND,
    TEXT,
    AllOf,
    AnyOf,
    Compare,
    Condition,
    Field,
    Inside,
    Placeholder,
)
from appliance.core.errors import InvalidFilter
from appliance.core.sentences import Sentence

MAX_DEPTH = 12
MAX_COMPARISONS = 200
MAX_LIST = 1_000
MAX_TEXT = 1_000
ROOTS = ("actor", "request", "now")

Fields = Mapping[str, Field] | None


def parse(document: Any, fields: Fields = None, *, pointer: str = "") -> Condition:
    """Parse a filter such as `{"total": {"_gt": 100}, "_or": [...]}`; InvalidFilter has a pointer to the invalid part.

    With `fields`, names, operators and values are validated and values converted; without, any name is accepted.  A bare
    value means `_eq`, a bare null means `_null`, and an object without operators is a filter on the content of the field.
    The texts `$now`, `$actor…` and `$request…` are placeholders; for `_in` and `_nin`, one may stand for the whole list.
    Write a literal text that starts like a placeholder with a leading backslash.
    """
    return _Parser().parse_mapping(document, fields, pointer, 0)


@dataclass
class _Parser:
    """Parses one filter and limits its number of comparisons."""

    comparisons: int = 0

    def parse_mapping(self, document: Any, fields: Fields, pointer: str, depth: int) -> Condition:
        if not isinstance(document, Mapping):
            _reject('a filter must be an object such as {"total": {"_gt": 100}}', pointer)
        if depth > MAX_DEPTH:
            _reject(Sentence("a filter can be nested at most %(max_depth)s levels deep", max_depth=MAX_DEPTH), pointer)
        parts: list[Condition] = []
        for name, value in document.items():
            here = f"{pointer}/{_escape(name)}"
            if name in GROUPS:
                parts.append(self._parse_group(name, value, fields, (here, depth)))
            elif name.startswith("_") and (fields is None or name not in fields):
                _reject(
                    Sentence(
                        "%(name)s is not allowed here: operators belong inside a field; groups are _and and _or",
                        name=repr(name[:60]),
                    ),
                    here,
                )
            else:
                parts.append(self._parse_member(name, value, _find_field(fields, name, here), (here, depth)))
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    def _parse_group(self, name: str, value: Any, fields: Fields, place: tuple[str, int]) -> Condition:
        here, depth = place
        items = _check_list(name, value, here)
        parts = tuple(self.parse_mapping(item, fields, f"{here}/{index}", depth + 1) for index, item in enumerate(items))
        return AllOf(parts) if name == "_and" else AnyOf(parts)

    def _parse_member(self, name: str, value: Any, field: Field | None, place: tuple[str, int]) -> Condition:
        here, depth = place
        if not isinstance(value, Mapping):
            return self._parse_comparison(name, "_eq", value, (field, here))
        if depth > MAX_DEPTH:
            _reject(Sentence("a filter can be nested at most %(max_depth)s levels deep", max_depth=MAX_DEPTH), here)
        if not value:
            _reject('the operator is missing; write for example {"_eq": …}', here)
        if not all(operator.startswith("_") for operator in value):
            return self._parse_inside(name, "_some", value, (field, here, depth))
        parts: list[Condition] = []
        for operator, operand in value.items():
            operator_pointer = f"{here}/{_escape(operator)}"
            if operator in GROUPS:
                items = _check_list(operator, operand, operator_pointer)
                group = tuple(
                    self._parse_member(name, item, field, (f"{operator_pointer}/{i}", depth + 1)) for i, item in enumerate(items)
                )
                parts.append(AllOf(group) if operator == "_and" else AnyOf(group))
            elif operator in INSIDE:
                parts.append(self._parse_inside(name, operator, operand, (field, operator_pointer, depth)))
            else:
                parts.append(self._parse_comparison(name, operator, operand, (field, operator_pointer)))
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    def _parse_inside(self, name: str, operator: str, value: Any, place: tuple[Field | None, str, int]) -> Condition:
        field, here, depth = place
        if field is not None and field.inside is None:
            _reject(Sentence("the field %(name)s has no members; compare the field itself", name=repr(name)), here)
        fields = field.inside() if field is not None and field.inside else None
        if fields is None and isinstance(value, Mapping) and value and all(key in OPERATORS for key in value):
            inner = self._parse_member("", value, None, (here, depth + 1))
        else:
            inner = self.parse_mapping(value, fields, here, depth + 1)
        return Inside(name, operator == "_none", inner)

    def _parse_comparison(self, name: str, operator: str, value: Any, place: tuple[Field | None, str]) -> Condition:
        field, here = place
        self.comparisons += 1
        if self.comparisons > MAX_COMPARISONS:
            _reject(
                Sentence("a filter can contain at most %(max_comparisons)s comparisons", max_comparisons=MAX_COMPARISONS), here
            )
        if operator not in OPERATORS:
            _reject(
                Sentence(
                    "%(operator)s is not an operator; use one of %(operators)s",
                    operator=repr(operator[:60]), operators=", ".join((*OPERATORS, *GROUPS)),
                ),
                here,
            )
        if field is not None and operator not in OPERATORS_BY_KIND[field.kind]:
            operators = ", ".join(sorted(OPERATORS_BY_KIND[field.kind]))
            _reject(
                Sentence(
                    "%(operator)s cannot be used with the field %(name)s; use one of %(operators)s",
                    operator=operator, name=repr(name), operators=operators,
                ),
                here,
            )
        if value is None and operator in ("_eq", "_neq"):
            return Compare(name, "_null", operator == "_eq")
        if operator == "_null":
            if not isinstance(value, bool):
                _reject("_null needs true or false", here)
            return Compare(name, "_null", value)
        return Compare(name, operator, _parse_operand(operator, value, field, here))


def _check_list(name: str, value: Any, here: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple) or not value:
        _reject(Sentence("%(name)s needs a list of at least one filter", name=name), here)
    return value


def _parse_operand(operator: str, value: Any, field: Field | None, here: str) -> Any:
    if operator in LISTS and isinstance(value, str) and _is_placeholder(value):
        return _parse_scalar(value, None, here)
    if operator in LISTS or operator == "_between":
        if not isinstance(value, list | tuple) or len(value) > MAX_LIST:
            _reject(
                Sentence("%(operator)s needs a list of at most %(max_list)s values", operator=operator, max_list=MAX_LIST), here
            )
        if operator == "_between" and len(value) != 2:
            _reject("_between needs a list of two values, the smallest and the largest", here)
        return tuple(_parse_scalar(item, field, f"{here}/{index}") for index, item in enumerate(value))
    if operator in TEXT:
        if not isinstance(value, str) or len(value) > MAX_TEXT:
            _reject(
                Sentence("%(operator)s needs a text of at most %(max_text)s characters", operator=operator, max_text=MAX_TEXT), here
            )
        return _parse_scalar(value, None, here)
    return _parse_scalar(value, field, here)


def _parse_scalar(value: Any, field: Field | None, here: str) -> Any:
    if isinstance(value, str):
        if "\x00" in value or not _is_encodable(value):
            _reject("a text must not contain a NUL character (U+0000) or an unpaired surrogate", here)
        if _is_placeholder(value):
            return Placeholder(tuple(value[1:].split(".")))
        if value.startswith("\\") and _is_placeholder(value[1:]):
            value = value[1:]
    if value is None:
        _reject('null cannot be compared here; use {"_null": true}', here)
    if field is None:
        if not isinstance(value, str | int | float):
            _reject("a value to compare with must be a text, a number, true or false", here)
        return value
    try:
        return field.convert(value)
    except ValueError as error:
        _reject(str(error), here)


def _is_placeholder(text: str) -> bool:
    return text.startswith("$") and text[1:].split(".", maxsplit=1)[0] in ROOTS


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _find_field(fields: Fields, name: str, here: str) -> Field | None:
    if fields is None:
        return None
    if name not in fields:
        _reject(
            Sentence(
                "there is no field %(name)s; use one of %(fields)s", name=repr(name[:60]), fields=", ".join(sorted(fields))[:500]
            ),
            here,
        )
    return fields[name]


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _reject(message: str, pointer: str) -> NoReturn:
    raise InvalidFilter(message, pointer=pointer)
