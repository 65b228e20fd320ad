"""How long code waits for one call: past that it goes on with a failure, and an answer that still comes is nobody's."""

import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from functools import partial
from typing import Any

from appliance.core import clock
from appliance.core.sentences import Sentence

Submit = Callable[[str, Callable[[], Any]], "Future[Any]"]


def call_timed_out(seconds: float) -> tuple[bool, dict[str, Any]]:
    """What the code is told: not done, as far as anybody knows."""
    text = Sentence(
        "the call took longer than %(seconds)s s and may still be carried out; ask for less, or raise limits.step_call_seconds",
        seconds=f"{seconds:g}",
    )
    return False, {"code": "call_timed_out", "message": text, "retryable": True, "failure_class": "timeout"}


class Deadlines:
    """Submits calls and answers `call_timed_out` for those that take longer than `seconds`; thread-safe.

    The call itself goes on until its own deadline and is recorded where calls to foreign systems are.
    """

    def __init__(self, submit: Submit, seconds: float) -> None:
        self._submit, self._seconds = submit, seconds
        self._changed = threading.Condition()
        # In the order of their deadlines, for all have the same time. Weak: an answered call must not be kept so long.
        self._open: deque[tuple[float, weakref.ref[Future[Any]]]] = deque()
        self._stopped = False
        self._thread: threading.Thread | None = None

    def submit(self, tenant_id: str, work: Callable[[], Any]) -> "Future[Any]":
        """What `work` answers, or that it took too long."""
        answered: Future[Any] = Future()
        self._submit(tenant_id, work).add_done_callback(lambda done: _pass_on(done, answered))
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="deadlines", daemon=True)
                self._thread.start()
            self._open.append((clock.monotonic() + self._seconds, weakref.ref(answered)))
            self._changed.notify()
        return answered

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while (late := self._next_due()) is not None:
            answered = late()
            if answered is not None:
                _settle(answered, partial(answered.set_result, call_timed_out(self._seconds)))

    def _next_due(self) -> "weakref.ref[Future[Any]] | None":
        """Waits for the next deadline; None when all ends."""
        with self._changed:
            while not self._stopped:
                left = self._open[0][0] - clock.monotonic() if self._open else None
                if left is not None and left <= 0:
                    return self._open.popleft()[1]
                self._changed.wait(left)
        return None


def _pass_on(done: "Future[Any]", answered: "Future[Any]") -> None:
    if done.cancelled():
        answered.cancel()
        return
    fault = done.exception()
    _settle(answered, partial(answered.set_exception, fault) if fault else partial(answered.set_result, done.result()))


def _settle(answered: "Future[Any]", settle: Callable[[], None]) -> None:
    try:
        settle()
    except InvalidStateError:
        return  # the deadline, or the answer, was first
