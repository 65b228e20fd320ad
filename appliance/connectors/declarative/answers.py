"""Reads the responses to declarative requests: the JSON body, or the error that status and content indicate."""

import json
import re
from collections.abc import Sequence
from typing import Any

from appliance.connectors.answers import excerpt, parse_json, retry_after, status_error, status_outcome
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

_EXCERPT = 2000
_IN_A_SENTENCE = 300
_CLASSES: dict[str, type[ConnectorError]] = {
    each.error_class: each for each in (ConfigError, AuthError, TransientError, Rejected, SystemFailure)
}


def read_answer(answer: HttpAnswer, rules: Sequence[ErrorRule], title: str, effect: Effect) -> Any:
    """Return the body as JSON, None when it is empty; raises the error determined by the rules or, failing those, the status."""
    body = _loads(answer)
    error = _by_rule(answer, body, rules)
    if error is not None:
        raise error
    if not 200 <= answer.status < 300:
        raise status_error(answer, title, details=_details(answer))
    if body is MISSING:
        # The request was sent and the status was a success, so a write may have been performed.
        outcome: Outcome = "not_done" if effect == "read" else "unknown"
        raise SystemFailure(f"{title} did not answer in JSON.", outcome=outcome, details=_details(answer))
    return body


def _loads(answer: HttpAnswer) -> Any:
    if not answer.content.strip():
        return None
    try:
        return parse_json(answer.content)
    except ValueError:
        return MISSING


def _by_rule(answer: HttpAnswer, body: Any, rules: Sequence[ErrorRule]) -> ConnectorError | None:
    for rule in rules:
        if answer.status in rule.statuses and all(_same(follow(body, steps), value) for steps, value in rule.when):
            message = sentence(rule.message, {"answer": body, "status": answer.status})
            outcome = rule.outcome or status_outcome(answer.status)
            if rule.error_class == RateLimited.error_class:
                header = "retry-after" if "retry-after" in answer.headers else (rule.retry_after_header or "retry-after").lower()
                after = retry_after(answer, header)
                return RateLimited(message, retry_after=after, outcome=outcome, details=_details(answer))
            return _CLASSES[rule.error_class](message, outcome=outcome, details=_details(answer))
    return None


def _same(value: Any, expected: Any) -> bool:
    return type(value) is type(expected) and value == expected


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
    return {"status": answer.status, "body": excerpt(answer, _EXCERPT)}


