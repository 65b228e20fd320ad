"""Search criteria as IMAP search keys; values are sent as quoted text, so they cannot become part of the command."""

import datetime
import re
from collections.abc import Iterator
from typing import Any

from appliance.connectors.contract import ConfigError, Json
from gos_connector_email.imap import Text

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_TEXTS = {"from": "FROM", "to": "TO", "cc": "CC", "subject": "SUBJECT", "body": "BODY", "text": "TEXT"}
_DATES = {"since": "SINCE", "before": "BEFORE"}
_SIZES = {"larger": "LARGER", "smaller": "SMALLER"}
_FLAGS = {"seen": ("SEEN", "UNSEEN"), "flagged": ("FLAGGED", "UNFLAGGED"), "answered": ("ANSWERED", "UNANSWERED"),
          "draft": ("DRAFT", "UNDRAFT")}  # fmt: skip
_HEADER = re.compile(r"[A-Za-z0-9-]{1,76}")


def build_criteria(criteria: Json) -> list[str | Text]:
    """The search keys, all of which must match; messages flagged as deleted never match."""
    return ["UNDELETED", *(key for name, value in criteria.items() for key in _keys(name, value))]


def _keys(name: str, value: Any) -> Iterator[str | Text]:
    if name in _TEXTS:
        yield from (_TEXTS[name], _text(value, name))
    elif name in _DATES:
        yield from (_DATES[name], _day(value, name))
    elif name in _SIZES:
        yield from (_SIZES[name], str(int(value)))
    elif name in _FLAGS:
        yield _FLAGS[name][0 if value else 1]
    elif name == "keyword":
        yield from ("KEYWORD", keyword(value))
    elif name == "headers":
        for header, content in value.items():
            if not _HEADER.fullmatch(header):
                raise ConfigError(f"{header[:80]!r} is not a valid header name.")
            yield from ("HEADER", header, _text(content, name))
    elif name == "after_uid":
        yield from ("UID", f"{int(value) + 1}:*")
    else:
        raise ConfigError(f"{name!r} is not a search criterion.")


def keyword(value: str) -> str:
    """`value` as a custom flag; ConfigError when it is not an IMAP atom."""
    if not re.fullmatch(r"[A-Za-z0-9$_.:-]{1,100}", value):
        raise ConfigError(f"{value[:100]!r} is not a valid keyword; use letters, digits, $, _, ., : and -.")
    return value


def _text(value: str, name: str) -> Text:
    if re.search(r"[\x00\r\n]", value):
        raise ConfigError(f"`{name}` contains a line break; a search matches within one line only.")
    try:
        return Text(value.encode())
    except UnicodeEncodeError as error:
        raise ConfigError(f"`{name}` contains an unpaired surrogate character; remove it.") from error


def _day(value: str, name: str) -> str:
    try:
        day = datetime.date.fromisoformat(value)
    except ValueError as error:
        raise ConfigError(f"`{name}` is {value[:40]!r}; write a date such as 2026-01-31.") from error
    return f"{day.day}-{_MONTHS[day.month - 1]}-{day.year:04}"
