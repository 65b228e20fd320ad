"""Work that is due again and again: one thread per piece, whose failures are logged and tried again."""

import logging
import threading
from collections.abc import Callable

from .database import db

log = logging.getLogger(__name__)


class Periodic:
    """Calls `work` every `seconds`, the first time after `seconds`, and whenever it is hastened; `signal` has no other begin,
    `stop` waits for a call in progress, so long as it is given."""

    def __init__(self, name: str, seconds: float, work: Callable[[], object]) -> None:
        self._seconds = seconds
        self._work = work
        self._stopped = False
        self._due = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def hasten(self) -> None:
        """Have it called now, beside its turn; several wishes that come before it begins are one."""
        self._due.set()

    def signal(self) -> None:
        """Have no further call begin, without waiting for one in progress."""
        self._stopped = True
        self._due.set()

    def stop(self, seconds: float | None = None) -> bool:
        """Answers whether it has come to rest; what has not is left to end with the process."""
        self.signal()
        if self._thread.is_alive():
            self._thread.join(seconds)
        if self._thread.is_alive():
            log.warning("%s is still at work and is left to end with the process", self._thread.name)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            self._due.wait(self._seconds)
            self._due.clear()  # before the work: a wish that comes during it is heard afterwards
            if self._stopped:
                return
            try:
                self._work()
            except Exception as error:  # noqa: BLE001  logged there
                db.log_failure(log, error, "%s failed; it is tried again in %s s", self._thread.name, self._seconds)
