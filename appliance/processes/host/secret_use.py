"""Which secrets a published version uses, and binding them to their process where its publisher may."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from appliance.core.scope import TenantScope
from appliance.processes.definitions.definition import parse_definition
from appliance.processes.definitions.typings import all_grants
from appliance.tenants.grants import secret_bindings


@dataclass(frozen=True)
class SecretUse:
    """Secrets by what a process does with them: its code reads the `granted` ones, its webhooks are verified by the others."""

    granted: frozenset[str]
    verifying: frozenset[str]


def find_secret_use(definition: Mapping[str, Any], files: Mapping[str, str]) -> SecretUse:
    """What a definition without errors uses."""
    parsed = parse_definition(dict(definition), files)
    named = {trigger.settings.get("verify", {}).get("secret") for trigger in parsed.triggers}
    return SecretUse(all_grants(parsed).secrets, frozenset(str(name) for name in named if name))


def bind_published(scope: TenantScope, process_id: str, definition: Mapping[str, Any], files: Mapping[str, str]) -> None:
    """Inside the write of a publication by somebody who may set secrets: its secrets are for this process from now on."""
    if secret_bindings.SCOPE in scope.scopes:
        use = find_secret_use(definition, files)
        secret_bindings.bind_process(scope, process_id, use.granted, use.verifying)
