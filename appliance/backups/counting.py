"""How much of everything a tenant holds, and how many of it there may be at once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from appliance.agents.skills import MOST_SKILLS
from appliance.core import clock
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.datapool import MAX_COLLECTIONS
from appliance.documents import MOST_RULES
from appliance.governance.approvals import crowding
from appliance.governance.policies import MAX_POLICIES
from appliance.monitor import MOST_WEBHOOKS
from appliance.monitor.alerts import MOST_ALERTS
from appliance.tenants import MOST_OPEN
from appliance.webapps import MOST_APPS

from .copying import ENTITIES

COUNTED = 10_000
"""So far things are counted: a page says "more than" beyond it, and does not wait for a million rows."""


@dataclass(frozen=True)
class Held:
    """So many of one kind, `is_more` when there are more than were counted; `most` is None where only the disk ends it."""

    kind: str
    count: int
    is_more: bool = False
    most: int | None = None


# What the code refuses beyond a number: the table, what counts of it, the number.
_BOUNDED: Mapping[str, tuple[str, str, Callable[[], int]]] = {
    "approval": ("approval", "status = 'pending'", lambda: crowding.bounds.of_tenant),
    "invitation": ("invitation", "expires_at > {now}", lambda: MOST_OPEN),
    "collection": ("collection", "", lambda: MAX_COLLECTIONS),
    "webapp": ("webapp", "", lambda: MOST_APPS),
    "skill": ("skill", "", lambda: MOST_SKILLS),
    "policy": ("policy", "", lambda: MAX_POLICIES),
    "alert": ("alert", "", lambda: MOST_ALERTS),
    "webhook": ("webhook", "", lambda: MOST_WEBHOOKS),
    "folder_rule": ("folder_rule", "", lambda: MOST_RULES),
}
_UNBOUNDED = ("execution", "document", "process", "integration", "agent", "agent_run")
_LETTING_IN = ("membership", "api_key", "secret")


def count_bounded(scope: TenantScope) -> list[Held]:
    """What a tenant may have only so many of."""
    return [
        Held(kind, *_count(scope, table, where.format(now=clock.now_ms())), most())
        for kind, (table, where, most) in _BOUNDED.items()
    ]


def count_unbounded(scope: TenantScope) -> list[Held]:
    """What a tenant may have as much of as there is room for."""
    plain = [Held(table, *_count(scope, table)) for table in _UNBOUNDED]
    return [*plain, Held("entity", *_count_entities(scope))]


def count_letting_in(scope: TenantScope) -> list[Held]:
    """People, keys and secrets."""
    return [Held(table, *_count(scope, table)) for table in _LETTING_IN]


def count_held(scope: TenantScope) -> list[Held]:
    """What goes with a reset and leaves with an export, but for what is nothing of: see `holdings`."""
    own = [held for held in count_bounded(scope) if held.kind not in ("approval", "invitation")]
    return [held for held in (*count_unbounded(scope), *own) if held.count]


def count_told(tables: Mapping[str, int]) -> list[Held]:
    """The same of what the manifest of an export says of its tables."""
    told = {**tables, "entity": sum(count for table, count in tables.items() if ENTITIES.fullmatch(table))}
    kinds = (*_UNBOUNDED, "entity", *(kind for kind in _BOUNDED if kind not in ("approval", "invitation")))
    return [Held(kind, told[kind]) for kind in kinds if told.get(kind)]


def _count_entities(scope: TenantScope) -> tuple[int, bool]:
    total = 0
    for (table,) in db.rows("SELECT table_name FROM collection WHERE tenant_id = ?", (scope.tenant_id,)):
        total += int(db.rows(f'SELECT count(*) FROM (SELECT 1 FROM "{table}" LIMIT ?) AS some', (COUNTED + 1,))[0][0])  # noqa: S608
        if total > COUNTED:
            break
    return min(total, COUNTED), total > COUNTED


def _count(scope: TenantScope, table: str, where: str = "") -> tuple[int, bool]:
    narrowed = f" AND {where}" if where else ""
    sql = f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE tenant_id = ?{narrowed} LIMIT ?) AS some"  # noqa: S608 - our own words
    found = int(db.rows(sql, (scope.tenant_id, COUNTED + 1))[0][0])
    return min(found, COUNTED), found > COUNTED
