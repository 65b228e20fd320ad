"""Periodic work: one thread per job; a failure is logged and the job runs again at the next interval."""

import logging
import threading
from collections.abc import Callable

from .database import db

log = logging.getLogger(__name__)


class Periodic:
    """Calls `work` every `seconds`, first after `seconds`, and immediately on `hasten`.

    `signal` prevents further calls; `stop` also waits for a call in progress.
    """

    def __init__(self, name: str, seconds: float, work: Callable[[], object]) -> None:
        self._seconds = seconds
        self._work = work
        self._stopped = False
        self._due = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def hasten(self) -> None:
        """Run the work now; requests that arrive before it starts count as one."""
        self._due.set()

    def signal(self) -> None:
        """Prevent further calls, without waiting for one in progress."""
        self._stopped = True
        self._due.set()

    def stop(self, seconds: float | None = None) -> bool:
        """Stop and wait up to `seconds`; returns whether the thread has ended.  Otherwise it ends with the process."""
        self.signal()
        if self._thread.is_alive():
            self._thread.join(seconds)
        if self._thread.is_alive():
            log.warning("%s is still running and will end with the process", self._thread.name)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            self._due.wait(self._seconds)
            self._due.clear()  # Cleared before the work, so that a request during it causes another run.
            if self._stopped:
                return
            try:
                self._work()
            except Exception as error:  # noqa: BLE001  logged by log_failure
                db.log_failure(log, error, "%s failed; it will run again in %s s", self._thread.name, self._seconds)
