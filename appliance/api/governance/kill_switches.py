"""/api/v1/kill-switches: what is switched off."""

from typing import Annotated, Literal

from pydantic import Field

from appliance.api.frame.routing import Body, Call, View, route
from appliance.api.tenants.tenants import NoQuery
from appliance.core import clock
from appliance.core.errors import ValidationFailed
from appliance.core.pages import Page
from appliance.governance import KillSwitch, Kind, switches


class KillSwitchView(View):
    """A tenant, an agent, a tool or an integration; `off` with the reason and who switched it off."""

    kind: Literal["tenant", "agent", "tool", "integration"]
    name: str
    off: bool
    integration: str | None = None
    reason: str | None = None
    set_by: str | None = None
    set_at: str | None = None


Name = Annotated[str, Field(min_length=1, max_length=100)]


class PutKillSwitch(Body):
    """`{integration, off}`, or `{kind, name, off}`; the tenant as a whole has no name."""

    integration: Name | None = None
    kind: Literal["tenant", "agent", "tool", "integration"] | None = None
    name: Name | None = None
    off: bool
    reason: Annotated[str, Field(max_length=500)] = "no reason given"


def _view(switch: KillSwitch) -> KillSwitchView:
    return KillSwitchView(
        kind=switch.kind, name=switch.name, off=True, integration=switch.name if switch.kind == "integration" else None,
        reason=switch.reason, set_by=switch.set_by, set_at=clock.rfc3339(switch.set_at),
    )  # fmt: skip


@route("GET", "/kill-switches", scope="integrations.read", returns=KillSwitchView, listed=True, query=NoQuery)
def list_kill_switches(call: Call) -> Page[KillSwitchView]:
    """List what is switched off."""
    return Page([_view(switch) for switch in switches.list_switches(call.scope)])


@route("PUT", "/kill-switches", scope="integrations.write", body=PutKillSwitch, returns=KillSwitchView)
def put_kill_switch(call: Call) -> KillSwitchView:
    """Switch the tenant, an agent, a tool or an integration off or on: from the next call on, whoever makes it.

    Anything but an integration also takes the scope `agents.write`.
    """
    kind, name = _meant(call.body)
    call.scope.require(switches.SCOPE_OF[kind])
    if kind == "integration":
        call.services.integrations.get_integration(call.scope, name)
    if not call.body.off:
        switches.switch_on(call.scope, kind, name)
        return KillSwitchView(kind=kind, name=name, off=False, integration=name if kind == "integration" else None)
    switches.switch_off(call.scope, kind, name, call.body.reason)
    [switch] = [each for each in switches.list_switches(call.scope) if (each.kind, each.name) == (kind, name)]
    return _view(switch)


def _meant(body: PutKillSwitch) -> tuple[Kind, str]:
    if body.integration is not None:
        if body.kind is not None or body.name is not None:
            raise ValidationFailed("give either integration, or kind and name", pointer="/integration")
        return "integration", body.integration
    if body.kind is None:
        raise ValidationFailed("say what is meant: kind and name, or integration", pointer="/kind")
    if (body.kind == "tenant") != (body.name is None):
        raise ValidationFailed("the tenant has no name, whatever else is switched off has one", pointer="/name")
    return body.kind, body.name or switches.WHOLE_TENANT
