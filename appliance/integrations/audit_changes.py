"""Audit details of changes to integrations: which settings changed, and old and new digests, but no other values."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from appliance.core.json_schema import pointer_token
from appliance.core.scope import TenantScope
from appliance.monitor import audit

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_MAX_LISTED = 100


def record_change(scope: TenantScope, action: str, slug: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Inside a write: audit `integration.<action>` with the connector and the pointers of all changed settings.

    `before` and `after` contain `connector`, `settings` with markers for secrets, and `secrets` by pointer, or are empty.
    A changed digest is recorded with its previous value, because it shows what somebody accepted.
    """
    old, new = ({**dict(_leaves(each.get("settings", {}), "")), **each.get("secrets", {})} for each in (before, after))
    changed = sorted(pointer for pointer in old.keys() | new.keys() if old.get(pointer) != new.get(pointer))
    details: dict[str, Any] = {"connector": after.get("connector", before.get("connector")), "changed": changed[:_MAX_LISTED]}
    digests = {pointer: [_digest(old.get(pointer)), _digest(new.get(pointer))] for pointer in changed[:_MAX_LISTED]}
    if accepted := {pointer: pair for pointer, pair in digests.items() if any(pair)}:
        details["digests"] = accepted
    audit.record(scope, f"integration.{action}", slug, details)


def _leaves(value: Any, under: str) -> Iterator[tuple[str, Any]]:
    """Every setting by its pointer; a list counts as one value."""
    if isinstance(value, Mapping) and value.get("sealed") is not True:
        for name, each in value.items():
            yield from _leaves(each, f"{under}/{pointer_token(name)}")
    else:
        yield under, value


def _digest(value: Any) -> str | None:
    match = _DIGEST.match(value) if isinstance(value, str) else None
    return match[0] if match else None
