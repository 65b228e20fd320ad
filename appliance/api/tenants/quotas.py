"""/api/v1/quotas: what the tenant may use, and what it has used."""

from typing import Annotated, Literal

from pydantic import Field

from appliance.api.frame.routing import Call, View, route
from appliance.core import clock
from appliance.core.pages import Page
from appliance.quotas import QuotaState, to_number

from .tenants import NoQuery


class QuotaView(View):
    """A quota of the tenant with its use. Whoever runs the appliance sets it."""

    name: Annotated[str, Field(description="Name of the quota, such as `storage` or `executions_per_day`.")]
    unit: Annotated[
        Literal["bytes", "number", "tokens", "money"],
        Field(description="What `used` and `limit` count; `money` is in the currency of the prices of the LLM profiles."),
    ]
    used: Annotated[int | float, Field(description="What the tenant uses now, or has used in this period.")]
    limit: Annotated[
        int | float | None, Field(description="The most that it may use; absent if there is no limit.")
    ] = None
    percent: Annotated[float | None, Field(description="`used` in percent of `limit`; absent without a limit.")] = None
    is_near: Annotated[bool, Field(description="Whether 80 percent or more of the limit is in use.")]
    period: Annotated[
        Literal["day", "month"] | None,
        Field(description="How long a count lasts before it begins again, in UTC; absent for what a tenant has at any time."),
    ] = None
    resets_at: Annotated[
        str | None, Field(description="When the next period begins, RFC 3339 in UTC; absent without periods.")
    ] = None


def quota_view(state: QuotaState) -> QuotaView:
    kind, percent = state.kind, state.percent
    return QuotaView(
        name=kind.name, unit=kind.unit, used=to_number(kind, state.used),
        limit=None if state.limit is None else to_number(kind, state.limit),
        percent=None if percent is None else round(percent, 1), is_near=state.is_near, period=kind.period or None,
        resets_at=clock.optional_rfc3339(state.resets_at),
    )  # fmt: skip


@route("GET", "/quotas", scope=None, returns=QuotaView, listed=True, query=NoQuery)
def list_quotas(call: Call) -> Page[QuotaView]:
    """List the tenant's quotas and their use.

    Needs no scope: any valid key of the tenant may read them. The list is complete: it has no pages.
    """
    return Page([quota_view(state) for state in call.services.limits.quotas.list_states(call.scope)])
