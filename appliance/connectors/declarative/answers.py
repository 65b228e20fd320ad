"""What came back: JSON, or the error its status and content stand for."""

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
    """The body as JSON, None when there is none; raises what the rules, or else the status, say."""
    body = _loads(answer)
    error = _by_rule(answer, body, rules) or _by_status(answer, title)
    if error is not None:
        raise error
    if body is MISSING:
        # It had been sent and the status was good: whether a write was done, nobody knows.
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


def _same(found: Any, wanted: Any) -> bool:
    return type(found) is type(wanted) and found == wanted


def _by_status(answer: HttpAnswer, title: str) -> ConnectorError | None:
    status, details = answer.status, _details(answer)
    if 200 <= status < 300:
        return None
    if status in (401, 403):
        return AuthError(f"{title} does not accept the credentials ({status}); give others in the integration.", details=details)
    after = _retry_after(answer, None)
    if status == 429 or (status == 503 and after is not None):
        return RateLimited(
            Sentence("%(title)s asks to wait (%(status)s).", title=title, status=status), retry_after=after, details=details
        )
    if status in (408, 425) or (status >= 500 and status not in _NEVER_SUPPORTED):
        return TransientError(f"{title} failed ({status}); try again later.", outcome=_outcome(status), details=details)
    if 300 <= status < 400:
        return Rejected(
            Sentence("%(title)s points elsewhere (%(status)s) and was not followed.", title=title, status=status), details=details
        )
    return Rejected(
        Sentence("%(title)s refused the request (%(status)s); the details hold its reason.", title=title, status=status),
        details=details,
    )


def _outcome(status: int) -> Outcome:
    """After a 5xx nobody knows what was done, unless it says that the work was not begun."""
    return "unknown" if status >= 500 and status not in _NOT_BEGUN | _NEVER_SUPPORTED else "not_done"


def sentence(message: Template, values: dict[str, Any]) -> str:
    """A message for people: what is missing is left out, what is long is cut, lines become one."""
    made = []
    for part in message.parts:
        found = part if isinstance(part, str) else part.find(values)
        if found is MISSING or found is None:
            continue
        text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
        made.append(text if isinstance(part, str) else text[:_IN_A_SENTENCE])
    return re.sub(r"\s+", " ", re.sub(r"[\x00-\x1f\x7f]", " ", "".join(made))).strip()


def _details(answer: HttpAnswer) -> dict[str, Any]:
    return {"status": answer.status, "body": answer.content[:_EXCERPT].decode("utf-8", "replace")}


def _retry_after(answer: HttpAnswer, other: str | None) -> float | None:
    """Seconds to wait: the header Retry-After (RFC 9110 § 10.2.3; seconds or a date), or `other` with seconds."""
    text = answer.headers.get("retry-after", answer.headers.get((other or "retry-after").lower(), "")).strip()
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", text):
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    return max(0.0, moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() - clock.now_ms() / 1000)
