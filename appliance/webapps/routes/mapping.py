"""From what a browser sent to the input of a process: `{order: "$body", by: "$visitor.email"}`; pure."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from appliance.core.errors import ValidationFailed
from appliance.webapps.access.visitors import ANONYMOUS, Visitor

DEEPEST = 8
MOST_MEMBERS = 100
VISITOR = ("id", "email", "kind", "roles")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")
_MISSING = object()
_TRUTHS = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}
_INTEGER = re.compile(r"-?[0-9]{1,15}")
_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?([eE][+-]?[0-9]{1,2})?")


class Text(str):
    """A text of an address or of a form, where everything is text: a number is one when the process wants a number."""

    __slots__ = ()


@dataclass(frozen=True)
class Sent:
    """What came with a request; `body` is None where there was none."""

    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    visitor: Visitor = ANONYMOUS


def problems_of(given: Any, names: Sequence[str], *, with_body: bool) -> tuple[str, str] | None:
    """What is wrong with a mapping, and at which pointer below it; `names` are the placeholders of the path."""
    if given is None:
        return None
    if isinstance(given, str) and given.startswith("$") and not given.startswith("$$"):
        return _check_value(given, "", names, with_body)
    if not isinstance(given, Mapping):
        return "", 'input is an object of members such as {name: "$body.name"}, or "$body"'
    return _check_value(given, "", names, with_body)


def _check_value(given: Any, at: str, names: Sequence[str], with_body: bool) -> tuple[str, str] | None:
    if at.count("/") > DEEPEST:
        return at, f"input is nested at most {DEEPEST} deep"
    if isinstance(given, Mapping | list | tuple):
        members = given.items() if isinstance(given, Mapping) else enumerate(given)
        if len(given) > MOST_MEMBERS:
            return at, f"input has at most {MOST_MEMBERS} members at a level"
        found = (_check_value(value, f"{at}/{str(name)[:60]}", names, with_body) for name, value in members)
        return next((wrong for wrong in found if wrong), None)
    if isinstance(given, float) and not math.isfinite(given):
        return at, "this is not a number of JSON"
    if given is not None and not isinstance(given, str | int | float):
        return at, "a value is JSON"
    if not isinstance(given, str) or not given.startswith("$") or given.startswith("$$"):
        return None
    wrong = _check_expression(given, names, with_body)
    return (at, wrong) if wrong else None


def _check_expression(text: str, names: Sequence[str], with_body: bool) -> str | None:
    source, *rest = text[1:].split(".")
    if any(not _NAME.fullmatch(name) for name in rest) or len(rest) > DEEPEST:
        return f"{text[:80]!r} is not understood; write $body.name, and $$ for a text that begins with $"
    if source == "body":
        return None if with_body else "there is no $body: a GET or DELETE has none"
    if source == "path":
        known = len(rest) == 1 and rest[0] in names
        return (
            None
            if known
            else f"{text[:80]!r} is no placeholder of the path; it has {', '.join(f'$path.{n}' for n in names) or 'none'}"
        )
    if source == "query":
        return None if len(rest) <= 1 else "a parameter of the query has no members"
    if source == "visitor":
        return (
            None
            if len(rest) == 1 and rest[0] in VISITOR
            else f"of the visitor there are {', '.join(f'$visitor.{n}' for n in VISITOR)}"
        )
    return f"{text[:80]!r} is not understood; there are $body, $path, $query and $visitor, and $$ for a text that begins with $"


def map_input(given: Any, sent: Sent, schema: Any = None) -> dict[str, Any]:
    """The input of the process; what was not sent is left out.  Without a mapping the members of the body, or of the
    query where there is no body, and the placeholders of the path.

    `schema` is what the process says of its input: texts of forms become what it wants where they plainly are that.
    ValidationFailed when it is no object.
    """
    if given is None:
        whole = sent.query if sent.body is None else sent.body
        found = {**whole, **sent.path} if isinstance(whole, Mapping) else whole
    else:
        found = _fill(given, sent)
    found = {} if found is _MISSING else read_texts(found, schema)
    if not isinstance(found, dict):
        raise ValidationFailed("the body must be a JSON object", pointer="")
    return found


def _fill(given: Any, sent: Sent) -> Any:
    if isinstance(given, Mapping):
        pairs = ((str(name), _fill(value, sent)) for name, value in given.items())
        return {name: value for name, value in pairs if value is not _MISSING}
    if isinstance(given, list | tuple):
        return [value for value in (_fill(each, sent) for each in given) if value is not _MISSING]
    if not isinstance(given, str) or not given.startswith("$"):
        return given
    return given[1:] if given.startswith("$$") else _look_up(given, sent)


def _look_up(expression: str, sent: Sent) -> Any:
    source, *rest = expression[1:].split(".")
    found: Any = getattr(sent, source)
    if source == "visitor":
        return getattr(sent.visitor, rest[0]) or _MISSING
    for name in rest:
        if not isinstance(found, Mapping) or name not in found:
            return _MISSING
        found = found[name]
    return _MISSING if found is None and not rest else found


def read_texts(value: Any, schema: Any) -> Any:
    """The value with every `Text` as what the schema wants; an empty one is left out where no text is wanted."""
    about = schema if isinstance(schema, Mapping) else {}
    if isinstance(value, Mapping):
        members = about.get("properties")
        known = members if isinstance(members, Mapping) else {}
        pairs = ((name, read_texts(each, known.get(name))) for name, each in value.items())
        return {str(name): each for name, each in pairs if each is not _MISSING}
    if isinstance(value, list | tuple):
        pieces = (read_texts(each, about.get("items")) for each in value)
        return [each for each in pieces if each is not _MISSING]
    if not isinstance(value, Text):
        return value
    if about.get("type") == "array":  # a list of which only one was chosen
        return [each for each in [read_texts(value, about.get("items"))] if each is not _MISSING]
    return _as_wanted(str(value), about.get("type"))


def _as_wanted(text: str, kind: Any) -> Any:
    if kind in ("integer", "number", "boolean") and not text.strip():
        return _MISSING
    if kind == "integer" and _INTEGER.fullmatch(text):
        return int(text)
    if kind == "number" and _NUMBER.fullmatch(text):
        return int(text) if _INTEGER.fullmatch(text) else float(text)
    if kind == "boolean" and text.lower() in _TRUTHS:
        return _TRUTHS[text.lower()]
    return text
