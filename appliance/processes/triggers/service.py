"""Lists the triggers of a process and their events, and runs the parts that fire them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from appliance.core import clock
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.queue import TaskQueue
from appliance.core.scope import TenantScope
from appliance.monitor import delete_older
from appliance.processes.definitions.nodes import Trigger
from appliance.processes.models import Process
from appliance.sandbox import Pool

from .changes import ChangeListener
from .cron import Cron
from .firings import FIRE, Enqueue, Firings, Load
from .models import Firing, TriggerState
from .polls import Polls, PollSource
from .ticker import TriggerTicker
from .webhooks import OpenSecret, Webhooks

__all__ = ["Firing", "TriggerState"]
PREVIEW_COUNT = 3


@dataclass(frozen=True)
class TriggerDependencies:
    """The dependencies of triggers: compiled versions, the queue, secrets and integrations."""

    load: Load
    enqueue: Enqueue
    open_secret: OpenSecret
    source: PollSource


class Triggers:
    """The triggers of one running appliance."""

    def __init__(self, pool: Pool, queue: TaskQueue, dependencies: TriggerDependencies) -> None:
        self._queue = queue
        self.firings = Firings(pool, dependencies.load, dependencies.enqueue, self._wake)
        self.webhooks = Webhooks(self.firings, dependencies.open_secret)
        self.polls = Polls(self.firings, dependencies.source)
        self.changes = ChangeListener(self.firings)
        self.clockwork = TriggerTicker(self.firings, self._wake, self.polls.start_poll)
        queue.declare(FIRE, self.firings.perform)

    def stop(self) -> None:
        self.clockwork.stop()

    def close(self) -> None:
        """Stops recording changes, once nothing runs any more."""
        self.changes.stop()

    def _wake(self, tenant_id: str, firing_id: str) -> None:
        self._queue.enqueue(FIRE, tenant_id, firing_id)


@dataclass(frozen=True)
class TriggerView:
    """A trigger for display: its row, whether its process is paused, and the next due times.

    `resumes_at` is set after the clock was set back: the schedule skips due times before it, so that none is run twice.
    """

    row: TriggerState
    is_paused: bool
    due: list[int]
    resumes_at: int | None = None


def list_triggers(scope: TenantScope, process_id: str) -> list[TriggerView]:
    """The triggers of the published version, in the order of the definition; raises NotFound."""
    process = scope.get(Process, id=process_id)
    rows = scope.select(TriggerState).where(TriggerState.process_id == process_id).order_by(TriggerState.position)
    now = clock.now_ms()
    return [_to_view(row, now, is_paused=process.paused_at is not None) for row in rows]


def _to_view(row: TriggerState, now: int, *, is_paused: bool) -> TriggerView:
    if row.next_due is None:
        return TriggerView(row, is_paused, [])
    if row.kind != "schedule":
        return TriggerView(row, is_paused, [row.next_due])
    soonest = due_times(row.kind, row.settings, now)[:1]
    if soonest >= [row.next_due] or not soonest:  # overdue times, as while the process is paused, are not displayed
        return TriggerView(row, is_paused, due_times(row.kind, row.settings, now))
    return TriggerView(row, is_paused, due_times(row.kind, row.settings, row.next_due - 1), row.next_due)


def list_firings(scope: TenantScope, process_id: str, trigger_id: str, page: PageRequest) -> Page[Firing]:
    """The stored events of a trigger, newest first; raises NotFound when the process never had the trigger."""
    scope.get(Process, id=process_id)
    query = scope.select(Firing).where((Firing.process_id == process_id) & (Firing.trigger_id == trigger_id))
    if not query.exists():
        scope.get(TriggerState, process_id=process_id, trigger_id=trigger_id)
    return paginate(query, page, {"at": Firing.at, "id": Firing.id}, default="-at")


def preview_due_times(triggers: tuple[Trigger, ...]) -> dict[str, list[int]]:
    """The next due times of every schedule of a draft."""
    now = clock.now_ms()
    return {each.id: due_times(each.kind, each.settings, now) for each in triggers if each.kind == "schedule"}


def due_times(kind: str, settings: Mapping[str, Any], now: int) -> list[int]:
    """The next due times of a schedule; none of other triggers."""
    if kind != "schedule":
        return []
    times = Cron(settings["cron"], settings["timezone"]).due_after(now)
    return [due for due, _ in zip(times, range(PREVIEW_COUNT), strict=False)]


def purge(before_ms: int) -> int:
    """Deletes every tenant's handled events from before `before_ms`; returns their number."""
    return delete_older("firing", "id", "at", before_ms)
