"""Helpers that read HTTP responses on behalf of connectors."""

from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from appliance.core import clock

if TYPE_CHECKING:
    from appliance.connectors.contract import HttpAnswer


def retry_after(answer: "HttpAnswer") -> float | None:
    """Return the seconds to wait from Retry-After (RFC 9110 § 10.2.3; seconds or a date); None without a usable value."""
    text = answer.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    return max(0.0, moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() - clock.now_ms() / 1000)
