"""Limits on open requests, so that no requester floods the people who decide."""

from collections.abc import Iterator
from dataclasses import dataclass

from appliance.core.database import db
from appliance.core.errors import RateLimited
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit

RETRY_SECONDS = 60


@dataclass
class RequestLimits:
    """Maximum number of open requests: per tenant, and per requester (an API key, an execution, a run or all runs of an agent)."""

    of_tenant: int = 1_000
    of_requester: int = 100


limits = RequestLimits()


def configure(*, of_tenant: int, of_requester: int) -> None:
    """Set the limits of this process."""
    limits.of_tenant, limits.of_requester = of_tenant, of_requester


def check_request_limits(scope: TenantScope, asked_by: str, agent: str = "") -> None:
    """Inside the write that makes a request: RateLimited, recorded in the audit trail, while too many requests are open."""
    for whose, limit, where, values in _limits_of(scope, asked_by, agent):
        sql = f"SELECT COUNT(*) FROM approval WHERE tenant_id = ? AND status = 'pending'{where}"  # noqa: S608 - constant SQL
        ((pending,),) = db.rows(sql, (scope.tenant_id, *values))
        if pending >= limit:
            raise _refusal(scope, whose, limit, asked_by)


def _limits_of(scope: TenantScope, asked_by: str, agent: str) -> Iterator[tuple[str, int, str, tuple[str, ...]]]:
    yield "requester", limits.of_requester, " AND asked_by = ?", (asked_by,)
    if agent:
        yield "agent", limits.of_requester, " AND agent = ?", (agent,)
    yield "tenant", limits.of_tenant, "", ()


def _refusal(scope: TenantScope, whose: str, most: int, asked_by: str) -> RateLimited:
    details = {"reason": "too_many_open_requests", "whose": whose, "most": most}
    db.always_write(lambda: audit.record(scope, "approval.refuse", asked_by, details))
    holder = {"requester": f"{asked_by} has", "agent": "the runs of this agent have", "tenant": "this tenant has"}[whose]
    return RateLimited(
        Sentence(
            "%(named)s %(most)s open %(value)s, which is the limit; have some decided or withdraw some (GET "
            "/api/v1/approvals?status=pending), then try again",
            named=holder, most=most, value="request" if most == 1 else "requests",
        ),
        headers={"Retry-After": str(RETRY_SECONDS)}, extra={**details, "retryable": True, "retry_after": RETRY_SECONDS},
    )
