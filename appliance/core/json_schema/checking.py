"""Hands checks that may take long to a worker process.

Checks that are proven cheap run in the calling thread.  The appliance registers one worker for the whole process when its
sandbox starts; a process that serves one person, such as a command line, has none and checks everything itself.
"""

from dataclasses import dataclass
from typing import Protocol

from appliance.core.errors import Detail
from appliance.core.sentences import Sentence

from .messages import to_sentence

# The most that one thread does while it blocks the others: about 10 ms of checks and 20 ms of building errors.
MOST_CHECKS, MOST_ERRORS = 1_000_000, 1_000
# A worker's time limits: to decide whether a value is valid and find the first error, and to list more errors.
CHECK_SECONDS, LIST_SECONDS = 2.0, 1.0
MOST_LISTED = 100
# More errors do not fit the worker's memory, so they are listed only for values too small to cause that many.
MOST_LISTABLE, SMALL_BYTES = 200_000, 16 << 10


@dataclass(frozen=True)
class Question:
    """A JSON Schema and a value, both as JSON; `namespace` is the tenant that the check counts for.  `lists`: whether to list
    all problems or only the first."""

    schema: bytes
    value: bytes
    namespace: str = ""
    lists: bool = True


@dataclass(frozen=True)
class Findings:
    """The problems of a value; `is_complete` unless there may be more that no list shows."""

    problems: list[Detail]
    is_complete: bool = True


class OutOfBounds(Exception):
    """The worker ran out of time or memory; the message says which."""


class Worker(Protocol):
    """Checks values in another process; thread-safe."""

    def check(self, question: Question) -> Findings:
        """Check a value; OutOfBounds, or Overloaded when no worker is free."""


_workers: list[Worker] = []


def register_worker(worker: Worker) -> None:
    """Use this worker until it is withdrawn."""
    _workers.append(worker)


def withdraw_worker(worker: Worker) -> None:
    """Stop using this worker; the one registered before it is used again."""
    if worker in _workers:
        _workers.remove(worker)


def current_worker() -> Worker | None:
    return _workers[-1] if _workers else None


def details_of(findings: Findings, under: str) -> list[Detail]:
    """The problems with their pointers below `under`, and a note if some are not listed."""
    details = [Detail(under + each.pointer, each.code, to_sentence(each.code, each.message)) for each in findings.problems]
    if not findings.is_complete:
        message = Sentence("There may be more problems, too many to be listed. Correct this one and send the value again.")
        details.append(Detail(under, "problems_not_listed", message))
    return details


def too_costly(reason: OutOfBounds, under: str) -> Detail:
    message = Sentence(
        "%(reason)s Send a smaller value, or have the schema simplified: fewer alternatives, shorter enums, simpler patterns.",
        reason=str(reason),
    )
    return Detail(under, "too_costly", message)
