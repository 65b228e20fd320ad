"""Background jobs on a whole tenant, such as exports and imports; pages show their progress."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from appliance.core import clock, ids
from appliance.core.errors import ApplianceError, Conflict, NotFound
from appliance.core.pools import TRANSFER, open_pool
from appliance.core.scope import TenantScope

from .problems import JobControl

log = logging.getLogger(__name__)
EXPIRY_MS = 3_600_000


@dataclass
class BackgroundJob:
    """A job and its progress, `of` being 0 if unknown; once over, it has a result or a problem."""

    id: str
    tenant_id: str
    actor: str
    kind: str
    since: int
    stage: str = ""
    done: int = 0
    of: int = 0
    is_over: bool = False
    ended_at: int = 0
    result: Any = None
    problem: ApplianceError | None = None
    course: JobControl = field(default_factory=JobControl)

    def report(self, stage: str, done: int, of: int) -> None:
        self.stage, self.done, self.of = stage, done, of


class BackgroundJobs:
    """The jobs of this process; each is remembered for an hour after its end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[str, BackgroundJob] = {}
        self._threads = open_pool(TRANSFER)
        self._stopping = threading.Event()

    def begin(self, scope: TenantScope, kind: str, do: Callable[[JobControl], object]) -> BackgroundJob:
        """Starts a job; raises Conflict while another of its kind is running in the tenant."""
        with self._lock:
            self._delete_expired()
            if any(not each.is_over and (each.tenant_id, each.kind) == (scope.tenant_id, kind) for each in self._jobs.values()):
                raise Conflict("this is already running; wait until it has finished, then start it again")
            work = BackgroundJob(ids.new("wrk"), scope.tenant_id, scope.actor, kind, clock.now_ms())
            work.course = JobControl(self._stopping.is_set, work.report)
            self._jobs[work.id] = work
        self._threads.submit(self._perform, work, do)
        return work

    def latest(self, scope: TenantScope, kind: str) -> BackgroundJob | None:
        """The tenant's last job of this kind, whoever started it; None without one."""
        with self._lock:
            self._delete_expired()
            mine = [each for each in self._jobs.values() if (each.tenant_id, each.kind) == (scope.tenant_id, kind)]
        return mine[-1] if mine else None

    def get(self, scope: TenantScope, work_id: str) -> BackgroundJob:
        """A job of the tenant; raises NotFound an hour after its end or after a restart."""
        with self._lock:
            job = self._jobs.get(work_id)
        if job is None or job.tenant_id != scope.tenant_id:
            raise NotFound("this job is no longer listed; check whether it was done, and start it again if it was not")
        return job

    def stop(self) -> None:
        """Starts no further jobs and ends running ones as soon as they can stop."""
        self._stopping.set()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _perform(self, work: BackgroundJob, do: Callable[[JobControl], object]) -> None:
        try:
            work.result = do(work.course)
        except ApplianceError as error:
            work.problem = error
        except Exception:
            log.exception("A tenant's job failed.", extra={"fields": {"kind": work.kind, "tenant": work.tenant_id}})
            work.problem = ApplianceError("something went wrong in the appliance; its log has the reason")
        finally:
            work.ended_at, work.is_over = clock.now_ms(), True

    def _delete_expired(self) -> None:
        before = clock.now_ms() - EXPIRY_MS
        for each in [each for each in self._jobs.values() if each.is_over and each.ended_at < before]:
            del self._jobs[each.id]
