"""Replaces what differs from run to run in recorded examples: ids, times, digests, secrets, hosts and durations."""

import base64
import hashlib
import re
import zlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from appliance.core import ids

NOW = datetime(2027, 1, 15, 9, 30, tzinfo=UTC)
"""When the recorded requests seem to have been sent."""
MOST_ENTRIES = 3
"""Longer arrays are cut to this length."""
_KEY_BODY = "gos_test_ExampleExampleExampleExample00"
KEY = _KEY_BODY + ids.base62(zlib.crc32(_KEY_BODY.encode()), 6)
"""The only API key in the examples: it has the form of a key, but nobody has issued it."""
_ID_TIME = ids.base62(int(NOW.timestamp() * 1_000_000), 9)
_SETTINGS = ("bucket_ms", "timeout_ms")
"""Durations that somebody has set, and that are therefore the same every time."""
_MINUTE = timedelta(minutes=1)


class Normalizer:
    """Replaces the values of one example; equal values by equal replacements, in the order in which they come.

    `texts` are further texts to replace, such as hosts and names of tenants; `began` is when the request was prepared.
    """

    def __init__(self, texts: Mapping[str, str], began: datetime) -> None:
        self._texts, self._began = texts, began
        self._seen: dict[str, list[str]] = {}
        self._patterns: list[tuple[str, Callable[[re.Match[str]], str]]] = [
            (r"\bgos_[a-z]+_[0-9A-Za-z]{36}\b", lambda match: KEY),
            (r"\bgos_[a-z]+_[0-9A-Za-z]{4}(?![0-9A-Za-z])", lambda match: KEY[:13]),
            (r"\bwhsec_[0-9A-Za-z+/=]+", lambda match: f"whsec_{base64.b64encode(self._digest(match[0])[:24]).decode()}"),
            (r"\b([a-z]{2,5})_[0-9A-Za-z]{21}\b", self._id),
            (r"\b[0-9a-f]{64}\b", lambda match: self._digest(match[0]).hex()),
            (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z", self._time),
            (r"\b1[78]\d{11}\b", lambda match: str(int(NOW.timestamp() * 1000))),
            (r"\b[0-9A-Za-z_-]{32,}\b", self._token),
            (r"http://(?=[a-z0-9.-]*gos\.example)", lambda match: "https://"),
        ]

    def __call__(self, value: Any, name: str = "") -> Any:
        """The value without what differs from run to run; `name` is the member that has it."""
        if isinstance(value, dict):
            # Linters take an object with `type` and `default` for a schema, which the field of a collection is not.
            return {self._text(key): self(member, key) for key, member in value.items() if key != "default" or member is not None}
        if isinstance(value, list):
            return [self(member, name) for member in value[:MOST_ENTRIES]]
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and name.endswith("_ms"):
            return 12 if value and name not in _SETTINGS else value
        return value

    def _text(self, text: str) -> str:
        for old, new in self._texts.items():
            text = text.replace(old, new)
        for pattern, replace in self._patterns:
            text = re.sub(pattern, replace, text)
        return text

    def _rank(self, kind: str, value: str) -> int:
        """The position of a value among the different ones of its kind."""
        values = self._seen.setdefault(kind, [])
        if value not in values:
            values.append(value)
        return values.index(value)

    def _digest(self, value: str) -> bytes:
        return hashlib.sha256(f"example {self._rank('digest', value)}".encode()).digest()

    def _id(self, match: re.Match[str]) -> str:
        kind = match[1]
        if set(match[0][len(kind) + 1 :]) == {"0"}:
            return match[0]  # the id that nobody has
        number = int.from_bytes(hashlib.sha256(f"{kind} {self._rank(kind, match[0])}".encode()).digest()[:8], "big")
        return f"{kind}_{_ID_TIME}{ids.base62(number, 12)}"

    def _token(self, match: re.Match[str]) -> str:
        text = match[0]
        known = text.startswith(("gos_test_", "whsec_")) or re.fullmatch("[0-9a-f]{64}", text)
        if known or not (re.search(r"\d", text) and re.search("[A-Z]", text) and re.search("[a-z]", text)):
            return text
        digest = self._digest(text) + self._digest(f"{text}…")
        return base64.urlsafe_b64encode(digest).decode()[: len(text)]

    def _time(self, match: re.Match[str]) -> str:
        time = datetime.fromisoformat(match[0])
        if abs(time - self._began) > timedelta(days=1000):
            return match[0]  # it was in the request
        passed = time - self._began
        if abs(passed) < 10 * _MINUTE:
            return _rfc3339(NOW + timedelta(seconds=self._rank("time", match[0])))
        return _rfc3339(NOW + round(passed / _MINUTE) * _MINUTE)


def _rfc3339(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
