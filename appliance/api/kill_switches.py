"""/api/v1/kill-switches: what is switched off."""

from typing import Annotated

from pydantic import Field

from appliance.core import clock
from appliance.core.pages import Page
from appliance.governance import switches

from .routing import Body, Call, View, route
from .tenants import NoQuery


class KillSwitchView(View):
    """An integration; `off` with the reason and who switched it off."""

    integration: str
    off: bool
    reason: str | None = None
    set_by: str | None = None
    set_at: str | None = None


class PutKillSwitch(Body):
    integration: Annotated[str, Field(min_length=1, max_length=63)]
    off: bool
    reason: Annotated[str, Field(max_length=500)] = "no reason given"


def _view(switch: switches.KillSwitch) -> KillSwitchView:
    return KillSwitchView(
        integration=switch.integration, off=True, reason=switch.reason, set_by=switch.set_by,
        set_at=clock.rfc3339(switch.set_at),
    )  # fmt: skip


@route("GET", "/kill-switches", scope="integrations.read", returns=KillSwitchView, listed=True, query=NoQuery)
def list_kill_switches(call: Call) -> Page[KillSwitchView]:
    """List the integrations that are switched off."""
    return Page([_view(switch) for switch in switches.list_switches(call.scope)])


@route("PUT", "/kill-switches", scope="integrations.write", body=PutKillSwitch, returns=KillSwitchView)
def put_kill_switch(call: Call) -> KillSwitchView:
    """Switch an integration off or on: from the next call on, whoever makes it."""
    body: PutKillSwitch = call.body
    if not body.off:
        call.services.integrations.get_integration(call.scope, body.integration)
        switches.switch_on(call.scope, body.integration)
        return KillSwitchView(integration=body.integration, off=False)
    switches.switch_off(call.scope, call.services.integrations, body.integration, body.reason)
    [switch] = [each for each in switches.list_switches(call.scope) if each.integration == body.integration]
    return _view(switch)
