"""Finds the secrets a version uses and binds them to their process when its publisher may set secrets."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from appliance.core.scope import TenantScope
from appliance.processes.definitions.definition import parse_definition
from appliance.processes.definitions.typings import all_grants
from appliance.tenants.grants import secret_bindings


@dataclass(frozen=True)
class SecretUse:
    """The secrets of a process by use: `granted` ones are read by its code, `verifying` ones verify its webhooks."""

    granted: frozenset[str]
    verifying: frozenset[str]


def find_secret_use(definition: Mapping[str, Any], files: Mapping[str, str]) -> SecretUse:
    """The secrets that a valid definition uses."""
    parsed = parse_definition(dict(definition), files)
    names = {trigger.settings.get("verify", {}).get("secret") for trigger in parsed.triggers}
    return SecretUse(all_grants(parsed).secrets, frozenset(str(name) for name in names if name))


def bind_published(scope: TenantScope, process_id: str, definition: Mapping[str, Any], files: Mapping[str, str]) -> None:
    """Binds the secrets of a published version to its process if the publisher may set secrets; inside the write."""
    if secret_bindings.SCOPE in scope.scopes:
        use = find_secret_use(definition, files)
        secret_bindings.bind_process(scope, process_id, use.granted, use.verifying)
