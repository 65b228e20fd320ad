"""What the types of a process depend on outside of it: the actions of integrations and the fields of collections."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from appliance.connectors.contract import Action
from appliance.core.errors import NotFound
from appliance.core.scope import TenantScope
from appliance.datapool import service as datapool

Actions = Mapping[str, Action]
Fields = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Surroundings:
    """Integrations by slug with the actions of their connector; collections by name with their fields as callers write them;
    agents by name with the JSON Schema of their answer (empty for a text), None for one that is not there.

    What is not in here is not known, and nothing is said about its types.
    """

    integrations: Mapping[str, Actions] = field(default_factory=dict)
    collections: Mapping[str, Fields] = field(default_factory=dict)
    agents: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)

    def over(self, other: "Surroundings") -> "Surroundings":
        """Both, where these hide those of the same name."""
        return Surroundings(
            {**other.integrations, **self.integrations}, {**other.collections, **self.collections}, {**other.agents, **self.agents}
        )


@dataclass(frozen=True)
class Named:
    """What a process names, whose surroundings are looked at."""

    integrations: Iterable[str] = ()
    collections: Iterable[str] = ()
    agents: Iterable[str] = ()


Look = Callable[[Named], Surroundings]


def know_nothing(named: Named) -> Surroundings:
    """Where nobody knows what is around."""
    return Surroundings()


FindActions = Callable[[TenantScope, str], Actions | None]


def know_no_actions(scope: TenantScope, slug: str) -> Actions | None:
    """Where nobody knows the integrations: their types are not checked."""
    return None


FindAgent = Callable[[TenantScope, str], Mapping[str, Any] | None]


def look_around(scope: TenantScope, find_actions: FindActions, find_agent: FindAgent, named: Named) -> Surroundings:
    """Those of a tenant; integrations and collections that it does not have are left out."""
    integrations = {slug: actions for slug in named.integrations if (actions := find_actions(scope, slug)) is not None}
    collections = {name: fields for name in named.collections if (fields := _fields(scope, name)) is not None}
    return Surroundings(integrations, collections, {name: find_agent(scope, name) for name in named.agents})


def _fields(scope: TenantScope, name: str) -> Fields | None:
    try:
        return tuple(datapool.get_collection(scope, name)["fields"])
    except NotFound:
        return None
