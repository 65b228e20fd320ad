"""Who started the work that acts under its own name, such as an execution; asked by the packages below those that run it."""

from collections.abc import Callable

from appliance.core.scope import TenantScope

Starter = Callable[[TenantScope, str], str | None]
lookups: dict[str, Starter] = {}


def set_lookup(kind: str, find: Starter) -> None:
    """Set `find(scope, name)`, which returns the actor that started `<kind>:<name>`, or None if there is no such work."""
    lookups[kind] = find


def knows_starters_of(kind: str) -> bool:
    """Whether there is a lookup for this kind of actor."""
    return kind in lookups


def find_starter(scope: TenantScope, kind: str, name: str) -> str | None:
    """The actor that started `<kind>:<name>`; None if there is no such work.  LookupError without a lookup for it."""
    return lookups[kind](scope, name)
