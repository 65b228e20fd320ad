"""The values of a filter in OData's query language (OData 4.01, URL conventions § 5.1.1)."""

import re

from appliance.connectors.contract import QueryLanguage


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


FILTER = QueryLanguage(
    opaque=re.compile(r"'(?:[^']|'')*'"),
    literal=re.compile(
        r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
        r"|-?\d{4,}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d))?"
        r"|\d\d:\d\d(?::\d\d(?:\.\d+)?)?"
        r"|-?\d+(?:\.\d+)?"
        r"|duration'-?P[0-9DTHMS.]+'"
    ),
    literals="a number, date, time, duration or GUID",
    quote=_quote,
)
