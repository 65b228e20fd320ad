"""Encodes search filters (RFC 4511 § 4.5.1) from JSON conditions or from LDAP's text form (RFC 4515).

Values of conditions become elements of their own and are never part of a parsed text, so they cannot change the filter.
"""

import re
from collections.abc import Mapping
from typing import Any

from appliance.connectors.contract import ConfigError
from gos_connector_ldap.ber import boolean, element, octets

_AND, _OR, _NOT, _EQUAL, _SUBSTRINGS, _AT_LEAST, _AT_MOST, _PRESENT, _APPROXIMATE, _EXTENSIBLE = (
    *(0xA0, 0xA1, 0xA2, 0xA3, 0xA4, 0xA5, 0xA6),
    *(0x87, 0xA8, 0xA9),
)
_INITIAL, _ANY, _FINAL = 0x80, 0x81, 0x82
_MAX_DEPTH = 50
# An attribute's name or number, and options such as `;lang-de` (RFC 4512 § 2.5).
_OID = r"(?:[A-Za-z][A-Za-z0-9-]*|[0-9]+(?:\.[0-9]+)*)"
_ATTRIBUTE = re.compile(rf"{_OID}(?:;[A-Za-z0-9-]+)*")
_RULE = re.compile(_OID)
_EXTENSIBLE_MATCH = re.compile(rf"(?P<attribute>{_ATTRIBUTE.pattern})?(?P<dn>:dn)?(?::(?P<rule>{_OID}))?:=")
_COMPARISON = re.compile(rf"(?P<attribute>{_ATTRIBUTE.pattern})(?P<sign>=|>=|<=|~=)")
_ESCAPE = re.compile(rb"\\([0-9A-Fa-f]{2})")
_OPERATOR_TAGS = {">=": _AT_LEAST, "<=": _AT_MOST, "~=": _APPROXIMATE}


def match_all() -> bytes:
    """Return the filter that matches every entry."""
    return octets("objectClass", _PRESENT)


# -- conditions as JSON


def encode_conditions(conditions: Mapping[str, Any], depth: int = 0) -> bytes:
    """Encode conditions that must all match; ConfigError for an invalid one."""
    if depth > _MAX_DEPTH:
        raise ConfigError(f"The conditions are nested more than {_MAX_DEPTH} deep.")
    parts = [part for name, condition in conditions.items() for part in _encode_condition(name, condition, depth)]
    if not parts:
        raise ConfigError("A condition is empty; add an attribute and its value.")
    return parts[0] if len(parts) == 1 else element(_AND, *parts)


def _encode_condition(name: str, condition: Any, depth: int) -> list[bytes]:
    match name:
        case "_and" | "_or":
            if not isinstance(condition, list) or not condition:
                raise ConfigError(f"`{name}` takes a list of conditions.")
            parts = (encode_conditions(_require_object(each), depth + 1) for each in condition)
            return [element(_AND if name == "_and" else _OR, *parts)]
        case "_not":
            return [element(_NOT, encode_conditions(_require_object(condition), depth + 1))]
    if not _ATTRIBUTE.fullmatch(name):
        raise ConfigError(f"{name[:80]!r} is not a valid attribute name.")
    if not isinstance(condition, Mapping):
        return [_encode_equality(name, condition)]
    if not condition:
        raise ConfigError(f"The condition for {name} is empty.")
    return [_encode_comparison(name, operator, value) for operator, value in condition.items()]


def _require_object(condition: Any) -> Mapping[str, Any]:
    if not isinstance(condition, Mapping):
        raise ConfigError("A condition must be an object with attribute names and values.")
    return condition


def _encode_comparison(name: str, operator: str, value: Any) -> bytes:
    match operator:
        case "_eq":
            return _encode_equality(name, value)
        case "_neq":
            return element(_NOT, _encode_equality(name, value))
        case "_in" | "_nin":
            if not isinstance(value, list) or not value:
                raise ConfigError(f"`{operator}` takes a list of values.")
            either = element(_OR, *(_encode_equality(name, each) for each in value))
            return either if operator == "_in" else element(_NOT, either)
        case "_gte" | "_lte":
            return element(_AT_LEAST if operator == "_gte" else _AT_MOST, octets(name), octets(_encode_value(name, value)))
        case "_contains" | "_starts_with" | "_ends_with":
            tag = {"_contains": _ANY, "_starts_with": _INITIAL, "_ends_with": _FINAL}[operator]
            text = _encode_value(name, value)
            if not text:
                raise ConfigError(f"`{operator}` for {name} takes a non-empty text.")
            return element(_SUBSTRINGS, octets(name), element(0x30, octets(text, tag)))
        case "_null":
            present = octets(name, _PRESENT)
            if not isinstance(value, bool):
                raise ConfigError("`_null` takes true or false.")
            return element(_NOT, present) if value else present
        case "_rule":
            rule, rule_value = (_require_object(value).get(part) for part in ("id", "value"))
            if not isinstance(rule, str) or not _RULE.fullmatch(rule):
                raise ConfigError(f"`_rule` for {name} takes the `id` of a matching rule and a `value`.")
            return _encode_rule_match(rule, name, _encode_value(name, rule_value), with_dn=False)
    raise ConfigError(
        f"There is no operator {operator[:40]!r}; use _eq, _neq, _in, _nin, _gte, _lte, _contains, _starts_with, "
        "_ends_with, _null or _rule."
    )


