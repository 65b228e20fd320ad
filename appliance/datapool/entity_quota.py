"""Counts the entities of tenants, for their quota: every table once, and from then on the changes in the history.

Before a write, a process reads the changes of all processes at most once a second.  The number is compared inside the write,
which knows how many entities it adds.  Near the limit it is read again, in an exclusive write, beside which no other process
writes: the limit is exceeded only if the others add more than `zone` within that second.
"""

from dataclasses import dataclass, field
from functools import partial

from appliance.core import clock
from appliance.core.database import db
from appliance.core.database.caches import Cache
from appliance.core.scope import TenantScope
from appliance.monitor import REFUSALS
from appliance.quotas import find_limit, make_refusal, notices

NAME = "entities"
FRESH_SECONDS = 1.0
COUNT_AGAIN_SECONDS = 86_400.0
LEAST_ZONE = 1_000
TABLES_TOGETHER = 100


@dataclass(frozen=True)
class _Counted:
    """The entities of each table of a tenant up to the change `number`."""

    tables: dict[str, int] = field(default_factory=dict)
    number: int = 0

    @property
    def total(self) -> int:
        return sum(self.tables.values())


@dataclass
class _State:
    """What was counted, when (monotonic seconds), and how many this process has added since."""

    counted: _Counted
    at: float
    counted_at: float
    since: int = 0


_states: Cache[str, _State] = Cache(1_000)


def zone(limit: int) -> int:
    """How far below a limit the number is read again each time."""
    return max(LEAST_ZONE, limit // 20)


def count_entities(scope: TenantScope) -> int:
    """The entities of the tenant, at most a second old."""
    state = _refresh(scope)
    return state.counted.total + state.since


def prepare(scope: TenantScope) -> None:
    """Before a write: read what others have changed, unless that was done within the last second.  Free without a quota."""
    if find_limit(scope.tenant_id, NAME) is not None and not db.is_inside_write():
        _refresh(scope)


def _refresh(scope: TenantScope) -> _State:
    state, now = _states.get(scope.tenant_id), clock.monotonic()
    if state is not None and now - state.at < FRESH_SECONDS:
        return state
    is_first = state is None or now - state.counted_at >= COUNT_AGAIN_SECONDS
    with db.snapshot():
        counted = _count(scope, None if state is None or is_first else state.counted)
    state = _State(counted, now, now if state is None or is_first else state.counted_at)
    _states[scope.tenant_id] = state
    return state


def _count(scope: TenantScope, before: _Counted | None) -> _Counted:
    """Count every table, or from an earlier count on only what has changed; the reads must see one state of the database."""
    ((newest,),) = db.rows("SELECT coalesce(max(number), 0) FROM entity_change")
    sql = "SELECT table_name FROM collection WHERE tenant_id = ? AND removal_lease IS NULL"
    names = [str(name) for (name,) in db.rows(sql, (scope.tenant_id,))]
    known = {} if before is None else {name: count for name, count in before.tables.items() if name in names}
    if before is not None:
        for name, added in _changes(scope, list(known), before.number, int(newest)):
            known[name] += added
    for name in names:
        if name not in known:
            ((known[name],),) = db.rows(f'SELECT count(*) FROM "{name}"')  # noqa: S608  our own names
    return _Counted(known, int(newest))


def _changes(scope: TenantScope, names: list[str], after: int, newest: int) -> list[tuple[str, int]]:
    """By how many entities each table has grown between two changes."""
    one = (
        "SELECT ?, coalesce(sum(CASE event WHEN 'created' THEN 1 WHEN 'deleted' THEN -1 ELSE 0 END), 0) FROM entity_change "
        "WHERE tenant_id = ? AND collection = ? AND number > ? AND number <= ?"
    )
    grown: list[tuple[str, int]] = []
    for start in range(0, len(names) if newest > after else 0, TABLES_TOGETHER):
        part = names[start : start + TABLES_TOGETHER]
        params = [value for name in part for value in (name, scope.tenant_id, name, after, newest)]
        grown += [(str(name), int(added)) for name, added in db.rows(" UNION ALL ".join([one] * len(part)), tuple(params))]
    return grown


def admit(scope: TenantScope, added: int) -> None:
    """Inside a write whose changes are recorded: StorageFull if they exceed the tenant's quota; deleting is always possible."""
    limit = find_limit(scope.tenant_id, NAME)
    if limit is None or not added:
        return
    state = _states.get(scope.tenant_id)
    if added > 0:
        used = limit if state is None else state.counted.total + state.since + added
        if used + zone(limit) >= limit:
            db.require_exclusive()
            counted = _count(scope, None if state is None else state.counted)
            if counted.total > limit:
                REFUSALS.inc(1, NAME)
                raise make_refusal(scope.tenant_id, NAME, counted.total - added, limit)
            used = counted.total
        notices.watch(scope.tenant_id, NAME, used, limit)
    db.after_commit(partial(_add_written, scope.tenant_id, added))


def _add_written(tenant_id: str, added: int) -> None:
    if (state := _states.get(tenant_id)) is not None:
        state.since += added
