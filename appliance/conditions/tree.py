"""The nodes of a condition, and the description of the fields it compares.

The meaning is the same in Python and SQL: every comparison is true or false, never unknown.  A null field is unequal to
every value (`_neq` and `_nin` are true for it) and neither smaller nor larger than any.  Text is compared by code point;
`_icontains` folds each character that has a one-to-one lower-case equivalent.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

EQUALITY = ("_eq", "_neq")
ORDER = ("_lt", "_lte", "_gt", "_gte")
LISTS = ("_in", "_nin")
TEXT = ("_contains", "_icontains", "_starts_with")
INSIDE = ("_some", "_none")
OPERATORS = (*EQUALITY, *ORDER, *LISTS, "_null", *TEXT, "_between", *INSIDE)
GROUPS = ("_and", "_or")

OPERATORS_BY_KIND = {
    "text": frozenset((*EQUALITY, *ORDER, *LISTS, "_null", "_between", *TEXT)),
    "ordered": frozenset((*EQUALITY, *ORDER, *LISTS, "_null", "_between")),
    "plain": frozenset((*EQUALITY, *LISTS, "_null")),
}


def _unchanged(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Field:
    """A field that conditions can compare: the operators it supports, the conversion of values, and its members.

    `convert` turns a caller's value into the form that is compared and stored; it raises ValueError with a readable
    message.  `inside` returns the fields of the related object, or None when any name is possible; `inside` itself is None
    for a field without members.
    """

    kind: Literal["text", "ordered", "plain"] = "plain"
    convert: Callable[[Any], Any] = _unchanged
    inside: Callable[[], Mapping[str, "Field"] | None] | None = None


@dataclass(frozen=True, slots=True)
class Placeholder:
    """`$actor`, `$now` or `$request.query.page`: a value that is known only when the condition is used."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Compare:
    """`field operator value`; the value of `_in`, `_nin` and `_between` is a tuple.  The field "" is the element itself."""

    field: str
    operator: str
    value: Any


@dataclass(frozen=True, slots=True)
class Inside:
    """Whether some (negated: none) of the objects in the field, or related by it, match the condition."""

    field: str
    negated: bool
    condition: "Condition"


@dataclass(frozen=True, slots=True)
class AllOf:
    """All conditions hold; true when empty."""

    conditions: tuple["Condition", ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one condition holds; false when empty."""

    conditions: tuple["Condition", ...]


@dataclass(frozen=True, slots=True)
class Never:
    """Always false, such as a comparison with a placeholder that has no value."""


Condition: TypeAlias = Compare | Inside | AllOf | AnyOf | Never


def check_bound(value: Any) -> None:
    """Raise TypeError if the value of a comparison still contains a placeholder, because the caller forgot to bind."""
    if isinstance(value, Placeholder) or (isinstance(value, tuple) and any(isinstance(v, Placeholder) for v in value)):
        raise TypeError("bind the placeholders of a condition before you use it")


def fold(text: str) -> str:
    """The text with every character that has a one-to-one lower-case equivalent replaced by it."""
    if text.isascii():
        return text.lower()
    return "".join(map(_fold_character, text))


def unfold(character: str) -> str | None:
    """The other character that folds to this one, or None."""
    upper = character.upper()
    return upper if upper != character and len(upper) == 1 and upper.lower() == character else None


def _fold_character(character: str) -> str:
    lower = character.lower()
    return lower if len(lower) == 1 and lower != character and lower.upper() == character else character
