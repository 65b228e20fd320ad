"""Determines where an integration's settings send its secrets: the destination that secrets are bound to."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from appliance.connectors.contract import ConnectorError
from appliance.connectors.declarative import DeclarativeConnector, base_address
from appliance.connectors.registry import Installed
from appliance.core.database import db
from appliance.core.errors import ValidationFailed
from appliance.core.sentences import Sentence
from appliance.tenants.grants import SecretDestination, host_of

from .settings import Path, member_at, open_settings, secret_targets, value_at

_MOST_HOSTS = 500
_NO_PLACE = frozenset({"port", "tls", "ca", "host_key", "profile"})
"""Targets that are not an address by themselves."""


def destination_of(installed: Installed, slug: str, settings: Mapping[str, Any]) -> SecretDestination:
    """The destination that these stored settings send secrets to.

    It changes with every setting that the connector marks `secret_target`, and with the fixed address in a declarative
    connector's file.  If a connector marks none outside its credentials, it changes with all settings.
    """
    targets = _targets(installed, settings)
    fixed = _fixed_address(installed, settings)
    basis: Any = settings
    if fixed or _marks_address(installed):
        basis = sorted(["/".join(path), value] for path, value in targets.items() if value is not None)
    digest = hashlib.sha256(db.dump_json([installed.name, fixed, basis]).encode()).hexdigest()
    return SecretDestination("integration", slug, digest, _hosts(fixed, targets))


def secret_names(settings: Mapping[str, Any]) -> list[str]:
    """The names of the tenant's secrets that settings refer to."""
    names: list[str] = []

    def collect(name: str) -> str:
        names.append(name)
        return ""

    open_settings(settings, {}, collect)
    return sorted(set(names))


def check_address_fixed(installed: Installed, settings: Mapping[str, Any]) -> None:
    """ValidationFailed if settings with secrets let each call choose the address."""
    needed = installed.connector.settings_schema.get("secrets_need")
    if isinstance(needed, str) and value_at(settings, (needed,)) is None:
        raise ValidationFailed(
            Sentence(
                "these settings use a secret but let each call choose the address, which could send it anywhere; set %(needed)s",
                needed=needed,
            ),
            pointer=f"/settings/{needed}",
        )


def _targets(installed: Installed, settings: Mapping[str, Any]) -> dict[Path, Any]:
    """The target settings, or the connector's defaults for them."""
    schema = installed.connector.settings_schema
    targets = {}
    for path in secret_targets(schema):
        value = value_at(settings, path)
        targets[path] = member_at(schema, path).get("default") if value is None and len(path) == 1 else value
    return targets


def _marks_address(installed: Installed) -> bool:
    return any(path[0] != "auth" for path in secret_targets(installed.connector.settings_schema))


def _fixed_address(installed: Installed, settings: Mapping[str, Any]) -> str:
    """The base address of a declarative connector; empty for others, or if the settings yield none."""
    if not issubclass(installed.connector, DeclarativeConnector):
        return ""
    try:
        return base_address(installed.connector.plan, {"settings": settings})
    except ConnectorError:
        return ""


def _hosts(fixed: str, targets: Mapping[Path, Any]) -> str:
    hosts = [*([host_of(fixed)] if fixed else []), *_places(targets)]
    text = ", ".join(dict.fromkeys(hosts))
    return text if len(text) <= _MOST_HOSTS else ""


def _places(targets: Mapping[Path, Any]) -> Iterator[str]:
    for path, value in targets.items():
        name = path[-1].rpartition("_")[2]
        if not isinstance(value, str) or not value or name in _NO_PLACE or path[-1] in _NO_PLACE:
            continue
        if name != "host":
            yield host_of(value)
            continue
        beside = {each: targets.get((*path[:-1], path[-1].removesuffix("host") + each)) for each in ("port", "tls")}
        place = f"{value}:{beside['port']}" if beside["port"] else value
        place += " tls=off" if beside["tls"] == "off" else ""
        yield place + (" ca=own" if targets.get((*path[:-1], "ca")) else "")
