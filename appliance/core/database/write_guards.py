"""What the writes of a request depend on: they look at it themselves, in whichever thread, and are rolled back if it does not hold.

A request may begin before a change that forbids it, or in a process that has not heard of the change.  Its guard is a query of
rows that forbid its writes; a write that changes those rows has none beside it, so every other one comes before or after it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WriteGuard:
    """Writes fail with the error of `refuse` if the query has a row."""

    sql: str
    params: tuple[Any, ...]
    refuse: Callable[[], Exception]


@dataclass(slots=True)
class GuardedRequest:
    """A request; its guard can be set later, in any of its threads, when its caller is known."""

    guard: WriteGuard | None = None


_current: ContextVar[GuardedRequest | None] = ContextVar("guarded_request", default=None)


@contextmanager
def guarding(request: GuardedRequest) -> Iterator[None]:
    """In the block, and in the work that it hands to other threads with `carry`, writes depend on the guard of the request."""
    token = _current.set(request)
    try:
        yield
    finally:
        _current.reset(token)


def guard_request(guard: WriteGuard) -> None:
    """Set the guard of the current request, if this is the work of one and it has none, as of when it began."""
    if (request := _current.get()) is not None and request.guard is None:
        request.guard = guard


def current_guard() -> WriteGuard | None:
    """The guard of the writes of this thread."""
    request = _current.get()
    return None if request is None else request.guard


def carry(work: Callable[P, T]) -> Callable[P, T]:
    """The work as that of the current request, for another thread."""
    request = _current.get()
    return work if request is None else partial(_work_for, request, work)


def _work_for(request: GuardedRequest, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    with guarding(request):
        return work(*args, **kwargs)
