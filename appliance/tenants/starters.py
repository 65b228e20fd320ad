"""Who started the work that acts under its own name, such as an execution; asked by the rooms below those that run such work."""

from collections.abc import Callable

from appliance.core.scope import TenantScope

Starter = Callable[[TenantScope, str], str | None]
_starters: dict[str, list[Starter]] = {}


def register_starter(kind: str, find: Starter) -> Callable[[], None]:
    """Register `find(scope, name)`, which returns the actor that started `<kind>:<name>`, or None if there is no such work.

    The latest registration of a kind applies; the result removes this one.
    """
    _starters.setdefault(kind, []).append(find)
    return lambda: _starters[kind].remove(find)


def knows_starters_of(kind: str) -> bool:
    """Whether a room has registered for this kind of actor."""
    return bool(_starters.get(kind))


def find_starter(scope: TenantScope, kind: str, name: str) -> str | None:
    """The actor that started `<kind>:<name>`; None if there is no such work.  LookupError if no room registered for it."""
    return _starters[kind][-1](scope, name)
