"""The messages of the schema library as sentences that can be translated: its English stays as it is, a value becomes a value."""

import re
from functools import cache

from appliance.core.sentences import Sentence
from appliance.core.texts import mark_error

# By keyword.  `tests/core/test_json_schema.py` compares them with the library's.
KNOWN = {
    "type": (mark_error("The value is not of type %(type)s."), mark_error("The value is not of types %(types)s.")),
    "minLength": (
        mark_error("The value is shorter than 1 character."), mark_error("The value is shorter than %(limit)s characters."),
    ),
    "maxLength": (
        mark_error("The value is longer than 1 character."), mark_error("The value is longer than %(limit)s characters."),
    ),
    "minimum": (mark_error("The value is less than the minimum of %(limit)s."),),
    "maximum": (mark_error("The value is greater than the maximum of %(limit)s."),),
    "exclusiveMinimum": (mark_error("The value is less than or equal to the minimum of %(limit)s."),),
    "exclusiveMaximum": (mark_error("The value is greater than or equal to the maximum of %(limit)s."),),
    "multipleOf": (mark_error("The value is not a multiple of %(number)s."),),
    "pattern": (mark_error("The value does not match %(pattern)s."),),
    "format": (mark_error("The value is not a %(format)s."),),
    "enum": (mark_error("The value is not one of %(options)s."),),
    "const": (mark_error("%(value)s was expected."),),
    "minItems": (mark_error("The value has less than 1 item."), mark_error("The value has less than %(limit)s items.")),
    "maxItems": (mark_error("The value has more than 1 item."), mark_error("The value has more than %(limit)s items.")),
    "uniqueItems": (mark_error("The value has non-unique elements."),),
    "minProperties": (
        mark_error("The value has less than 1 property."), mark_error("The value has less than %(limit)s properties."),
    ),
    "maxProperties": (
        mark_error("The value has more than 1 property."), mark_error("The value has more than %(limit)s properties."),
    ),
    "anyOf": (mark_error("The value is not valid under any of the schemas listed in the 'anyOf' keyword."),),
    "oneOf": (
        mark_error("The value is not valid under any of the schemas listed in the 'oneOf' keyword."),
        mark_error("The value is valid under more than one of the schemas listed in the 'oneOf' keyword."),
    ),
    "not": (mark_error("%(schema)s is not allowed for the value."),),
    "contains": (mark_error("None of the value are valid under the given schema."),),
    "falseSchema": (mark_error("False schema does not allow the value."),),
    "unevaluatedProperties": (mark_error("Unevaluated properties are not allowed (%(names)s was unexpected)."),),
}  # fmt: skip


def to_sentence(keyword: str, message: str) -> str:
    """The message of an error about this keyword, with its id and values if it is a known one."""
    for sentence, pattern in _patterns(keyword):
        if match := pattern.fullmatch(message):
            return sentence % match.groupdict()
    return message


@cache
def _patterns(keyword: str) -> tuple[tuple[Sentence, "re.Pattern[str]"], ...]:
    return tuple((each, re.compile(_as_expression(each.id), re.DOTALL)) for each in KNOWN.get(keyword, ()))


def _as_expression(pattern: str) -> str:
    """A regular expression that finds the values of a sentence: of its id, every second part is the name of a value."""
    parts = re.split(r"%\((\w+)\)s", pattern)
    return "".join(f"(?P<{part}>.+)" if index % 2 else re.escape(part) for index, part in enumerate(parts))
