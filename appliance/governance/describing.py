"""An integration's action as policies and approvals see it: with its connector, whom it would reach, and as whom."""

from urllib.parse import urlsplit

from appliance.connectors.contract import Effect
from appliance.governance.policies.decision import ToolAction
from appliance.integrations.connections import Ready
from appliance.integrations.settings import secret_targets, value_at

TOOL = "execute_tenant_integration"
_HOST_CHARACTERS = 8_000


def describe(ready: Ready, operation: str, effect: Effect, given: dict[str, object]) -> ToolAction:
    """The action, by whatever road it comes.

    `host` is made of the settings that decide whom secrets are sent to; `credential` names the integration's stored settings
    and their version, so that it changes when anybody gives others.
    """
    return ToolAction(
        TOOL, effect, given, integration=ready.slug, operation=operation, connector=ready.connector_label,
        host=host_of(ready), credential=f"{ready.slug}@{ready.version}",
    )  # fmt: skip


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
