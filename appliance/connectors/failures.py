"""How a call to a foreign system fails: the errors of the connector contract, which hands them on to plugins."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

Outcome = Literal["not_done", "unknown"]


class ConnectorError(Exception):
    """The foreign system did not do what was asked.  Raise one of the classes below, never this one.

    `message` is a sentence for the person who runs the process; it carries no secret.
    `outcome` says what a caller may assume: `not_done` when nothing has changed over there (the request was never sent,
    or the system refused it), `unknown` when it had been sent and no verdict came back.  An action of effect `write`
    whose outcome is unknown is never sent again without a person.
    `details` is small JSON that helps to mend it: a status, an excerpt of the answer.
    """

    error_class: ClassVar[str] = "system_error"

    def __init__(self, message: str, *, outcome: Outcome = "not_done", details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.outcome: Outcome = outcome
        self.details: dict[str, Any] = dict(details or {})


class ConfigError(ConnectorError):
    """The settings or the input cannot work: asking again without a change is useless."""

    error_class = "config_error"


class AddressNotAllowed(ConfigError):
    """The operator's egress rules forbid the address.  Raised by `ctx`, hardly ever by a plugin."""


class AuthError(ConnectorError):
    """The foreign system does not accept the credentials."""

    error_class = "auth_error"


class RateLimited(ConnectorError):
    """The foreign system asks for patience.  `retry_after` is in seconds, None when it did not say."""

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
    """Asking again may help: no connection, no answer in time, the system is down."""

    error_class = "transient_error"


class Rejected(ConnectorError):
    """The foreign system understood and said no: the same request will be refused again."""

    error_class = "rejected"


class SystemFailure(ConnectorError):
    """The foreign system answered something that makes no sense: neither a success nor a refusal."""

    error_class = "system_error"


class Withdrawn(Rejected):
    """The foreign system no longer offers a discovered action as it was discovered: it is withheld from now on, with this
    message, until the actions are discovered again."""
