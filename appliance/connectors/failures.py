"""The errors that a connector call may raise; `contract` re-exports them for plugins."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

Outcome = Literal["not_done", "unknown"]


class ConnectorError(Exception):
    """Base class of connector errors.  Raise one of the subclasses below, never this class.

    `message` is a sentence for the person who operates the process; it must not contain secrets.
    `outcome` tells the caller what to assume: `not_done` when the foreign system has changed nothing (the request was never
    sent, or the system refused it), `unknown` when the request was sent and no conclusive response came back.  An action with
    effect `write` and an unknown outcome is retried only after a person has decided.
    `details` is a small JSON object that helps to diagnose the error: a status, an excerpt of the response.
    """

    error_class: ClassVar[str] = "system_error"

    def __init__(self, message: str, *, outcome: Outcome = "not_done", details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.outcome: Outcome = outcome
        self.details: dict[str, Any] = dict(details or {})


class ConfigError(ConnectorError):
    """The settings or the input cannot work; retrying without a change is useless."""

    error_class = "config_error"


class AddressNotAllowed(ConfigError):
    """The operator's egress rules forbid the address.  Raised by `ctx`, rarely by a plugin."""


class AuthError(ConnectorError):
    """The foreign system rejects the credentials."""

    error_class = "auth_error"


class RateLimited(ConnectorError):
    """The foreign system limits the request rate.  `retry_after` is in seconds, None when the system gave no time."""

    error_class = "rate_limited"

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | None = None,
        outcome: Outcome = "not_done",
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, outcome=outcome, details=details)
        self.retry_after = retry_after


class TransientError(ConnectorError):
    """A retry may succeed: no connection, no response in time, or the system is down."""

    error_class = "transient_error"


class Rejected(ConnectorError):
    """The foreign system understood the request and refused it; the same request would be refused again."""

    error_class = "rejected"


class SystemFailure(ConnectorError):
    """The foreign system sent a response that is neither a success nor a refusal, such as malformed content."""

    error_class = "system_error"


class Withdrawn(Rejected):
    """The foreign system no longer offers a discovered action in the form that was discovered.

    The appliance withholds the action with this message until the actions are discovered again.
    """
