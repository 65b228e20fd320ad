"""Describes an integration's action for policies and approvals: its connector, the host it calls, and the credential it uses."""

from dataclasses import replace
from urllib.parse import urlsplit

from appliance.connectors import UNKNOWN, SentRequest, read_request
from appliance.connectors.contract import Action, ConnectorError, Effect
from appliance.connectors.network import without_port
from appliance.core.scope import TenantScope
from appliance.governance.governor import Governor
from appliance.governance.policies.decision import ToolAction
from appliance.integrations import Integrations, OpenedIntegration, SharedCredentials, secret_targets, value_at
from appliance.integrations.calls import CallSpec, log_to_process

TOOL = "execute_tenant_integration"
_HOST_CHARACTERS = 8_000


def build_tool_action(
    ready: OpenedIntegration, operation: str, effect: Effect, input_values: dict[str, object], kin: tuple[str, ...] = ()
) -> ToolAction:
    """The action as policies see it, however it is called.

    `host` is derived from the settings that decide where secrets are sent; `credential` names the integration's stored settings
    and their version, so that it changes with the settings; `kin` names the integrations that share the credential.
    """
    return ToolAction(
        TOOL, effect, input_values, integration=ready.slug, operation=operation, connector=ready.connector_label,
        host=host_of(ready), credential=f"{ready.slug}@{ready.version}", kin=kin,
    )  # fmt: skip


class ToolActionBuilder:
    """Collects the details of a call that the tenant's rules inspect, and no others."""

    def __init__(self, integrations: Integrations, governor: Governor) -> None:
        self._integrations = integrations
        self._governor = governor
        self._kinship = SharedCredentials(integrations.ready)

    def kin_of(self, scope: TenantScope, ready: OpenedIntegration) -> tuple[str, ...]:
        """The integrations that share the credential, collected only if a rule restricts some integration by name."""
        if ready.is_trial or not self._governor.looks_at(scope).kin:
            return ()
        return self._kinship.kin_of(scope, ready.slug)

    def describe_call(
        self, scope: TenantScope, ready: OpenedIntegration, action: Action, effect: Effect, input_values: dict[str, object]
    ) -> ToolAction:
        """The action with what it sends.  An action whose method depends on a parameter counts as a write, whatever its declared
        method; an integration without a fixed host has the host of the request."""
        action_view = build_tool_action(ready, action.name, effect, input_values, self.kin_of(scope, ready))
        if not ready.installed.connector.previews or not self._governor.looks_at(scope).requests:
            return action_view
        sent = self._first_request(ready, action, input_values)
        effect = "write" if effect == "read" and len(sent.methods) > 1 and sent.may_write else effect
        return replace(action_view, sent=sent, effect=effect, host=action_view.host or without_port(sent.host))

    def _first_request(self, ready: OpenedIntegration, action: Action, input_values: dict[str, object]) -> SentRequest:
        """The first request; UNKNOWN if it cannot be built, which the call itself will report."""
        try:
            request = self._integrations.calls.first_request(ready, CallSpec(action, input_values, "judged", 1.0, log_to_process))
        except ConnectorError:
            return UNKNOWN
        return UNKNOWN if request is None else read_request(request, str(ready.settings.get("base_url", "")))


def host_of(ready: OpenedIntegration) -> str:
    """The hosts the integration calls: host names of addresses, other targets as they are, with secrets redacted.

    Empty if the list is too long, which rules treat as any host; a truncated list would hide the rest from them.
    """
    values = [value_at(ready.settings, path) for path in secret_targets(ready.installed.connector.settings_schema)]
    hosts = ", ".join(_target_host(each) for each in values if isinstance(each, str | int) and each not in ("", None))
    redacted = ready.redactor.text(hosts)
    return redacted if len(redacted) <= _HOST_CHARACTERS else ""


def _target_host(value: str | int) -> str:
    if isinstance(value, str) and "://" in value:
        try:
            parts = urlsplit(value)
        except ValueError:
            return value
        return parts.netloc.rpartition("@")[2]
    return str(value)
