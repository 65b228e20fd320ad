"""Where values are checked that may take long: in a worker process, which whoever starts this process provides.

What is proven cheap never comes here.  A process that serves one person, such as a command line, has no worker and checks
everything itself; the appliance registers its worker when its sandbox starts: once, for the whole process.
"""

from dataclasses import dataclass
from typing import Protocol

from appliance.core.errors import Detail
from appliance.core.sentences import Sentence

# What one thread may do at once while all others wait for it: some 10 ms, and some 20 ms.
MOST_CHECKS, MOST_ERRORS = 1_000_000, 1_000
# What a worker gets: the time to tell whether a value is valid and to find the first error, and the time to list more.
CHECK_SECONDS, LIST_SECONDS = 2.0, 1.0
MOST_LISTED = 100
# More errors than this would not fit the worker's memory; nobody tries to list them, unless the value is too small for that many.
MOST_LISTABLE, SMALL_BYTES = 200_000, 16 << 10


@dataclass(frozen=True)
class Question:
    """A JSON Schema and a value, both as JSON; `namespace` is the tenant whose turn is used.  `lists`: whether all problems
    are worth trying to list, or the first will do."""

    schema: bytes
    value: bytes
    namespace: str = ""
    lists: bool = True


@dataclass(frozen=True)
class Findings:
    """What is wrong with the value; `is_complete`: there is no more, or more than are shown anywhere."""

    problems: list[Detail]
    is_complete: bool = True


class OutOfBounds(Exception):
    """The worker used up its time or its memory; the message says which."""


class Worker(Protocol):
    """Checks values elsewhere; thread-safe."""

    def check(self, question: Question) -> Findings:
        """OutOfBounds, or the coded error Overloaded when nobody had time."""


_workers: list[Worker] = []


def register_worker(worker: Worker) -> None:
    """Let this worker check from now on, until it is withdrawn."""
    _workers.append(worker)


def withdraw_worker(worker: Worker) -> None:
    """Let it check no more; the one before it does again."""
    if worker in _workers:
        _workers.remove(worker)


def current_worker() -> Worker | None:
    return _workers[-1] if _workers else None


def details_of(findings: Findings, under: str) -> list[Detail]:
    """The problems with their pointers under `under`, and a word about those that are not listed."""
    details = [Detail(under + each.pointer, each.code, each.message) for each in findings.problems]
    if not findings.is_complete:
        message = "There may be more problems, too many to be listed. Correct this one and send the value again."
        details.append(Detail(under, "problems_not_listed", message))
    return details


def too_costly(reason: OutOfBounds, under: str) -> Detail:
    message = Sentence(
        "%(reason)s Send a smaller value, or have the schema simplified: fewer alternatives, shorter enums, simpler patterns.",
        reason=reason,
    )
    return Detail(under, "too_costly", message)
