"""Work that is due again and again: one thread per piece, whose failures are logged and tried again."""

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)


class Periodic:
    """Calls `work` every `seconds`, the first time after `seconds`, and whenever it is hastened; `stop` waits for a call in
    progress."""

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

    def stop(self) -> None:
        self._stopped = True
        self._due.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._due.wait(self._seconds)
            self._due.clear()  # before the work: a wish that comes during it is heard afterwards
            if self._stopped:
                return
            try:
                self._work()
            except Exception:
                log.exception("periodic work failed; it is tried again in %s s", self._seconds)
