"""Reads HTTP responses on behalf of connectors: their JSON, the error that a status means, and how long to wait."""

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC
from decimal import Decimal
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from appliance.connectors.failures import AuthError, ConnectorError, Outcome, RateLimited, Rejected, TransientError
from appliance.core import clock
from appliance.core.sentences import Sentence

if TYPE_CHECKING:
    from appliance.connectors.contract import HttpAnswer

NOT_STARTED = frozenset({408, 425, 429, 503})
"""Statuses that say that the request was not processed (RFC 9110, RFC 8470, RFC 6585)."""
NEVER_SUPPORTED = frozenset({501, 505})
_EXCERPT_BYTES = 500
_MAX_WAIT_S = 1e9
_MAX_EXACT_INTEGER = 2**53
_SERVICE = Sentence("The service")


def status_error(
    answer: "HttpAnswer",
    system: str = _SERVICE,
    *,
    reason: str = "",
    details: Mapping[str, Any] | None = None,
    changes: bool = True,
) -> ConnectorError:
    """Return the error that an unsuccessful status means.

    `system` begins the message, and `reason`, the foreign system's own sentence, ends it.  `details` replaces the status and
    an excerpt of the body.  The outcome is `unknown` after a 5xx status that does not rule out that processing started, unless
    the request cannot have changed anything (`changes`).  Check first for statuses that mean something else in this system.
    """
    status = answer.status
    details = {"status": status, "body": excerpt(answer)} if details is None else details
    values = {"system": system, "reason": f": {reason}" if reason else f" ({status})."}
    if status == 401:
        return AuthError(Sentence("%(system)s does not accept the credentials%(reason)s", **values), details=details)
    if status == 403:
        return AuthError(Sentence("%(system)s does not allow this with these credentials%(reason)s", **values), details=details)
    wait_s = retry_after(answer)
    if status == 429 or (status == 503 and wait_s is not None):
        message = Sentence("%(system)s limits the rate of requests%(reason)s", **values)
        return RateLimited(message, retry_after=wait_s, details=details)
    if status in NOT_STARTED or (status >= 500 and status not in NEVER_SUPPORTED):
        outcome = status_outcome(status) if changes else "not_done"
        return TransientError(Sentence("%(system)s failed%(reason)s", **values), outcome=outcome, details=details)
    if 300 <= status < 400:
        message = Sentence("%(system)s redirects elsewhere (%(status)s), which was not followed.", system=system, status=status)
        return Rejected(message, details=details)
    return Rejected(Sentence("%(system)s refused the request%(reason)s", **values), details=details)


def status_outcome(status: int) -> Outcome:
    """Return `unknown` for a 5xx status, unless it says that processing did not start."""
    return "unknown" if status >= 500 and status not in NOT_STARTED | NEVER_SUPPORTED else "not_done"


def excerpt(answer: "HttpAnswer", max_bytes: int = _EXCERPT_BYTES) -> str:
    """Return the beginning of the body as text, for error details."""
    return answer.content[:max_bytes].decode("utf-8", "replace")


def retry_after(answer: "HttpAnswer", header: str = "retry-after") -> float | None:
    """Return the seconds to wait from Retry-After (RFC 9110 § 10.2.3; seconds or a date); None without a usable value."""
    text = answer.headers.get(header, "").strip()
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        return min(float(text), _MAX_WAIT_S)
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    return max(0.0, moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() - clock.now_ms() / 1000)


def parse_json(content: bytes, *, exact: bool = False) -> Any:
    """Parse JSON; ValueError for invalid or too deeply nested content, including the constants NaN and Infinity.

    With `exact`, a number that a float or a JavaScript reader would round is returned as its text.
    """
    try:
        if exact:
            return json.loads(content, parse_float=_exact_float, parse_int=_exact_int, parse_constant=_refuse_constant)
        return json.loads(content, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error


def _exact_float(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) and Decimal(repr(value)) == Decimal(text) else text


def _exact_int(text: str) -> int | str:
    return int(text) if len(text) < 18 and abs(int(text)) <= _MAX_EXACT_INTEGER else text


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not valid JSON")
