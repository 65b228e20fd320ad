"""Creates JSON merge patches (RFC 7396)."""

from collections.abc import Mapping
from typing import Any


def make_patch(current: Mapping[str, Any], target: Mapping[str, Any]) -> dict[str, Any]:
    """The RFC 7396 patch that turns `current` into `wanted`; empty if they are equal."""
    patch: dict[str, Any] = {name: None for name in current if name not in target}
    for name, value in target.items():
        before = current.get(name)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            inner = make_patch(before, value)
            patch |= {name: inner} if inner else {}
        elif name not in current or value != before:
            patch[name] = value
    return patch
