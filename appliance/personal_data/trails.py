"""Entries in audit trails about an export or an erasure: in each tenant that has something of the person."""

from collections.abc import Iterable, Mapping
from typing import Any

from appliance.core.scope import TenantScope
from appliance.monitor import audit

from .subjects import Subject
from .survey import Count


def record(counts: Iterable[Count], action: str, subject: Subject, actor: str, fields: Mapping[str, Any]) -> None:
    """Inside a write: an entry about the person, who is named by a reference and not by their login."""
    for tenant_id in sorted(frozenset[str]().union(*(each.tenants for each in counts))):
        audit.record(TenantScope(tenant_id, actor), action, subject.reference, fields)
