"""What came back: its JSON, or the contract's error for a status."""

import json
from typing import Any

from appliance.connectors.contract import (
    AuthError,
    ConnectorError,
    HttpAnswer,
    Outcome,
    RateLimited,
    Rejected,
    SystemFailure,
    TransientError,
    retry_after,
)

_EXCERPT = 500
_NEVER_SUPPORTED = frozenset({501, 505})


def parse_json(answer: HttpAnswer, who: str) -> Any:
    """The body as JSON; SystemFailure when it is none."""
    try:
        return json.loads(answer.content, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise odd_answer(answer, who) from error


def parse_object(answer: HttpAnswer, who: str) -> dict[str, Any]:
    """The body as a JSON object; SystemFailure when it is none."""
    body = parse_json(answer, who)
    if not isinstance(body, dict):
        raise odd_answer(answer, who)
    return body


def told_object(answer: HttpAnswer) -> dict[str, Any]:
    """The body of a refusal as an object; an empty one when it is something else, such as a gateway's page."""
    try:
        body = json.loads(answer.content)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def odd_answer(answer: HttpAnswer, who: str) -> SystemFailure:
    """The failure of a success that does not say what it should."""
    details = {"status": answer.status, "body": brief(answer.content.decode("utf-8", "replace"))}
    return SystemFailure(f"What answers at this address does not speak as {who} does.", outcome="unknown", details=details)


def brief(text: object) -> str:
    """The beginning of what a foreign system said, on one line, and never the stack of its program."""
    said = str(text).split("Traceback (most recent call last)")[0]
    return " ".join(said[: 4 * _EXCERPT].split())[:_EXCERPT]


def error_of(answer: HttpAnswer, who: str, said: str, code: str = "") -> ConnectorError:
    """The error that a status other than a success stands for; `said` is what the system gave as the reason."""
    status = answer.status
    details = {"status": status, **({"code": code} if code else {}), **({"message": said} if said else {})}
    reason = f": {said}" if said else f" ({status})."
    if status == 401:
        return AuthError(f"{who} does not accept the credentials{reason}", details=details)
    if status == 403:
        return AuthError(f"{who} does not allow this to the credentials{reason}", details=details)
    after = retry_after(answer)
    if status == 429 or (status == 503 and after is not None):
        return RateLimited(f"{who} asks to wait ({status}).", retry_after=after, details=details)
    if status in (408, 425) or (status >= 500 and status not in _NEVER_SUPPORTED):
        # 503, 408 and 425 say that the work was not begun; after another 5xx nobody knows.
        outcome: Outcome = "not_done" if status in (408, 425, 503) else "unknown"
        return TransientError(f"{who} failed{reason}", outcome=outcome, details=details)
    return Rejected(f"{who} refused{reason}", details=details)


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
