"""Reads the responses to declarative requests: the JSON body, or the error that status and content indicate."""

import json
import re
from collections.abc import Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

from appliance.connectors.contract import (
    AuthError,
    ConfigError,
    ConnectorError,
    Effect,
    HttpAnswer,
    Outcome,
    RateLimited,
    Rejected,
    SystemFailure,
    TransientError,
)
from appliance.connectors.declarative.plan import ErrorRule
from appliance.connectors.declarative.templates import MISSING, Template, follow
from appliance.core import clock
from appliance.core.sentences import Sentence

_EXCERPT = 2000
_IN_A_SENTENCE = 300
_NEVER_SUPPORTED = frozenset({501, 505})
_NOT_BEGUN = frozenset({408, 425, 429, 503})
_CLASSES: dict[str, type[ConnectorError]] = {
    each.error_class: each for each in (ConfigError, AuthError, TransientError, Rejected, SystemFailure)
}


def read_answer(answer: HttpAnswer, rules: Sequence[ErrorRule], title: str, effect: Effect) -> Any:
    """Return the body as JSON, None when it is empty; raises the error determined by the rules or, failing those, the status."""
    body = _loads(answer)
    error = _by_rule(answer, body, rules) or _by_status(answer, title)
    if error is not None:
        raise error
    if body is MISSING:
        # The request was sent and the status was a success, so a write may have been performed.
        outcome: Outcome = "not_done" if effect == "read" else "unknown"
        raise SystemFailure(f"{title} did not answer in JSON.", outcome=outcome, details=_details(answer))
    return body


def _loads(answer: HttpAnswer) -> Any:
    if not answer.content.strip():
        return None
    try:
        return json.loads(answer.content, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return MISSING


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _by_rule(answer: HttpAnswer, body: Any, rules: Sequence[ErrorRule]) -> ConnectorError | None:
    for rule in rules:
        if answer.status in rule.statuses and all(_same(follow(body, steps), value) for steps, value in rule.when):
            message = sentence(rule.message, {"answer": body, "status": answer.status})
            outcome = rule.outcome or _outcome(answer.status)
            if rule.error_class == RateLimited.error_class:
                after = _retry_after(answer, rule.retry_after_header)
                return RateLimited(message, retry_after=after, outcome=outcome, details=_details(answer))
            return _CLASSES[rule.error_class](message, outcome=outcome, details=_details(answer))
    return None


def _same(value: Any, expected: Any) -> bool:
    return type(value) is type(expected) and value == expected


def _by_status(answer: HttpAnswer, title: str) -> ConnectorError | None:
    status, details = answer.status, _details(answer)
    if 200 <= status < 300:
        return None
    if status in (401, 403):
        return AuthError(f"{title} does not accept the credentials ({status}); give others in the integration.", details=details)
    after = _retry_after(answer, None)
    if status == 429 or (status == 503 and after is not None):
        message = Sentence("%(title)s limits the rate of requests (%(status)s).", title=title, status=status)
        return RateLimited(message, retry_after=after, details=details)
    if status in (408, 425) or (status >= 500 and status not in _NEVER_SUPPORTED):
        return TransientError(f"{title} failed ({status}); try again later.", outcome=_outcome(status), details=details)
    if 300 <= status < 400:
        message = Sentence("%(title)s redirects elsewhere (%(status)s), which was not followed.", title=title, status=status)
        return Rejected(message, details=details)
    return Rejected(
        Sentence("%(title)s refused the request (%(status)s); the details hold its reason.", title=title, status=status),
        details=details,
    )


def _outcome(status: int) -> Outcome:
    """Return `unknown` for a 5xx status, unless the status implies that processing did not start."""
    return "unknown" if status >= 500 and status not in _NOT_BEGUN | _NEVER_SUPPORTED else "not_done"


def sentence(message: Template, values: dict[str, Any]) -> str:
    """Render a message: missing values are omitted, long values truncated, and line breaks replaced by spaces."""
    pieces = []
    for part in message.parts:
        value = part if isinstance(part, str) else part.find(values)
        if value is MISSING or value is None:
            continue
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        pieces.append(text if isinstance(part, str) else text[:_IN_A_SENTENCE])
    return re.sub(r"\s+", " ", re.sub(r"[\x00-\x1f\x7f]", " ", "".join(pieces))).strip()


def _details(answer: HttpAnswer) -> dict[str, Any]:
    return {"status": answer.status, "body": answer.content[:_EXCERPT].decode("utf-8", "replace")}


def _retry_after(answer: HttpAnswer, other: str | None) -> float | None:
    """Return the seconds to wait from Retry-After (RFC 9110 § 10.2.3; seconds or a date) or the header `other` (seconds)."""
    text = answer.headers.get("retry-after", answer.headers.get((other or "retry-after").lower(), "")).strip()
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", text):
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    return max(0.0, moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() - clock.now_ms() / 1000)
