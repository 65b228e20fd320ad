"""The request log of API keys that have one: method, path template, status, duration, address and time of each request.

Never a path's values, a query or a body.  Requests are collected in memory and stored every two seconds; a killed process loses
what it has collected.
"""

from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import NamedTuple

from peewee import BigIntegerField, CompositeKey, FloatField, IntegerField, TextField

from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.database.db import TenantModel
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.scope import TenantScope, tenant_ids
from appliance.monitor import Collected, delete_in_chunks

from . import keys
from .keys import Caller

MAX_ROWS = 100_000
"""How many requests of a key are stored; the oldest beyond are deleted every hour."""


class KeyRequestRow(TenantModel):
    """An answered request of a key; `path` is the route's template, such as `/api/v1/keys/{key_id}`."""

    label = "request"
    id = TextField()
    key_id = TextField()
    at = BigIntegerField()
    method = TextField()
    path = TextField()
    status = IntegerField()
    ms = FloatField()
    address = TextField()

    class Meta:
        table_name = "key_request"
        primary_key = CompositeKey("tenant_id", "id")


class KeyRequest(NamedTuple):
    """An answered request, `at` in epoch milliseconds."""

    tenant_id: str
    key_id: str
    at: int
    method: str
    path: str
    status: int
    ms: float
    address: str


@dataclass(frozen=True)
class RequestFilter:
    """Criteria of requests; times in epoch milliseconds, [since, until).  `is_error` selects statuses from 400 on, or below."""

    method: str | None = None
    path: str | None = None
    status: int | None = None
    is_error: bool | None = None
    address: str | None = None
    since: int | None = None
    until: int | None = None


class KeyRequests(Collected[KeyRequest]):
    """Collects requests; those beyond what it can hold are not recorded."""

    def __init__(self) -> None:
        super().__init__(_store)

    def add(self, caller: Caller, answered: tuple[str, str, int, float], address: str) -> None:
        """Add a request by its method, path template, status and duration in ms; does not block."""
        self.put(KeyRequest(caller.scope.tenant_id, caller.key_id, clock.now_ms(), *answered, address))


def _store(requests: list[KeyRequest]) -> None:
    tenants = frozenset(tenant_ids())
    for tenant_id, group in groupby(sorted(requests), key=lambda each: each.tenant_id):
        if tenant_id in tenants:  # it may have been deleted meanwhile
            scope = TenantScope(tenant_id, "system")
            for each in group:
                values = {name: value for name, value in each._asdict().items() if name != "tenant_id"}
                scope.insert(KeyRequestRow, id=ids.new("krq"), **values)


def list_requests(scope: TenantScope, key_id: str, criteria: RequestFilter, page: PageRequest) -> Page[KeyRequestRow]:
    """The recorded requests of a key, newest first; NotFound."""
    keys.get_key(scope, key_id)
    query = scope.select(KeyRequestRow).where(KeyRequestRow.key_id == key_id)
    for column, value in (
        (KeyRequestRow.method, criteria.method), (KeyRequestRow.path, criteria.path), (KeyRequestRow.status, criteria.status),
        (KeyRequestRow.address, criteria.address),
    ):  # fmt: skip
        if value is not None:
            query = query.where(column == value)
    if criteria.is_error is not None:
        query = query.where(KeyRequestRow.status >= 400 if criteria.is_error else KeyRequestRow.status < 400)
    if criteria.since is not None:
        query = query.where(KeyRequestRow.at >= criteria.since)
    if criteria.until is not None:
        query = query.where(KeyRequestRow.at < criteria.until)
    return paginate(query, page, {"at": KeyRequestRow.at, "id": KeyRequestRow.id}, default="-at")


def purge(before_ms: int) -> int:
    """Delete requests before this time, and the oldest of keys that have more than MAX_ROWS; returns how many."""
    deleted = delete_in_chunks(partial(db.execute, _DELETE_OLDER, (before_ms,)))
    for tenant_id, key_id in db.rows(_CROWDED, (MAX_ROWS,)):
        ((at,),) = db.rows(_BOUND, (tenant_id, key_id, MAX_ROWS))
        deleted += delete_in_chunks(partial(db.execute, _DELETE_OF_KEY, (tenant_id, key_id, at)))
    return deleted


_DELETE_OLDER = (
    "DELETE FROM key_request WHERE (tenant_id, id) IN (SELECT tenant_id, id FROM key_request WHERE at < ? ORDER BY at LIMIT 2000)"
)
_CROWDED = "SELECT tenant_id, key_id FROM key_request GROUP BY tenant_id, key_id HAVING COUNT(*) > ?"
_BOUND = "SELECT at FROM key_request WHERE tenant_id = ? AND key_id = ? ORDER BY at DESC LIMIT 1 OFFSET ?"
_DELETE_OF_KEY = (
    "DELETE FROM key_request WHERE (tenant_id, id) IN "
    "(SELECT tenant_id, id FROM key_request WHERE tenant_id = ? AND key_id = ? AND at <= ? ORDER BY at LIMIT 2000)"
)
