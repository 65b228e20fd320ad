"""JSON merge patches (RFC 7396): makes and applies them."""

from collections.abc import Callable, Mapping
from typing import Any


def make_patch(current: Mapping[str, Any], target: Mapping[str, Any]) -> dict[str, Any]:
    """The patch that turns `current` into `target`; empty if they are equal."""
    patch: dict[str, Any] = {name: None for name in current if name not in target}
    for name, value in target.items():
        before = current.get(name)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            inner = make_patch(before, value)
            patch |= {name: inner} if inner else {}
        elif name not in current or value != before:
            patch[name] = value
    return patch


def merge_patch(target: Any, patch: Any, is_atomic: Callable[[Mapping[str, Any]], bool] = lambda _: False) -> Any:
    """Apply a patch: objects merge, null removes a member, anything else replaces.

    An object that `is_atomic` is replaced as a whole and never merged into.
    """
    if not isinstance(patch, Mapping) or is_atomic(patch):
        return patch
    merged = dict(target) if isinstance(target, Mapping) and not is_atomic(target) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value, is_atomic)
    return merged
