"""The addresses that API keys are used from, and the warning when a key that is in use comes from a new one.

An address is a single IPv4 address or the /64 of an IPv6 address.  Uses are noted in memory and stored every two seconds, each
address of a key once a day; a killed process forgets what it has not stored, and notes it at the next use.  A rotated key
continues the addresses of the key that it replaced.
"""

import logging
import threading
from functools import partial
from typing import NamedTuple

from peewee import BigIntegerField, CompositeKey, TextField

from appliance.core import clock
from appliance.core.database import db
from appliance.core.database.caches import Cache
from appliance.core.database.db import TenantModel
from appliance.core.networks import network_of
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.scope import APPLIANCE, TenantScope, tenant_ids
from appliance.monitor import audit, delete_in_chunks, emit
from appliance.tenants.models import ApiKey

log = logging.getLogger(__name__)
EVENT = "key.new_address"
DAY = 86_400_000
MAX_ADDRESSES = 50
"""Of so many addresses a key is remembered; from then on it is one whose address changes all the time, and nobody is warned."""
MAX_NOTED = 20_000


class KeyAddressRow(TenantModel):
    """An address that a key, or one that it was rotated to, was used from; `last_at` is exact to a day."""

    label = "address"
    key_id = TextField()
    address = TextField()
    first_at = BigIntegerField()
    last_at = BigIntegerField()

    class Meta:
        table_name = "key_address"
        primary_key = CompositeKey("tenant_id", "key_id", "address")


class _Use(NamedTuple):
    """A use of a key; `counted_as` is the first key of those that were rotated to it."""

    tenant_id: str
    counted_as: str
    address: str
    key_id: str
    at: int


_days: Cache[tuple[str, str], int] = Cache(MAX_NOTED)
_noted: dict[tuple[str, str], _Use] = {}
_storing = threading.Lock()


def note(row: ApiKey, client: str, now: int) -> None:
    """Note that a key is used by a client's address; costs next to nothing if that is known, and waits for nothing."""
    counted_as, address = row.counted_as or row.id, network_of(client)
    key = counted_as, address
    if _days.get(key) != now // DAY and len(_noted) < MAX_NOTED:
        _days[key] = now // DAY
        _noted[key] = _Use(row.tenant_id, counted_as, address, row.id, now)


def has_noted() -> bool:
    """Whether there is anything to store."""
    return bool(_noted)


def store() -> None:
    """Store what was noted, and warn of new addresses; if that fails, it is noted again."""
    with _storing:
        known = frozenset((APPLIANCE, *tenant_ids()))
        for key in list(_noted):
            use = _noted.pop(key)
            try:
                if use.tenant_id in known:  # it may have been deleted meanwhile
                    db.write(partial(_store, use))
            except BaseException:
                _noted.setdefault(key, use)
                raise


def _store(use: _Use) -> None:
    scope = TenantScope(use.tenant_id, f"key:{use.key_id}")
    this = (KeyAddressRow.key_id == use.counted_as) & (KeyAddressRow.address == use.address)
    if scope.update(KeyAddressRow, last_at=use.at).where(this).execute():
        return
    others = scope.select(KeyAddressRow).where(KeyAddressRow.key_id == use.counted_as).count()
    if others < MAX_ADDRESSES:
        scope.insert(KeyAddressRow, key_id=use.counted_as, address=use.address, first_at=use.at, last_at=use.at)
        if others:
            _warn(scope, use, is_last=others + 1 == MAX_ADDRESSES)


def _warn(scope: TenantScope, use: _Use, *, is_last: bool) -> None:
    data = {"key_id": use.key_id, "address": use.address, "used_at": clock.rfc3339(use.at), "is_last_warning": is_last}
    audit.record(scope, EVENT, use.key_id, {name: value for name, value in data.items() if name != "key_id"})
    emit(scope, EVENT, lambda: data)
    db.after_commit(lambda: log.warning("the key %s is used from %s for the first time", use.key_id, use.address))


def list_addresses(scope: TenantScope, key: ApiKey, page: PageRequest) -> Page[KeyAddressRow]:
    """The addresses that a key, and those it was rotated from, were used from: the newest first."""
    query = scope.select(KeyAddressRow).where(KeyAddressRow.key_id == (key.counted_as or key.id))
    fields = {"first_at": KeyAddressRow.first_at, "last_at": KeyAddressRow.last_at, "address": KeyAddressRow.address}
    return paginate(query, page, fields, default="-first_at", tie="address")


def list_new(scope: TenantScope, since: int) -> frozenset[str]:
    """The first keys of rotations that have been used from a further address since then."""
    sql = "SELECT key_id FROM key_address WHERE tenant_id = ? GROUP BY key_id HAVING MAX(first_at) >= ? AND COUNT(*) > 1"
    rows = db.rows(sql, (scope.tenant_id, since))
    return frozenset(str(key_id) for (key_id,) in rows)


def purge(before_ms: int) -> int:
    """Delete addresses that were last used before this time; returns how many."""
    return delete_in_chunks(partial(db.execute, _DELETE_OLDER, (before_ms,)))


_DELETE_OLDER = (
    "DELETE FROM key_address WHERE (tenant_id, key_id, address) IN "
    "(SELECT tenant_id, key_id, address FROM key_address WHERE last_at < ? ORDER BY last_at LIMIT 2000)"
)
