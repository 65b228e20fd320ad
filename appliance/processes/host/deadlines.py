"""Limits how long code waits for one call: after that the call fails for the code, and a late answer is discarded."""

import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from functools import partial
from typing import Any

from appliance.core import clock
from appliance.core.scheduling import PROMPT, PeriodicJob, Scheduler
from appliance.core.sentences import Sentence

Submit = Callable[[str, Callable[[], Any]], "Future[Any]"]


def call_timed_out(seconds: float) -> tuple[bool, dict[str, Any]]:
    """The failed answer that the code receives; whether the call took effect is unknown."""
    text = Sentence(
        "the call took longer than %(seconds)s s and may still be carried out; ask for less, or raise limits.step_call_seconds",
        seconds=f"{seconds:g}",
    )
    return False, {"code": "call_timed_out", "message": text, "retryable": True, "failure_class": "timeout"}


class Deadlines:
    """Submits calls and answers `call_timed_out` for those that take longer than `seconds`, between `start`
    and `stop`; thread-safe.

    The call itself continues until its own deadline and is recorded with the other calls to foreign systems.
    """

    def __init__(self, submit: Submit, seconds: float) -> None:
        self._submit, self._seconds = submit, seconds
        self._lock = threading.Lock()
        # Ordered by deadline, because all calls have the same limit. Weak, so that answered calls are freed early.
        self._open: deque[tuple[float, weakref.ref[Future[Any]]]] = deque()
        self._job = PeriodicJob("deadlines", seconds, self._settle_late, PROMPT)

    def start(self, scheduler: Scheduler) -> None:
        self._job.start(scheduler)

    def submit(self, tenant_id: str, work: Callable[[], Any]) -> "Future[Any]":
        """Runs `work`; the future has its result, or `call_timed_out`."""
        answer: Future[Any] = Future()
        self._submit(tenant_id, work).add_done_callback(lambda done: _pass_on(done, answer))
        with self._lock:
            self._open.append((clock.monotonic() + self._seconds, weakref.ref(answer)))
        self._job.run_within(self._seconds)
        return answer

    def stop(self) -> None:
        self._job.stop()

    def _settle_late(self) -> None:
        while (late := self._take_late()) is not None:
            answer = late()
            if answer is not None:
                _settle(answer, partial(answer.set_result, call_timed_out(self._seconds)))

    def _take_late(self) -> "weakref.ref[Future[Any]] | None":
        """Removes the next call whose deadline is over; without one, plans the check for the next deadline."""
        with self._lock:
            left = self._open[0][0] - clock.monotonic() if self._open else self._seconds
            if left <= 0:
                return self._open.popleft()[1]
        self._job.run_within(left)
        return None


def _pass_on(done: "Future[Any]", answer: "Future[Any]") -> None:
    if done.cancelled():
        answer.cancel()
        return
    error = done.exception()
    _settle(answer, partial(answer.set_exception, error) if error else partial(answer.set_result, done.result()))


def _settle(future: "Future[Any]", settle: Callable[[], None]) -> None:
    try:
        settle()
    except InvalidStateError:
        return  # already settled by the answer or by the deadline
