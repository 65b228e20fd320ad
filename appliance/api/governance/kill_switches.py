"""/api/v1/kill-switches: switch the tenant, agents, tools and integrations off and on."""

from typing import Annotated, Literal

from pydantic import Field

from appliance.api.frame.routing import Body, Call, View, route
from appliance.api.tenants.tenants import NoQuery
from appliance.core import clock
from appliance.core.errors import NotFound, ValidationFailed
from appliance.core.pages import Page
from appliance.governance import KillSwitch, Kind, kill_switches


class KillSwitchView(View):
    """The switch of the tenant, an agent, a tool or an integration; when `off`, with the reason and who set it."""

    kind: Annotated[Literal["tenant", "agent", "tool", "integration"], Field(description=(
        "What the switch controls: everything the tenant's agents do, one agent, one tool or one integration."
    ))]
    name: Annotated[str, Field(description="The agent, tool or integration that the switch controls; empty for the kind `tenant`.")]
    off: Annotated[bool, Field(description="True while calls of the switched thing are refused.")]
    integration: Annotated[
        str | None, Field(description="The slug of the integration, as in `name`; absent for other kinds.")
    ] = None
    reason: Annotated[str | None, Field(description="Why it was switched off, as shown to callers; absent while it is on.")] = None
    set_by: Annotated[str | None, Field(description="The actor that switched it off; absent while it is on.")] = None
    set_at: Annotated[str | None, Field(description="When it was switched off; RFC 3339, UTC. Absent while it is on.")] = None


Name = Annotated[str, Field(min_length=1, max_length=100)]


class PutKillSwitch(Body):
    """Either `{integration, off}` or `{kind, name, off}`; the kind `tenant` takes no name."""

    integration: Annotated[
        Name | None, Field(description="The slug of the integration to switch, instead of `kind` and `name`; 1 to 100 characters.")
    ] = None
    kind: Annotated[Literal["tenant", "agent", "tool", "integration"] | None, Field(description=(
        "What to switch, with `name`; absent if `integration` is sent."
    ))] = None
    name: Annotated[Name | None, Field(description=(
        "The agent, tool or integration to switch, 1 to 100 characters; absent for the kind `tenant`."
    ))] = None
    off: Annotated[bool, Field(description="True to refuse calls from now on, false to let them through again.")]
    reason: Annotated[str, Field(max_length=500, description=(
        "Why it is switched off, shown to callers whose calls are refused; at most 500 characters."
    ))] = "no reason given"


def _view(switch: KillSwitch) -> KillSwitchView:
    return KillSwitchView(
        kind=switch.kind, name=switch.name, off=True, integration=switch.name if switch.kind == "integration" else None,
        reason=switch.reason, set_by=switch.set_by, set_at=clock.rfc3339(switch.set_at),
    )  # fmt: skip


@route("GET", "/kill-switches", scope="integrations.read", returns=KillSwitchView, listed=True, query=NoQuery)
def list_kill_switches(call: Call) -> Page[KillSwitchView]:
    """List everything that is switched off.

    Each says why, by whom and when it was switched off. The list is empty while everything may run.
    """
    return Page([_view(switch) for switch in kill_switches.list_switches(call.scope)])


@route("PUT", "/kill-switches", scope="integrations.write", body=PutKillSwitch, returns=KillSwitchView, errors=(NotFound,))
def put_kill_switch(call: Call) -> KillSwitchView:
    """Switch something off or on.

    Switches the tenant, an agent, a tool or an integration, starting with the next call of any caller.

    Anything but an integration also needs the scope `agents.write`.
    """
    kind, name = _kind_and_name(call.body)
    call.scope.require(kill_switches.SCOPES[kind])
    if kind == "integration":
        call.services.integrations.get_integration(call.scope, name)
    if not call.body.off:
        kill_switches.switch_on(call.scope, kind, name)
        return KillSwitchView(kind=kind, name=name, off=False, integration=name if kind == "integration" else None)
    kill_switches.switch_off(call.scope, kind, name, call.body.reason)
    [switch] = [each for each in kill_switches.list_switches(call.scope) if (each.kind, each.name) == (kind, name)]
    return _view(switch)


def _kind_and_name(body: PutKillSwitch) -> tuple[Kind, str]:
    if body.integration is not None:
        if body.kind is not None or body.name is not None:
            raise ValidationFailed("send either `integration`, or `kind` and `name`", pointer="/integration")
        return "integration", body.integration
    if body.kind is None:
        raise ValidationFailed("say what to switch: send `kind` and `name`, or `integration`", pointer="/kind")
    if (body.kind == "tenant") != (body.name is None):
        raise ValidationFailed("the kind `tenant` takes no `name`; every other kind needs one", pointer="/name")
    return body.kind, body.name or kill_switches.WHOLE_TENANT
