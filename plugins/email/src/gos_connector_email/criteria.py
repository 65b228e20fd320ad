"""What to search for, as IMAP's search keys: words of ours, and values that stay values."""

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


def criteria_of(given: Json) -> list[str | Text]:
    """The search keys; all of them must fit, and what is deleted never does."""
    return ["UNDELETED", *(key for name, value in given.items() for key in _keys(name, value))]


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
                raise ConfigError(f"{header[:80]!r} is no name of a header.")
            yield from ("HEADER", header, _text(content, name))
    elif name == "after_uid":
        yield from ("UID", f"{int(value) + 1}:*")
    else:
        raise ConfigError(f"There is nothing to search for by {name!r}.")


def keyword(value: str) -> str:
    """A flag of one's own: an atom."""
    if not re.fullmatch(r"[A-Za-z0-9$_.:-]{1,100}", value):
        raise ConfigError(f"{value[:100]!r} cannot be a keyword: use letters, digits, $, _, ., : and -.")
    return value


def _text(value: str, name: str) -> Text:
    if re.search(r"[\x00\r\n]", value):
        raise ConfigError(f"`{name}` contains a line break; mail is searched within a line.")
    try:
        return Text(value.encode())
    except UnicodeEncodeError as error:
        raise ConfigError(f"`{name}` contains half of a character pair; remove it.") from error


def _day(value: str, name: str) -> str:
    try:
        day = datetime.date.fromisoformat(value)
    except ValueError as error:
        raise ConfigError(f"`{name}` is a day like 2026-01-31.") from error
    return f"{day.day}-{_MONTHS[day.month - 1]}-{day.year:04}"
