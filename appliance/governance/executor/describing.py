"""An integration's action as policies and approvals see it: with its connector, whom it would reach, and as whom."""

from dataclasses import replace
from urllib.parse import urlsplit

from appliance.connectors import UNKNOWN, SentRequest, read_request
from appliance.connectors.contract import Action, ConnectorError, Effect
from appliance.connectors.network import without_port
from appliance.core.scope import TenantScope
from appliance.governance.governor import Governor
from appliance.governance.policies.decision import ToolAction
from appliance.integrations import Integrations, Kinship, Ready, secret_targets, value_at
from appliance.integrations.calls import Shot, log_to_process

TOOL = "execute_tenant_integration"
_HOST_CHARACTERS = 8_000


def describe(ready: Ready, operation: str, effect: Effect, given: dict[str, object], kin: tuple[str, ...] = ()) -> ToolAction:
    """The action, by whatever road it comes.

    `host` is made of the settings that decide whom secrets are sent to; `credential` names the integration's stored settings
    and their version, so that it changes when anybody gives others; `kin` names the integrations that use the same credential.
    """
    return ToolAction(
        TOOL, effect, given, integration=ready.slug, operation=operation, connector=ready.connector_label,
        host=host_of(ready), credential=f"{ready.slug}@{ready.version}", kin=kin,
    )  # fmt: skip


class Describer:
    """Finds out of a call what the rules of its tenant look at, and no more."""

    def __init__(self, integrations: Integrations, governor: Governor) -> None:
        self._integrations = integrations
        self._governor = governor
        self._kinship = Kinship(integrations.ready)

    def kin_of(self, scope: TenantScope, ready: Ready) -> tuple[str, ...]:
        """The integrations that use the same credential, where a rule restricts any by name."""
        if ready.is_trial or not self._governor.looks_at(scope).kin:
            return ()
        return self._kinship.kin_of(scope, ready.slug)

    def describe_call(
        self, scope: TenantScope, ready: Ready, action: Action, effect: Effect, given: dict[str, object]
    ) -> ToolAction:
        """The action with what it sends.  One that has a method changed by a parameter writes, whatever its own method; of an
        integration without a host of its own it is the host of the request."""
        described = describe(ready, action.name, effect, given, self.kin_of(scope, ready))
        if not ready.installed.connector.previews or not self._governor.looks_at(scope).requests:
            return described
        sent = self._sent_by(ready, action, given)
        effect = "write" if effect == "read" and len(sent.methods) > 1 and sent.may_write else effect
        return replace(described, sent=sent, effect=effect, host=described.host or without_port(sent.host))

    def _sent_by(self, ready: Ready, action: Action, given: dict[str, object]) -> SentRequest:
        """The first request; unknown where it cannot be made, which the call will say by itself."""
        try:
            request = self._integrations.calls.first_request(ready, Shot(action, given, "judged", 1.0, log_to_process))
        except ConnectorError:
            return UNKNOWN
        return UNKNOWN if request is None else read_request(request, str(ready.settings.get("base_url", "")))


def host_of(ready: Ready) -> str:
    """Whom the integration leads to: host names of addresses, other targets as they are, secrets blotted out.

    More than can be told is told as nothing, which to rules may be any host; a part of it would hide the rest from them.
    """
    values = [value_at(ready.settings, path) for path in secret_targets(ready.installed.connector.settings_schema)]
    told = ", ".join(_told(each) for each in values if isinstance(each, str | int) and each not in ("", None))
    shown = ready.redactor.text(told)
    return shown if len(shown) <= _HOST_CHARACTERS else ""


def _told(value: str | int) -> str:
    if isinstance(value, str) and "://" in value:
        try:
            parts = urlsplit(value)
        except ValueError:
            return value
        return parts.netloc.rpartition("@")[2]
    return str(value)
