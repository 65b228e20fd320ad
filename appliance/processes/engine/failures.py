"""Failures of steps: one exception that carries the error object (docs/contract.md § 17)."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from appliance.core.database.db import dump_json
from appliance.core.errors import ApplianceError, Overloaded
from appliance.core.sentences import Sentence
from appliance.core.texts import mark_error
from appliance.processes.host.call_errors import failure_class_of
from appliance.sandbox import Failure, LogLine

from .store import JournalEntry

# Stored in English, and translated where a page shows it.
NEXT_ACTIONS = {
    "user_code": mark_error("fix the step's code, publish, and retry from the failed step with the published version"),
    "connector": mark_error("test the integration to see whether the other system responds, then retry from the failed step"),
    "policy": mark_error("add the missing grant to the definition, publish, and retry with the published version"),
    "memory": mark_error(
        "raise limits.memory_mb of the step or make it process less at once, publish, and retry with the published version"
    ),
    "timeout": mark_error("raise limits.time of the step or let it do less at once, publish, and retry with the published version"),
    "validation": mark_error(
        "fix what the message describes; after a change to the definition, publish and retry with the published version"
    ),
    "system": mark_error("retry from the failed step; if it happens again, give the operator the execution id"),
}
_NEXT_OF_CODE = {
    "address_not_allowed": mark_error(
        "correct the address, or ask the operator to add it to egress.allow, then retry from the failed step"
    ),
}
"""Where the next step does not follow from the class of the failure."""
TIMED_OUT_TEXT = mark_error("the process was active longer than its timeout of %(seconds)s s")


# The sandbox was lost, busy or not prepared yet, which is not the attempt's fault: it runs again.
PREPARING = "runtime_preparing"
LOST_CODES = ("sandbox_lost", "sandbox_busy", "formats_busy", PREPARING)
UNAVAILABLE_CODES = (PREPARING, "runtime_unavailable")


def raise_if_unchecked(codes: Iterable[str]) -> None:
    """Overloaded if one of the problems is that the sandbox could not check: unchecked does not mean invalid."""
    codes = set(codes)
    if codes.intersection(UNAVAILABLE_CODES):
        text = "the runtime that checks this code is not ready; the Monitor shows whether it is being prepared or why it failed"
        raise Overloaded(text, headers={"Retry-After": "30"})
    if codes.intersection(LOST_CODES):
        raise Overloaded("the sandbox is too busy to check the code; try again in a moment", headers={"Retry-After": "5"})


class StepFailed(Exception):
    """A step run's failure: the error object without step and attempt, and the attempt's log lines and journal."""

    def __init__(self, error: dict[str, Any], logs: Sequence[LogLine] = (), journal: Sequence[JournalEntry] = ()) -> None:
        super().__init__(error["message"])
        self.error = error
        self.logs = list(logs)
        self.journal = list(journal)


def make_error(code: str, failure_class: str, message: str, *, retryable: bool = False, **more: Any) -> dict[str, Any]:
    """The error object; `next` says what to do, `retry_after` (seconds) how long the other system asked to wait."""
    error = {"code": code, "failure_class": failure_class, "message": message, "retryable": retryable}
    error |= {name: value for name, value in more.items() if value not in (None, "", [], {})}
    error["next"] = _NEXT_OF_CODE.get(code, NEXT_ACTIONS[failure_class])
    return error


def check_output(output: Any, max_bytes: int) -> None:
    """StepFailed if an output is larger than `max_bytes` of JSON."""
    size = 0 if output is None else len(dump_json(output))
    if size > max_bytes:
        raise StepFailed(
            make_error(
                "output_too_large",
                "validation",
                Sentence("the output has %(size)s bytes; the maximum is %(most)s", size=size, most=max_bytes),
            )
        )


def failed_validation(message: str, pointer: str = "", code: str = "expression_failed") -> StepFailed:
    """A failure caused by a wrong value or expression at `pointer` of the definition."""
    return StepFailed(
        make_error(
            code, "validation", Sentence("%(pointer)s: %(message)s", pointer=pointer, message=message) if pointer else message
        )
    )


def from_appliance_error(error: ApplianceError) -> StepFailed:
    """A coded error of a domain as a step's failure."""
    details = [{"pointer": d.pointer, "code": d.code, "message": d.message} for d in error.details]
    retryable = bool(error.extra.get("retryable", error.status in (429, 502, 503, 504)))
    more = {"details": details, "retry_after": error.extra.get("retry_after")}
    return StepFailed(make_error(error.code, failure_class_of(error), error.message, retryable=retryable, **more))


def from_sandbox(failure: Failure, fault_messages: Mapping[str, str] = MappingProxyType({})) -> StepFailed:
    """A sandbox failure as a step's failure, with the position in the original source.

    `fault_messages` are the messages of the faults that host calls returned, by their text: an uncaught one stays a Sentence.
    """
    position = failure.position
    source_position = {"file": position.file, "line": position.line, "column": position.column} if position else None
    is_plain = failure.failure_class != "user_code" or failure.name in ("", "Error")
    message = fault_messages.get(failure.message, failure.message)
    if not is_plain:
        message = Sentence("%(name)s: %(message)s", name=failure.name, message=failure.message)
    if not failure.message:
        message = Sentence("%(name)s without a message", name=failure.name or "Error")
    return StepFailed(
        make_error(
            failure.code or "step_failed", failure.failure_class, message,
            retryable=failure.retryable, position=source_position, stack=failure.stack[:8000],
        )
    )  # fmt: skip
