"""Maps HTTP statuses to errors of the contract, and tests addresses that are themselves secrets."""

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
    """Return the error for an unsuccessful status, None for success.  Messages begin with `subject`, such as "Slack"."""
    status = answer.status
    if 200 <= status < 300:
        return None
    body = answer.content[:_EXCERPT].decode("utf-8", "replace").strip()
    details = {"status": status, "body": body}
    after = retry_after(answer)
    if status == 429 or (status == 503 and after is not None):
        return RateLimited(f"{subject} limits the request rate ({status}).", retry_after=after, details=details)
    if status in (401, 403):
        return AuthError(f"{subject} does not accept the credentials, or they lack a permission ({status}).", details=details)
    if status in (408, 425) or (status >= 500 and status not in _NEVER_SUPPORTED):
        # 408, 425 and 503 mean that the request was not processed; after any other 5xx the outcome is unknown.
        outcome: Outcome = "not_done" if status in (408, 425, 503) else "unknown"
        return TransientError(f"{subject} failed ({status}).", outcome=outcome, details=details)
    if status in (404, 405, 410):
        return ConfigError(
            f"{subject} does not know this address ({status}); create a new one there and update the settings.", details=details
        )
    if 300 <= status < 400:
        return ConfigError(
            f"{subject} redirects to another address ({status}), which is not followed; set the new address.", details=details
        )
    suffix = f": {body}" if body and len(body) < 200 else "."
    return Rejected(f"{subject} refused the request ({status}){suffix}", details=details)


def retry_after(answer: HttpAnswer) -> float | None:
    """Return the seconds in the Retry-After header (RFC 9110 § 10.2.3), which holds seconds or a date; None without one."""
    text = answer.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    return max(0.0, moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() - time.time())


def probe(url: str, ctx: Context) -> str:
    """Return `host:port` of the address after connecting to it, the only test possible without sending a message."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError) as error:
        raise ConfigError("The address is not a valid http or https URL; correct it.") from error
    if not host:
        raise ConfigError("The address contains no host; correct it.")
    ctx.dial(host, port).close()
    return f"{host}:{port}"
