"""Counts the processes that serve requests on one database, so that each knows its share of limits.

Whoever starts or stops to serve notifies the others; without a notice, they count again within COUNT_SECONDS.
"""

from collections.abc import Callable

from appliance.core.database import db
from appliance.core.database.notices import notices
from appliance.core.database.presence import Presence, ServerCount
from appliance.core.scheduling import PeriodicJob, Scheduler

COUNT_SECONDS = 2.0
TOPIC = "servers"


class Serving:
    """This process as one of those that serve requests; `servers` is kept up to date between `start` and `stop`.

    With SQLite it is the only one, and nothing is done.
    """

    def __init__(self, presence: Presence, servers: ServerCount) -> None:
        self._presence, self._servers = presence, servers
        self._job = PeriodicJob("servers", COUNT_SECONDS, self._count)
        self._unsubscribe: Callable[[], None] | None = None

    def start(self, scheduler: Scheduler) -> None:
        """Count this process in, before it accepts the first request."""
        if db.is_shared():
            self._presence.start_serving()
            self._count()
            self._unsubscribe = notices.subscribe(TOPIC, lambda _: self._job.hasten())
            self._job.start(scheduler)
            notices.notify_others(TOPIC)

    def stop(self) -> None:
        """Count this process out, after its last request; does nothing unless it was started."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
            self._job.stop()
            self._presence.stop_serving()
            notices.notify_others(TOPIC)

    def _count(self) -> None:
        self._servers.count = max(1, self._presence.count_serving())
