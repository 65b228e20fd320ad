"""Coded errors as step code sees them: error objects, each with its failure class."""

from collections.abc import Callable
from typing import Any

from appliance.core.errors import ApplianceError, ConnectorFailed, PayloadTooLarge, PolicyDenied, TimedOut
from appliance.core.sentences import Sentence


def answer_too_large(method: str, size: int, most: int, *, is_done: bool) -> PayloadTooLarge:
    """The error of a call whose answer of `size` bytes exceeds the limit `most`; `is_done` when the call took effect."""
    if is_done:
        return PayloadTooLarge(Sentence(
            "api.%(method)s returned %(size)s bytes; a step can receive at most %(most)s; the call was carried out",
            method=method, size=size, most=most,
        ))
    return PayloadTooLarge(Sentence(
        "api.%(method)s returned %(size)s bytes; a step can receive at most %(most)s; request fewer records or fields",
        method=method, size=size, most=most,
    ))


def error_object(error: BaseException) -> dict[str, Any]:
    """The error object for step code: code, message, whether a retry may help, and the failure class."""
    if not isinstance(error, ApplianceError):
        return {"code": "internal", "message": "the appliance failed to answer", "retryable": True, "failure_class": "system"}
    return {
        "code": error.code,
        "message": error.message,
        "retryable": bool(error.extra.get("retryable", error.status >= 500 or error.status == 429)),
        "failure_class": failure_class_of(error),
        "details": [{"pointer": d.pointer, "code": d.code, "message": d.message} for d in error.details],
    }


def try_call(work: Callable[[], Any]) -> tuple[bool, Any]:
    """Runs `work`; returns (True, its answer) or (False, the error object of a coded error)."""
    try:
        return True, work()
    except ApplianceError as error:
        return False, error_object(error)


def failure_class_of(error: ApplianceError) -> str:
    """The failure class (docs/contract.md § 5) of a coded error."""
    if isinstance(error, ConnectorFailed):
        return "connector"
    if isinstance(error, TimedOut):
        return "timeout"
    if isinstance(error, PolicyDenied) or error.status == 403:
        return "policy"
    return "system" if error.status >= 500 else "validation"
