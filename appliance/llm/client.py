"""Sends one question to a provider through the egress client, and converts its failures to coded errors."""

import json
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from appliance.connectors.contract import (
    AddressNotAllowed,
    AuthError,
    ConnectorError,
    HttpAnswer,
    HttpRequest,
    RateLimited,
    Rejected,
    SystemFailure,
    TransientError,
    retry_after,
)
from appliance.connectors.egress import EgressClient
from appliance.core import clock, errors
from appliance.core.database.db import dump_json
from appliance.core.errors import ApplianceError, ConnectorFailed, Detail, TimedOut
from appliance.core.sentences import Sentence

from . import anthropic, openai
from .exchange import Question, Reply, ReplyInvalid

if TYPE_CHECKING:
    from .profile import Profile

DIALECTS: dict[str, ModuleType] = {"openai": openai, "anthropic": anthropic}
# Error codes that come with status 429, but that waiting does not resolve.
_OUT_OF_CREDIT = ("insufficient_quota", "billing_hard_limit_reached")
_LATER = (408, 409, 425, 500, 502, 503, 504, 529)


@dataclass(frozen=True)
class OpenProfile:
    """A profile with its unsealed key."""

    slug: str
    profile: "Profile"
    key: str = field(default="", repr=False)


class ModelFailed(ConnectorFailed):
    """The provider failed or refused the request; `extra` says whether and when a retry may help.

    `is_free` means that nothing was generated, so the call costs nothing.
    """

    def __init__(self, slug: str, error: ConnectorError, *, is_free: bool) -> None:
        message = Sentence("the LLM profile %(slug)s: %(message)s", slug=slug, message=error.message)
        super().__init__(message, rejected=isinstance(error, Rejected), details=[Detail("", error.error_class, message)])
        self.is_free = is_free
        self.extra = {
            "error_class": error.error_class, "outcome": error.outcome,
            "retryable": isinstance(error, TransientError | RateLimited),
        }  # fmt: skip
        if isinstance(error, RateLimited) and error.retry_after is not None:
            self.extra["retry_after"] = error.retry_after


def ask(client: EgressClient, ready: OpenProfile, question: Question, ends: float) -> Reply:
    """Send a question and return the reply, waiting until `ends` (monotonic) or the profile's timeout, whichever is first.

    ModelFailed; TimedOut if `ends` was reached first; AddressNotAllowed.
    """
    dialect = DIALECTS[ready.profile.kind]
    until = min(ends, clock.monotonic() + ready.profile.timeout_ms / 1000)
    try:
        answer = client.send(_request(dialect, ready, question), until)
        return _read(dialect, answer, question)
    except AddressNotAllowed as error:
        raise errors.AddressNotAllowed(error.message, extra={"retryable": False}) from error
    except ConnectorError as error:
        raise _coded(ready, error, is_late=clock.monotonic() >= ends) from error


def is_free(error: ApplianceError) -> bool:
    """Whether a failed call costs nothing, because it was never sent or the provider refused it."""
    return isinstance(error, errors.AddressNotAllowed) or (isinstance(error, ModelFailed) and error.is_free)


def _coded(ready: OpenProfile, error: ConnectorError, *, is_late: bool) -> ApplianceError:
    error.message = error.message.replace(ready.key, "[redacted]") if ready.key else error.message
    if is_late and isinstance(error, TransientError):
        return TimedOut(Sentence(
            "the LLM profile %(slug)s did not answer within the step's time limit; raise the step's `timeout`", slug=ready.slug
        ))
    return ModelFailed(ready.slug, error, is_free=error.outcome == "not_done")


def _request(dialect: ModuleType, ready: OpenProfile, question: Question) -> HttpRequest:
    return HttpRequest(
        "POST", ready.profile.address + dialect.PATH, follow_redirects=False,
        headers=[("Content-Type", "application/json"), ("Accept", "application/json"), *dialect.headers(ready.key)],
        content=dump_json(dialect.write_body(question)).encode("utf-8", "replace"),
    )  # fmt: skip


def _read(dialect: ModuleType, answer: HttpAnswer, question: Question) -> Reply:
    try:
        data = json.loads(answer.content.decode("utf-8", "replace")) if answer.content else None
    except (ValueError, RecursionError):
        data = None
    if answer.status != 200:
        raise _to_error(dialect, answer, data)
    try:
        reply: Reply = dialect.read_reply(data, question)
    except (ReplyInvalid, RecursionError) as error:
        raise SystemFailure(f"it answered something that is not a valid reply: {error}.", outcome="unknown") from error
    return replace(reply, text=reply.text.encode("utf-8", "replace").decode())


def _to_error(dialect: ModuleType, answer: HttpAnswer, data: Any) -> ConnectorError:
    code, message = dialect.read_error(data)
    description = f"it answered {answer.status}" + (f" ({message[:500]})" if message else "") + "."
    details = {"status": answer.status, "code": code[:100]}
    if answer.status in (401, 403):
        return AuthError(f"{description} Check its key.", details=details)
    if answer.status == 429 and code not in _OUT_OF_CREDIT:
        return RateLimited(description, retry_after=_seconds_to_wait(answer), details=details)
    if answer.status in _LATER:
        wait_s = _seconds_to_wait(answer)
        if wait_s is not None:
            return RateLimited(description, retry_after=wait_s, details=details)
        return TransientError(description, details=details)
    if 400 <= answer.status < 500:
        return Rejected(description, details=details)
    return SystemFailure(description, details=details)


def _seconds_to_wait(answer: HttpAnswer) -> float | None:
    """The seconds that the provider asks to wait; None if it does not say."""
    milliseconds = retry_after(answer, "retry-after-ms")
    return retry_after(answer) if milliseconds is None else milliseconds / 1000
