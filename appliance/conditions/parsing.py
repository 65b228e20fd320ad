"""From the JSON of a filter to its tree, within bounds and with a pointer to whatever is wrong."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from appliance.conditions.tree import (
    ALLOWED,
    GROUPS,
    INSIDE,
    LISTS,
    OPERATORS,
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
    """The tree of a filter such as `{"total": {"_gt": 100}, "_or": [...]}`; InvalidFilter points at what is wrong.

    With `fields`, names, operators and values are checked and values converted; without, any name is accepted.  A bare
    value means `_eq`, a bare null `_null`, an object without operators describes what lies inside the field.  The texts
    `$now`, `$actor…` and `$request…` are placeholders, for `_in` and `_nin` also in the place of the whole list; a literal
    that begins so is written with a backslash before it.
    """
    return _Parser().mapping(document, fields, pointer, 0)


@dataclass
class _Parser:
    """Counts what it has read, so that a filter stays affordable."""

    comparisons: int = 0

    def mapping(self, document: Any, fields: Fields, pointer: str, depth: int) -> Condition:
        if not isinstance(document, Mapping):
            _refuse('a filter is an object such as {"total": {"_gt": 100}}', pointer)
        if depth > MAX_DEPTH:
            _refuse(Sentence("a filter may be nested %(max_depth)s levels deep at most", max_depth=MAX_DEPTH), pointer)
        parts: list[Condition] = []
        for name, value in document.items():
            here = f"{pointer}/{_escape(name)}"
            if name in GROUPS:
                parts.append(self._group(name, value, fields, (here, depth)))
            elif name.startswith("_") and (fields is None or name not in fields):
                _refuse(
                    Sentence(
                        "%(name)s does not stand here: operators go inside a field, groups are _and and _or", name=repr(name[:60])
                    ),
                    here,
                )
            else:
                parts.append(self._member(name, value, _field(fields, name, here), (here, depth)))
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    def _group(self, name: str, value: Any, fields: Fields, place: tuple[str, int]) -> Condition:
        here, depth = place
        items = _listed(name, value, here)
        parts = tuple(self.mapping(item, fields, f"{here}/{index}", depth + 1) for index, item in enumerate(items))
        return AllOf(parts) if name == "_and" else AnyOf(parts)

    def _member(self, name: str, value: Any, field: Field | None, place: tuple[str, int]) -> Condition:
        here, depth = place
        if not isinstance(value, Mapping):
            return self._comparison(name, "_eq", value, (field, here))
        if depth > MAX_DEPTH:
            _refuse(Sentence("a filter may be nested %(max_depth)s levels deep at most", max_depth=MAX_DEPTH), here)
        if not value:
            _refuse('an operator is missing, such as {"_eq": …}', here)
        if not all(operator.startswith("_") for operator in value):
            return self._inside(name, "_some", value, (field, here, depth))
        parts: list[Condition] = []
        for operator, operand in value.items():
            there = f"{here}/{_escape(operator)}"
            if operator in GROUPS:
                items = _listed(operator, operand, there)
                group = tuple(self._member(name, item, field, (f"{there}/{i}", depth + 1)) for i, item in enumerate(items))
                parts.append(AllOf(group) if operator == "_and" else AnyOf(group))
            elif operator in INSIDE:
                parts.append(self._inside(name, operator, operand, (field, there, depth)))
            else:
                parts.append(self._comparison(name, operator, operand, (field, there)))
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    def _inside(self, name: str, operator: str, value: Any, place: tuple[Field | None, str, int]) -> Condition:
        field, here, depth = place
        if field is not None and field.inside is None:
            _refuse(Sentence("nothing lies inside the field %(name)s; compare the field itself", name=repr(name)), here)
        fields = field.inside() if field is not None and field.inside else None
        if fields is None and isinstance(value, Mapping) and value and all(key in OPERATORS for key in value):
            inner = self._member("", value, None, (here, depth + 1))
        else:
            inner = self.mapping(value, fields, here, depth + 1)
        return Inside(name, operator == "_none", inner)

    def _comparison(self, name: str, operator: str, value: Any, place: tuple[Field | None, str]) -> Condition:
        field, here = place
        self.comparisons += 1
        if self.comparisons > MAX_COMPARISONS:
            _refuse(Sentence("a filter may hold %(max_comparisons)s comparisons at most", max_comparisons=MAX_COMPARISONS), here)
        if operator not in OPERATORS:
            _refuse(
                Sentence(
                    "%(operator)s is not an operator; known are %(operators)s",
                    operator=repr(operator[:60]), operators=", ".join((*OPERATORS, *GROUPS)),
                ),
                here,
            )
        if field is not None and operator not in ALLOWED[field.kind]:
            fitting = ", ".join(sorted(ALLOWED[field.kind]))
            _refuse(
                Sentence(
                    "%(operator)s does not fit the field %(name)s; fitting are %(fitting)s",
                    operator=operator, name=repr(name), fitting=fitting,
                ),
                here,
            )
        if value is None and operator in ("_eq", "_neq"):
            return Compare(name, "_null", operator == "_eq")
        if operator == "_null":
            if not isinstance(value, bool):
                _refuse("_null takes true or false", here)
            return Compare(name, "_null", value)
        return Compare(name, operator, _operand(operator, value, field, here))


def _listed(name: str, value: Any, here: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple) or not value:
        _refuse(Sentence("%(name)s takes a list of at least one filter", name=name), here)
    return value


def _operand(operator: str, value: Any, field: Field | None, here: str) -> Any:
    if operator in LISTS and isinstance(value, str) and _names_a_root(value):
        return _scalar(value, None, here)
    if operator in LISTS or operator == "_between":
        if not isinstance(value, list | tuple) or len(value) > MAX_LIST:
            _refuse(
                Sentence("%(operator)s takes a list of at most %(max_list)s values", operator=operator, max_list=MAX_LIST), here
            )
        if operator == "_between" and len(value) != 2:
            _refuse("_between takes the smallest and the largest value", here)
        return tuple(_scalar(item, field, f"{here}/{index}") for index, item in enumerate(value))
    if operator in TEXT:
        if not isinstance(value, str) or len(value) > MAX_TEXT:
            _refuse(
                Sentence("%(operator)s takes a text of at most %(max_text)s characters", operator=operator, max_text=MAX_TEXT), here
            )
        return _scalar(value, None, here)
    return _scalar(value, field, here)


def _scalar(value: Any, field: Field | None, here: str) -> Any:
    if isinstance(value, str):
        if "\x00" in value or not _is_encodable(value):
            _refuse("a text may not contain the character U+0000 or half a surrogate pair", here)
        if _names_a_root(value):
            return Placeholder(tuple(value[1:].split(".")))
        if value.startswith("\\") and _names_a_root(value[1:]):
            value = value[1:]
    if value is None:
        _refuse('null cannot be compared here; use {"_null": true}', here)
    if field is None:
        if not isinstance(value, str | int | float):
            _refuse("a value to compare with is a text, a number, true or false", here)
        return value
    try:
        return field.convert(value)
    except ValueError as error:
        _refuse(str(error), here)


def _names_a_root(text: str) -> bool:
    return text.startswith("$") and text[1:].split(".", maxsplit=1)[0] in ROOTS


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _field(fields: Fields, name: str, here: str) -> Field | None:
    if fields is None:
        return None
    if name not in fields:
        _refuse(
            Sentence(
                "there is no field %(name)s; known are %(fields)s", name=repr(name[:60]), fields=", ".join(sorted(fields))[:500]
            ),
            here,
        )
    return fields[name]


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _refuse(message: str, pointer: str) -> NoReturn:
    raise InvalidFilter(message, pointer=pointer)
