"""Coded errors as step code sees them: fault objects, and the failure class of each."""

from collections.abc import Callable
from typing import Any

from appliance.core.errors import ApplianceError, ConnectorFailed, PayloadTooLarge, PolicyDenied, TimedOut
from appliance.core.sentences import Sentence


def too_large(method: str, size: int, most: int, *, is_done: bool) -> PayloadTooLarge:
    """The error of a call that answered `size` bytes where a step is given `most`."""
    if is_done:
        return PayloadTooLarge(Sentence(
            "api.%(method)s answered %(size)s bytes, a step is given at most %(most)s; it was done all the same",
            method=method, size=size, most=most,
        ))
    return PayloadTooLarge(Sentence(
        "api.%(method)s answered %(size)s bytes, a step is given at most %(most)s; ask for fewer records or fields",
        method=method, size=size, most=most,
    ))


def fault_of(error: BaseException) -> dict[str, Any]:
    """What step code sees of an error: code, message, whether trying again may help, and its failure class."""
    if not isinstance(error, ApplianceError):
        return {"code": "internal", "message": "the appliance failed to answer", "retryable": True, "failure_class": "system"}
    return {
        "code": error.code,
        "message": error.message,
        "retryable": bool(error.extra.get("retryable", error.status >= 500 or error.status == 429)),
        "failure_class": failure_class_of(error),
        "details": [{"pointer": d.pointer, "code": d.code, "message": d.message} for d in error.details],
    }


def attempt(work: Callable[[], Any]) -> tuple[bool, Any]:
    """(True, the answer) or (False, the fault)."""
    try:
        return True, work()
    except ApplianceError as error:
        return False, fault_of(error)


def failure_class_of(error: ApplianceError) -> str:
    """The failure class of CONTRACT § 5 for a coded error."""
    if isinstance(error, ConnectorFailed):
        return "connector"
    if isinstance(error, TimedOut):
        return "timeout"
    if isinstance(error, PolicyDenied) or error.status == 403:
        return "policy"
    return "system" if error.status >= 500 else "validation"
