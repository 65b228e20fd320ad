"""Errors with a code of the contract, one class per code.  Any other exception is a bug and is reported as `internal`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Detail:
    """One detail of an error: a JSON pointer into the request, a code and a message."""

    pointer: str
    code: str
    message: str


class ApplianceError(Exception):
    """Base class of every error that has a code of the contract.

    `message` says what is wrong and what to do next; `headers` are sent with the HTTP response (Retry-After); `extra`
    members are added to the error object (`approval_id`).
    """

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500

    def __init__(
        self,
        message: str,
        *,
        details: Sequence[Detail] = (),
        pointer: str | None = None,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details = list(details)
        if pointer is not None and not self.details:
            self.details = [Detail(pointer, self.code, message)]
        self.headers = dict(headers or {})
        self.extra = dict(extra or {})


class InvalidJson(ApplianceError):
    code, status = "invalid_json", 400


class InvalidRequest(ApplianceError):
    code, status = "invalid_request", 400


class InvalidCursor(ApplianceError):
    code, status = "invalid_cursor", 400


class InvalidFilter(ApplianceError):
    code, status = "invalid_filter", 400


class MissingApiKey(ApplianceError):
    code, status = "missing_api_key", 401


class InvalidApiKey(ApplianceError):
    code, status = "invalid_api_key", 401


class ExpiredApiKey(ApplianceError):
    code, status = "expired_api_key", 401


class RevokedApiKey(ApplianceError):
    code, status = "revoked_api_key", 401


class InvalidSignature(ApplianceError):
    code, status = "invalid_signature", 401


class SignInRequired(ApplianceError):
    """A visitor of a WebApp is not signed in."""

    code, status = "sign_in_required", 401


class ScopeMissing(ApplianceError):
    code, status = "scope_missing", 403


class PolicyDenied(ApplianceError):
    code, status = "policy_denied", 403


class GrantRequired(ApplianceError):
    """The publication needs permissions that the publisher does not have; an owner can grant them."""

    code, status = "grant_required", 403


class ApprovalRequired(ApplianceError):
    code, status = "approval_required", 403


class BrowserCallRefused(ApplianceError):
    code, status = "browser_call_refused", 403


class AddressNotAllowed(ApplianceError):
    code, status = "address_not_allowed", 403


class KeyLimited(ApplianceError):
    code, status = "key_limited", 403


class BudgetExceeded(ApplianceError):
    code, status = "budget_exceeded", 403


class AnswerRefused(ApplianceError):
    """A language model declined to answer."""

    code, status = "answer_refused", 403


class NotFound(ApplianceError):
    code, status = "not_found", 404


class MethodNotAllowed(ApplianceError):
    code, status = "method_not_allowed", 405


class Gone(ApplianceError):
    code, status = "gone", 410


class Conflict(ApplianceError):
    code, status = "conflict", 409


class AlreadyExists(ApplianceError):
    code, status = "already_exists", 409


class NotPublished(ApplianceError):
    code, status = "not_published", 409


class IdempotencyInFlight(ApplianceError):
    code, status = "idempotency_in_flight", 409


class ExecutionFinished(ApplianceError):
    code, status = "execution_finished", 409


class VersionConflict(ApplianceError):
    code, status = "version_conflict", 412


class PayloadTooLarge(ApplianceError):
    code, status = "payload_too_large", 413


class UnsupportedMediaType(ApplianceError):
    code, status = "unsupported_media_type", 415


class RangeNotSatisfiable(ApplianceError):
    code, status = "range_not_satisfiable", 416


class UnknownHost(ApplianceError):
    code, status = "unknown_host", 421


class ValidationFailed(ApplianceError):
    code, status = "validation_failed", 422


class AnswerInvalid(ApplianceError):
    """A language model's answer does not match the requested format, even after a retry."""

    code, status = "answer_invalid", 422


class IdempotencyMismatch(ApplianceError):
    code, status = "idempotency_mismatch", 422


class DefinitionInvalid(ApplianceError):
    code, status = "definition_invalid", 422


class ApiKeyLeaked(ApplianceError):
    code, status = "api_key_leaked", 422


class RateLimited(ApplianceError):
    code, status = "rate_limited", 429


class ConcurrencyLimited(ApplianceError):
    code, status = "concurrency_limited", 429


class HeadersTooLarge(ApplianceError):
    code, status = "headers_too_large", 431


class NotSupported(ApplianceError):
    """An HTTP feature that this server does not support: WebSockets, tunnels, transfer codings."""

    code, status = "not_supported", 501


class Rejected(ApplianceError):
    """A process rejected a request from a WebApp, with a message of its author."""

    code, status = "rejected", 422


class ProcessFailed(ApplianceError):
    """A process behind a WebApp failed; the cause is shown to its operators only."""

    code, status = "process_failed", 502


class ConnectorFailed(ApplianceError):
    """A foreign system failed (502) or rejected the request (422, `rejected=True`)."""

    code, status = "connector_failed", 502

    def __init__(self, message: str, *, rejected: bool = False, details: Sequence[Detail] = ()) -> None:
        super().__init__(message, details=details)
        self.rejected = rejected


class Overloaded(ApplianceError):
    code, status = "overloaded", 503


class OutcomeUnknown(ApplianceError):
    code, status = "outcome_unknown", 503


class Draining(ApplianceError):
    code, status = "draining", 503


class TimedOut(ApplianceError):
    code, status = "timed_out", 504


class StorageFull(ApplianceError):
    code, status = "storage_full", 507


class ConfigInvalid(ApplianceError):
    """A setting is unknown or has an invalid value; the message names it and how to correct it."""

    code, status = "config_invalid", 500


class UnscopedQuery(RuntimeError):
    """A tenant table was queried without a TenantScope, which is a bug."""


def http_status(error: ApplianceError) -> int:
    """The HTTP status of an error; a request that a foreign system rejected is the caller's error (422)."""
    if isinstance(error, ConnectorFailed) and error.rejected:
        return 422
    return error.status


def error_classes() -> list[type[ApplianceError]]:
    """All error classes with a code, for the OpenAPI document and the reference page."""
    return sorted(ApplianceError.__subclasses__(), key=lambda c: (c.status, c.code))
