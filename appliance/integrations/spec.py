"""Integration data: as requested, and as returned."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from appliance.core.patches import merge_patch
from appliance.integrations.gate import DEFAULT_CONCURRENCY


@dataclass(frozen=True)
class IntegrationSpec:
    """Properties of an integration to create; secrets as texts, references, or markers as returned.

    `concurrency` is the maximum of concurrent calls, 1 to 64: of all processes on PostgreSQL, of each on SQLite.
    """

    connector: str
    settings: Mapping[str, Any]
    name: str = ""
    concurrency: int = DEFAULT_CONCURRENCY


@dataclass(frozen=True)
class Check:
    """The result of the last test of the settings; `error_class` is only set right after it."""

    at: int
    ok: bool
    message: str
    error_class: str | None = None


@dataclass(frozen=True)
class Integration:
    """An integration as returned: secrets are `{"sealed": true, "updated_at": …}`."""

    slug: str
    name: str
    connector: str
    settings: dict[str, Any]
    version: int
    created_at: int
    updated_at: int
    check: Check | None
    concurrency: int


def merged_spec(current: Integration, changes: Mapping[str, Any]) -> IntegrationSpec:
    """RFC 7396: `current` with `changes` merged in (members `name`, `connector`, `settings`, `concurrency`); null removes."""
    base = IntegrationSpec(current.connector, current.settings, current.name, current.concurrency)
    if "settings" in changes:
        settings = merge_patch(base.settings, changes["settings"], is_sealed)
        base = replace(base, settings=settings if isinstance(settings, dict) else {})
    if "concurrency" in changes:
        base = replace(base, concurrency=changes["concurrency"] or DEFAULT_CONCURRENCY)
    return replace(base, **{name: changes[name] for name in ("name", "connector") if changes.get(name) is not None})


def is_sealed(value: Mapping[str, Any]) -> bool:
    """Whether an object of the settings is the marker of a sealed secret, which is one value and cannot be merged into."""
    return value.get("sealed") is True
