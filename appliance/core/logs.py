"""Logging of the process: structured records on standard error, with request and execution ids and redacted secrets."""

import contextvars
import json
import logging
import sys
import threading
import traceback
from collections.abc import Mapping
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any

from . import clock

_context: contextvars.ContextVar[Mapping[str, str]] = contextvars.ContextVar("log_context", default={})  # noqa: B039
_lock = threading.Lock()
_secrets: dict[str, frozenset[str]] = {}  # Every encoding of a value; least recently used first.
_spellings: tuple[str, ...] = ()  # Replaced as a whole, never modified, because other threads iterate over it.
MOST_SECRETS = 5_000
LEAST_LENGTH = 6


class _LogContext:
    """A class, because every request enters two of these, and a generator would take twice as long."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def __enter__(self) -> None:
        self._token = _context.set({**_context.get(), **{k: v for k, v in self._names.items() if v}})

    def __exit__(self, *error: object) -> None:
        _context.reset(self._token)


def log_context(**names: str) -> AbstractContextManager[None]:
    """Add `request_id`, `execution_id`, … to every record written inside."""
    return _LogContext(names)


def redact(text: str) -> str:
    """The text with the `MOST_SECRETS` most recently used secrets of this process replaced by `[redacted]`."""
    for secret in _spellings:
        if secret in text:
            text = text.replace(secret, "[redacted]")
    return text


def remember_secret(value: str) -> None:
    """Redact this value in the logs of this process.  Very short values are not redacted, to keep ordinary text readable."""
    global _spellings
    if len(value) < LEAST_LENGTH:
        return
    with _lock:
        cached = _secrets.pop(value, None)
        _secrets[value] = cached or frozenset((value, json.dumps(value, ensure_ascii=False)[1:-1], json.dumps(value)[1:-1]))
        if cached is None:
            if len(_secrets) > MOST_SECRETS:
                del _secrets[next(iter(_secrets))]
            spellings = chain.from_iterable(_secrets.values())
            _spellings = tuple(sorted(spellings, key=len, reverse=True))  # Longest first, in case one contains another.


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return redact(json.dumps(_members(record), ensure_ascii=False, default=str))


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        members = _members(record)
        rest = " ".join(f"{k}={v}" for k, v in members.items() if k not in ("at", "level", "source", "message", "trace"))
        line = f"{members['at']} {members['level']:7} {members['source']}: {members['message']} {rest}".rstrip()
        return redact(line + ("\n" + str(members["trace"]) if "trace" in members else ""))


def _members(record: logging.LogRecord) -> dict[str, Any]:
    members: dict[str, Any] = {
        "at": clock.rfc3339(int(record.created * 1000)),
        "level": record.levelname.lower(),
        "source": record.name.removeprefix("appliance."),
        "message": record.getMessage(),
        **_context.get(),
        **getattr(record, "fields", {}),
    }
    if record.exc_info:
        members["trace"] = "".join(traceback.format_exception(*record.exc_info))[-8000:]
    return members


def configure_logs(level: str, form: str) -> None:
    """Write every record of `level` and above to standard error in this format (`json` or `text`)."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if form == "json" else _TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for noisy in ("hypercorn.access", "httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
