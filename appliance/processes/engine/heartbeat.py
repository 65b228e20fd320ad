"""Shows steps that take long as running, and keeps their executions claimed, while the runner waits for them."""

import itertools
import logging
import threading
from collections.abc import Callable, Mapping

from appliance.core import clock
from appliance.core.database import db

from . import store
from .decide import Key
from .job import Begun, Job
from .store import Fenced

log = logging.getLogger(__name__)
TICK_SECONDS = 0.1
TICKS_PER_LOOK = 10
SHOWN_AFTER_SECONDS = 0.3


class Heartbeat:
    """One thread per process; an execution whose steps are quick never meets it."""

    def __init__(self, active: Mapping[str, Job], lease: Callable[[], int], every_seconds: float) -> None:
        self._active = active
        self._lease = lease
        self._every = every_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        for tick in itertools.count(1):
            if self._stop.wait(TICK_SECONDS):
                return
            if tick % TICKS_PER_LOOK == 0 and self._active:
                self._look_for_cancels()
            for job in list(self._active.values()):
                try:
                    self.beat(job)
                except Fenced:
                    job.cancel.set()  # somebody else has it: let the code stop at its next call; its commit is refused
                except Exception as error:  # noqa: BLE001  logged there
                    db.log_failure(log, error, "a heartbeat of %s failed; the next one tries again", job.claim.execution_id)

    def _look_for_cancels(self) -> None:
        """Another process takes requests too; what it was asked to cancel may be in progress here."""
        try:
            found = db.rows("SELECT id FROM execution WHERE status = 'cancelling'")
        except Exception:
            log.exception("could not look for executions to cancel; the next look tries again")
            return
        for (execution_id,) in found:
            job = self._active.get(execution_id)
            if job is not None:
                job.cancel.set()

    def beat(self, job: Job) -> None:
        """Note in the rows what has been under way for a while; Fenced when the claim is no longer held."""
        now = clock.monotonic()
        under_way = list(job.attempts.items())
        late = {key: begun for key, begun in under_way if not begun.shown and now - begun.at >= SHOWN_AFTER_SECONDS}
        if not late and now - job.prolonged < self._every:
            return
        if db.write(lambda: self._note(job, late)):
            job.cancel.set()
        job.prolonged = now
        for begun in late.values():
            begun.shown = True

    def _note(self, job: Job, late: Mapping[Key, Begun]) -> bool:
        """Inside a write: prolong the lease, show the attempts that are still under way; whether a cancel was asked for."""
        claim = job.claim
        asked = store.prolong(claim, self._lease(), job.active_ms())
        for key, begun in late.items():
            if job.attempts.get(key) is begun:
                run = begun.run
                store.save_run(claim.scope, claim.execution_id, run)
                event = {
                    "step": run.step,
                    "path": run.path,
                    "iteration": run.iteration,
                    "status": "running",
                    "attempt": run.attempt,
                }
                store.add_event(claim.scope, claim.execution_id, "step", event)
        return asked
