"""The contract's error for a status, and what may be said of an address that is a secret itself."""

import time
from datetime import UTC
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from appliance.connectors.contract import (
    AuthError,
    ConfigError,
    ConnectorError,
    Context,
    HttpAnswer,
    Outcome,
    RateLimited,
    Rejected,
    TransientError,
)

_EXCERPT = 500
_NEVER_SUPPORTED = frozenset({501, 505})
_PORTS = {"http": 80, "https": 443}


def error_of(answer: HttpAnswer, subject: str) -> ConnectorError | None:
    """The error of a status that is no success; None for a success.  `who` begins the sentence: Slack, The receiver."""
    status = answer.status
    if 200 <= status < 300:
        return None
    body = answer.content[:_EXCERPT].decode("utf-8", "replace").strip()
    details = {"status": status, "body": body}
    after = retry_after(answer)
    if status == 429 or (status == 503 and after is not None):
        return RateLimited(f"{subject} asks to wait ({status}).", retry_after=after, details=details)
    if status in (401, 403):
        return AuthError(f"{subject} does not accept the credentials, or they lack a right ({status}).", details=details)
    if status in (408, 425) or (status >= 500 and status not in _NEVER_SUPPORTED):
        # 503, 408 and 425 say that the work was not begun; after another 5xx nobody knows.
        outcome: Outcome = "not_done" if status in (408, 425, 503) else "unknown"
        return TransientError(f"{subject} failed ({status}).", outcome=outcome, details=details)
    if status in (404, 405, 410):
        return ConfigError(
            f"{subject} no longer has this address, or never had it ({status}); make a new one over there.", details=details
        )
    if 300 <= status < 400:
        return ConfigError(f"{subject} points to another address ({status}), which is not followed; set that one.", details=details)
    suffix = f": {body}" if body and len(body) < 200 else "."
    return Rejected(f"{subject} refused ({status}){suffix}", details=details)


def retry_after(answer: HttpAnswer) -> float | None:
    """Seconds of the header Retry-After (RFC 9110 § 10.2.3), given as seconds or as a date."""
    text = answer.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    return max(0.0, moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() - time.time())


def knock(url: str, ctx: Context) -> str:
    """`host:port` of the address, once something there has accepted a connection: all that can be tried without sending."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError) as error:
        raise ConfigError("The address is not one of http or https; check it.") from error
    if not host:
        raise ConfigError("The address names no host; check it.")
    ctx.dial(host, port).close()
    return f"{host}:{port}"
