"""Counts the resources of a tenant, together with their limits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from appliance.agents.skills import MAX_SKILLS
from appliance.core import clock
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.datapool import MAX_COLLECTIONS
from appliance.documents import MOST_RULES
from appliance.governance.approvals import request_limits
from appliance.governance.policies import MAX_POLICIES
from appliance.monitor import MAX_WEBHOOKS
from appliance.monitor.alerts import MAX_ALERTS
from appliance.tenants import MAX_ACCOUNTS, MAX_OPEN
from appliance.webapps import MOST_APPS

from .copying import ENTITIES

MAX_COUNT = 10_000
"""Counting ends here, so that a page does not wait for a million rows; beyond it the page shows "more than"."""


@dataclass(frozen=True)
class ResourceCount:
    """The number of resources of one kind; `is_more` when counting ended early, `most` is the limit, None without one."""

    kind: str
    count: int
    is_more: bool = False
    most: int | None = None


# Resources with a limit, by kind: the table, the condition for a row to count, the limit.
_BOUNDED: Mapping[str, tuple[str, str, Callable[[], int]]] = {
    "approval": ("approval", "status = 'pending'", lambda: request_limits.limits.of_tenant),
    "invitation": ("invitation", "expires_at > {now}", lambda: MAX_OPEN),
    "collection": ("collection", "", lambda: MAX_COLLECTIONS),
    "webapp": ("webapp", "", lambda: MOST_APPS),
    "skill": ("skill", "", lambda: MAX_SKILLS),
    "policy": ("policy", "", lambda: MAX_POLICIES),
    "alert": ("alert", "", lambda: MAX_ALERTS),
    "webhook": ("webhook", "", lambda: MAX_WEBHOOKS),
    "folder_rule": ("folder_rule", "", lambda: MOST_RULES),
    "service_account": ("service_account", "deleted_at IS NULL", lambda: MAX_ACCOUNTS),
}
_NOT_EXPORTED = ("approval", "invitation", "service_account")
_UNBOUNDED = ("execution", "document", "process", "integration", "agent", "agent_run")
_CREDENTIALS = ("membership", "api_key", "secret")


def count_bounded(scope: TenantScope) -> list[ResourceCount]:
    """The counts of resources with a limit."""
    return [
        ResourceCount(kind, *_count(scope, table, where.format(now=clock.now_ms())), most())
        for kind, (table, where, most) in _BOUNDED.items()
    ]


def count_unbounded(scope: TenantScope) -> list[ResourceCount]:
    """The counts of resources without a limit."""
    plain = [ResourceCount(table, *_count(scope, table)) for table in _UNBOUNDED]
    return [*plain, ResourceCount("entity", *_count_entities(scope))]


def count_credentials(scope: TenantScope) -> list[ResourceCount]:
    """The counts of members, API keys and secrets."""
    return [ResourceCount(table, *_count(scope, table)) for table in _CREDENTIALS]


def count_exported(scope: TenantScope) -> list[ResourceCount]:
    """The counts, except zeros, of what a reset deletes and an export contains, see `tenant_tables`."""
    bounded = [each for each in count_bounded(scope) if each.kind not in _NOT_EXPORTED]
    return [each for each in (*count_unbounded(scope), *bounded) if each.count]


def count_in_manifest(tables: Mapping[str, int]) -> list[ResourceCount]:
    """The same from the table counts in an export's manifest."""
    counts = {**tables, "entity": sum(count for table, count in tables.items() if ENTITIES.fullmatch(table))}
    kinds = (*_UNBOUNDED, "entity", *(kind for kind in _BOUNDED if kind not in _NOT_EXPORTED))
    return [ResourceCount(kind, counts[kind]) for kind in kinds if counts.get(kind)]


def _count_entities(scope: TenantScope) -> tuple[int, bool]:
    total = 0
    for (table,) in db.rows("SELECT table_name FROM collection WHERE tenant_id = ?", (scope.tenant_id,)):
        total += int(db.rows(f'SELECT count(*) FROM (SELECT 1 FROM "{table}" LIMIT ?) AS counted', (MAX_COUNT + 1,))[0][0])  # noqa: S608
        if total > MAX_COUNT:
            break
    return min(total, MAX_COUNT), total > MAX_COUNT


def _count(scope: TenantScope, table: str, where: str = "") -> tuple[int, bool]:
    narrowed = f" AND {where}" if where else ""
    sql = f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE tenant_id = ?{narrowed} LIMIT ?) AS counted"  # noqa: S608 - our own words
    count = int(db.rows(sql, (scope.tenant_id, MAX_COUNT + 1))[0][0])
    return min(count, MAX_COUNT), count > MAX_COUNT
