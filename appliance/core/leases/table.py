"""Leases: rows that one worker at a time works on, under a fence.

A worker claims a row, renews the lease while it works, and settles it at the end. Every claim changes the row's guard, and every
later write compares it: once another worker has claimed the row, the earlier one's writes change nothing (LeaseLost). Leases and
living owners only decide when a row may be claimed again, so wrong clocks cost time, never correctness.

Except for those that only read many rows, the methods of a table run inside `db.write`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any, NamedTuple

import peewee

from appliance.core import clock
from appliance.core.database import db
from appliance.core.database.changes import earliest

from .open_tenants import FENCED

Key = tuple[Any, ...]
Changes = Mapping[str, Any]
UNCHANGED: Changes = {}


class LeaseLost(Exception):
    """Another worker has claimed the row since, or it has ended: the holder must discard what it has in memory."""


class Lease(NamedTuple):
    """A row in progress: its guard, its owner, and when its lease runs out (epoch ms)."""

    key: Key
    guard: Any
    owner: str | None
    until: int


@dataclass(frozen=True)
class LeaseTable:
    """A table whose rows are leased, by the names of its columns.

    `lease` holds when a lease runs out (epoch ms), `owner` who has it, `fence` the number that each claim raises. The guard is the
    fence; without one, the owner; without either, the lease. `running` is the SQL condition of rows in progress: no others are
    renewed, settled or reclaimed. `on_claim` and `on_reclaim` are SQL assignments for every claim and every reclaimed row.

    `is_versioned`: the fence is the version of the row's content, raised by settling instead of claiming. A claim then needs a
    lease that has run out, and of two holders the first to settle wins, because its result cannot be obtained twice.
    `settles_late`: after a row was reclaimed, its last holder may still settle it until it is claimed again.
    `stops_with_tenant`: no row of a tenant is claimed that is being deleted or reset.
    """

    model: Any
    key: tuple[str, ...]
    lease: str
    owner: str | None = None
    fence: str | None = None
    running: str = ""
    on_claim: str = ""
    on_reclaim: str = ""
    is_versioned: bool = False
    settles_late: bool = False
    stops_with_tenant: bool = False

    # -- one row

    def claim(
        self, key: Key, guard: Any, *, until: int | None, owner: str | None = None, changes: Changes = UNCHANGED, now: int = 0
    ) -> bool:
        """Claim the row if its guard still is `guard`; False if another worker was faster.

        `until` None leaves the lease unchanged. `now` is compared with the lease of a versioned row.
        Long because tables differ in what a claim sets: each of them uses some of the parameters.
        """
        columns: dict[str, Any] = {} if self.owner is None else {self.owner: owner}
        if until is not None:
            columns[self.lease] = until
        if self.is_versioned:
            return self._update({**columns, **changes}, f"{self._claimable} AND {self.lease} <= ?", (*key, guard, now)) == 1
        return self._update({**columns, **changes}, self._claimable, (*key, guard), self._on_claim) == 1

    def is_current(self, key: Key, guard: Any) -> bool:
        """Whether the holder of this guard still has the row; inside a write, also until its commit."""
        return bool(db.rows(self._is_current + db.row_lock(), (*key, guard)))

    def check(self, key: Key, guard: Any) -> None:
        """LeaseLost unless the holder of this guard still has the row."""
        if not self.is_current(key, guard):
            raise LeaseLost(self._name(key))

    def renew(self, key: Key, guard: Any, until: int, changes: Changes = UNCHANGED, *, returning: str | None = None) -> Any:
        """Extend the lease, and change more columns with it; returns the column `returning`. LeaseLost."""
        columns = {self.lease: until, **changes}
        if returning is None:
            self.update(key, guard, columns)
            return None
        sql = _update_sql(self.table, "", tuple(columns), f"{self._in_progress} RETURNING {returning}")
        rows = db.rows(sql, (*self._values(columns), *key, guard))
        if not rows:
            raise LeaseLost(self._name(key))
        return rows[0][0]

    def update(self, key: Key, guard: Any, changes: Changes) -> None:
        """Change columns of a row that this worker has. LeaseLost."""
        if self._update(changes, self._in_progress, (*key, guard)) != 1:
            raise LeaseLost(self._name(key))

    def settle(self, key: Key, guard: Any, changes: Changes) -> None:
        """Record the result, and end the lease. LeaseLost: the result must be discarded."""
        where = self._guarded if self.settles_late else self._in_progress
        fixed = f"{self.fence} = {self.fence} + 1" if self.is_versioned else ""
        if self._update({**self._no_owner, **changes}, where, (*key, guard), fixed) != 1:
            raise LeaseLost(self._name(key))

    def release(self, key: Key, guard: Any, *, owner: str | None = None, at: int = 0) -> None:
        """End the lease without a result; the row may be claimed from `at`. No effect if the lease is lost.

        `owner` of a versioned row, whose guard does not name the holder.
        """
        where, params = self._in_progress, (*key, guard)
        if owner is not None:
            where, params = f"{where} AND {self.owner} = ?", (*params, owner)
        self._update({**self._no_owner, self.lease: at}, where, params)

    def reclaim(self, lost: Lease, changes: Changes = UNCHANGED) -> bool:
        """Take the row from a holder that is gone; False if its lease has changed since it was read."""
        where = f"{self._in_progress} AND {self.lease} = ?"
        return self._update({**self._no_owner, **changes}, where, (*lost.key, lost.guard, lost.until), self.on_reclaim) == 1

    # -- many rows

    def list_due(self, columns: str, now: int, most: int, where: str = "", params: Key = ()) -> list[tuple[Any, ...]]:
        """`columns` of up to `most` rows in progress whose lease has run out, the earliest first."""
        sql = f"SELECT {columns} FROM {self.table} WHERE {_conjunction(self.running, f'{self.lease} <= ?', where)} "  # noqa: S608
        return db.rows(f"{sql}ORDER BY {self.lease}, {', '.join(self.key)} LIMIT ?", (now, *params, most))

    def list_running(self) -> list[Lease]:
        """Every row in progress, the earliest lease first."""
        count = len(self.key)
        return [Lease(row[:count], row[count], row[count + 1], row[count + 2]) for row in db.rows(self._list_running)]

    def is_any_running(self) -> bool:
        """Whether any row is in progress: its holder may die at any time, without a trace in the database."""
        return bool(db.rows(f"SELECT 1 FROM {self.table} WHERE {_conjunction(self.running)} LIMIT 1"))  # noqa: S608

    def next_due(self, where: str = "", params: Key = ()) -> int | None:
        """When the first lease of a row in progress runs out, None without one."""
        sql = f"SELECT MIN({self.lease}) FROM {self.table} WHERE {_conjunction(self.running, where)}"  # noqa: S608
        return earliest(sql, params=params)

    def shift(self, by_ms: int) -> None:
        """Move the leases of all rows in progress, because the wall clock was set."""
        sql = f"UPDATE {self.table} SET {self.lease} = {self.lease} + ? WHERE {_conjunction(self.running)}"  # noqa: S608
        db.execute(sql, (by_ms,))

    # -- statements

    @cached_property
    def table(self) -> str:
        return str(self.model._meta.table_name)

    @cached_property
    def _guard(self) -> str:
        return self.fence or self.owner or self.lease

    @cached_property
    def _guarded(self) -> str:
        same = "IS NOT DISTINCT FROM" if self._guard == self.owner else "="  # nobody may own it
        return " AND ".join((*(f"{name} = ?" for name in self.key), f"{self._guard} {same} ?"))

    @cached_property
    def _claimable(self) -> str:
        return f"{self._guarded} AND tenant_id NOT IN ({FENCED})" if self.stops_with_tenant else self._guarded

    @cached_property
    def _in_progress(self) -> str:
        return _conjunction(self._guarded, self.running)

    @cached_property
    def _is_current(self) -> str:
        return f"SELECT 1 FROM {self.table} WHERE {self._in_progress}"  # noqa: S608

    @cached_property
    def _list_running(self) -> str:
        columns = ", ".join((*self.key, self._guard, self.owner or "NULL", self.lease))
        return f"SELECT {columns} FROM {self.table} WHERE {_conjunction(self.running)} ORDER BY {self.lease}"  # noqa: S608

    @cached_property
    def _on_claim(self) -> str:
        raised = f"{self.fence} = {self.fence} + 1" if self.fence else ""
        return ", ".join(filter(None, (raised, self.on_claim)))

    @cached_property
    def _no_owner(self) -> Changes:
        return {self.owner: None} if self.owner is not None and self.model._meta.fields[self.owner].null else UNCHANGED

    @cached_property
    def _converters(self) -> Mapping[str, Callable[[Any], Any]]:
        """How the values of fields such as JSON are stored; those of plain fields are stored as they are."""
        fields = self.model._meta.fields.items()
        return {name: field.db_value for name, field in fields if type(field).db_value is not peewee.Field.db_value}

    def _values(self, columns: Changes) -> list[Any]:
        converters = self._converters
        return [converters[name](value) if name in converters else value for name, value in columns.items()]

    def _update(self, columns: Changes, where: str, params: Key, fixed: str = "") -> int:
        return db.execute(_update_sql(self.table, fixed, tuple(columns), where), (*self._values(columns), *params))

    def _name(self, key: Key) -> str:
        return f"{self.table} {key}"


class OrphanFinder:
    """Finds rows of a table whose holder is gone, for the process `instance`.

    A living owner counts as gone once its expired lease has stayed the same for `silent_seconds`, measured on the monotonic clock:
    a change of the wall clock can expire every lease at once. `is_active` says whether this process is working on a row.
    """

    def __init__(
        self, table: LeaseTable, instance: str, is_alive: Callable[[str], bool], is_active: Callable[[Key], bool],
        silent_seconds: float = 0.0,
    ) -> None:  # fmt: skip
        self._table = table
        self._instance, self._is_alive, self._is_active = instance, is_alive, is_active
        self.silent_seconds = silent_seconds
        self._silent_since: dict[Lease, float] = {}

    def is_abandoned(self, lease: Lease, now: int) -> bool:
        """Whether nobody works on the row, as far as presence can tell."""
        return self._is_abandoned(lease, now, self._is_alive)

    def find(self, now: int, most: int) -> list[Lease]:
        """Up to `most` rows that are abandoned, or whose owner has been silent too long."""
        is_alive = cache(self._is_alive)  # once per owner
        since, self._silent_since = self._silent_since, {}
        orphans = [
            lease
            for lease in self._table.list_running()
            if self._is_abandoned(lease, now, is_alive) or self._is_silent(lease, now, since)
        ]
        return orphans[:most]

    def _is_abandoned(self, lease: Lease, now: int, is_alive: Callable[[str], bool]) -> bool:
        if lease.owner == self._instance:
            # It may have been claimed a moment ago and not be registered yet; then its lease is still valid.
            return lease.until < now and not self._is_active(lease.key)
        return lease.owner is None or not is_alive(lease.owner)

    def _is_silent(self, lease: Lease, now: int, silent_since: Mapping[Lease, float]) -> bool:
        if lease.owner == self._instance or lease.until >= now:
            return False
        since = self._silent_since[lease] = silent_since.get(lease, clock.monotonic())
        return clock.monotonic() - since >= self.silent_seconds


@lru_cache(maxsize=1024)
def _update_sql(table: str, fixed: str, names: tuple[str, ...], where: str) -> str:
    assignments = ", ".join(filter(None, (fixed, *(f"{name} = ?" for name in names))))
    return f"UPDATE {table} SET {assignments} WHERE {where}"  # noqa: S608


def _conjunction(*conditions: str) -> str:
    return " AND ".join(filter(None, conditions)) or "1 = 1"
