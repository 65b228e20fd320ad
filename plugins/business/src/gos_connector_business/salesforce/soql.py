"""The values of a query in SOQL, Salesforce's query language."""

import re

from appliance.connectors.contract import ConfigError, QueryLanguage

# Characters that must be escaped in a SOQL string.
_ESCAPED = {"\\": "\\\\", "'": "\\'", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}


def quote(text: str) -> str:
    """Return the text as a quoted SOQL string; ConfigError for control characters that SOQL cannot escape."""
    if any(ord(each) < 32 and each not in _ESCAPED for each in text):
        raise ConfigError("A text in the query contains a control character, which is not allowed.")
    return "'" + "".join(_ESCAPED.get(each, each) for each in text) + "'"


SOQL = QueryLanguage(
    opaque=re.compile(r"'(?:[^'\\]|\\.)*'", re.DOTALL),
    literal=re.compile(
        r"-?\d+(?:\.\d+)?"
        r"|\d{4}-\d\d-\d\d(?:T\d\d:\d\d:\d\d(?:\.\d{1,3})?(?:Z|[+-]\d\d:\d\d))?"
        r"|[A-Z]{3}-?\d+(?:\.\d+)?"  # an amount in a currency
        r"|(?:TODAY|YESTERDAY|TOMORROW|(?:LAST|THIS|NEXT)_(?:WEEK|MONTH|QUARTER|YEAR)|(?:LAST|NEXT)_N_(?:DAYS|WEEKS|MONTHS|YEARS):\d{1,4})"
    ),
    literals="a number, date, time or SOQL date literal",
    quote=quote,
)