def _encode_equality(name: str, value: Any) -> bytes:
    return element(_EQUAL, octets(name), octets(_encode_value(name, value)))


def _encode_value(name: str, value: Any) -> bytes:
    if isinstance(value, bool):
        return b"TRUE" if value else b"FALSE"
    if isinstance(value, str | int):
        try:
            return str(value).encode()
        except UnicodeEncodeError as error:
            raise ConfigError(f"The value for {name} contains an unpaired surrogate character; remove it.") from error
    raise ConfigError(f"The value for {name} must be a text, an integer or a boolean; use `_null` to check whether one exists.")


def _encode_rule_match(rule: str | None, attribute: str | None, value: bytes, *, with_dn: bool) -> bytes:
    parts = [octets(rule, 0x81)] if rule else []
    parts += [octets(attribute, 0x82)] if attribute else []
    return element(_EXTENSIBLE, *parts, octets(value, 0x83), *([boolean(True, 0x84)] if with_dn else []))


# -- a filter as LDAP writes it


def encode_filter(text: str) -> bytes:
    """Encode a filter in the text form of RFC 4515; ConfigError names the position of a syntax error."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError("The filter contains an unpaired surrogate character; remove it.") from error
    parser = _Parser(text)
    encoded = parser.filter(0)
    if parser.at != len(text):
        raise parser.error_expecting("the end")
    return encoded


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self.at = 0

    def error_expecting(self, expected: str) -> ConfigError:
        return ConfigError(f"The filter has a syntax error at position {self.at + 1}: expected {expected}.")

    def filter(self, depth: int) -> bytes:
        if depth > _MAX_DEPTH:
            raise ConfigError(f"The filter is nested more than {_MAX_DEPTH} deep.")
        self._expect("(")
        sign = self._text[self.at : self.at + 1]
        if sign in ("&", "|"):
            self.at += 1
            parts = self._parse_filters(depth)
            encoded = element(_AND if sign == "&" else _OR, *parts)
        elif sign == "!":
            self.at += 1
            encoded = element(_NOT, self.filter(depth + 1))
        else:
            encoded = self._parse_item()
        self._expect(")")
        return encoded

    def _parse_filters(self, depth: int) -> list[bytes]:
        parts = [self.filter(depth + 1)]
        while self._text.startswith("(", self.at):
            parts.append(self.filter(depth + 1))
        return parts

    def _expect(self, sign: str) -> None:
        if not self._text.startswith(sign, self.at):
            raise self.error_expecting(f"`{sign}`")
        self.at += 1

    def _parse_item(self) -> bytes:
        extensible = _EXTENSIBLE_MATCH.match(self._text, self.at)
        if extensible is not None and (extensible["attribute"] or extensible["rule"]):
            self.at = extensible.end()
            value = self._unescape(self._read_value())
            return _encode_rule_match(extensible["rule"], extensible["attribute"], value, with_dn=bool(extensible["dn"]))
        comparison = _COMPARISON.match(self._text, self.at)
        if comparison is None:
            raise self.error_expecting("an attribute with =, >=, <=, ~= or :=")
        self.at = comparison.end()
        name, raw = comparison["attribute"], self._read_value()
        if comparison["sign"] != "=":
            return element(_OPERATOR_TAGS[comparison["sign"]], octets(name), octets(self._unescape(raw)))
        if raw == "*":
            return octets(name, _PRESENT)
        if "*" in raw:
            return element(_SUBSTRINGS, octets(name), element(0x30, *self._encode_substrings(raw)))
        return element(_EQUAL, octets(name), octets(self._unescape(raw)))

    def _read_value(self) -> str:
        """Return the text up to the next parenthesis; parentheses within values are escaped."""
        start = self.at
        while self.at < len(self._text) and self._text[self.at] not in "()":
            self.at += 1
        return self._text[start : self.at]

    def _encode_substrings(self, raw: str) -> list[bytes]:
        first, *between, last = (self._unescape(piece) for piece in raw.split("*"))
        if any(not piece for piece in between):
            raise self.error_expecting("a filter without ** in it")
        parts = [octets(first, _INITIAL)] if first else []
        parts += [octets(piece, _ANY) for piece in between]
        return [*parts, *([octets(last, _FINAL)] if last else [])]

    def _unescape(self, raw: str) -> bytes:
        """Resolve escapes such as `\\2a`; ConfigError for characters that must be escaped and are not."""
        content = raw.encode()
        plain = _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), content)
        if b"\x00" in content or b"*" in content or b"\\" in _ESCAPE.sub(b"", content):
            raise self.error_expecting("a value in which \\, * and NUL are escaped as \\5c, \\2a and \\00")
        return plain
