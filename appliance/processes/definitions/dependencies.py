"""What the type check of a process depends on: actions of integrations, fields of collections, answers of agents."""

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
class Dependencies:
    """Integrations by slug with the actions of their connector; collections by name with their fields as callers write them;
    agents by name with the JSON Schema of their answer (empty for a text), None for an agent that does not exist.

    Anything not listed is unknown, and its types are not checked.
    """

    integrations: Mapping[str, Actions] = field(default_factory=dict)
    collections: Mapping[str, Fields] = field(default_factory=dict)
    agents: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)

    def merged_over(self, other: "Dependencies") -> "Dependencies":
        """The two merged; entries of this one win over those of the same name in `other`."""
        return Dependencies(
            {**other.integrations, **self.integrations}, {**other.collections, **self.collections}, {**other.agents, **self.agents}
        )


@dataclass(frozen=True)
class References:
    """The integrations, collections and agents that a process refers to."""

    integrations: Iterable[str] = ()
    collections: Iterable[str] = ()
    agents: Iterable[str] = ()


LoadDependencies = Callable[[References], Dependencies]


def load_nothing(references: References) -> Dependencies:
    """A loader without a tenant: nothing is known, so nothing is checked."""
    return Dependencies()


FindActions = Callable[[TenantScope, str], Actions | None]


def find_no_actions(scope: TenantScope, slug: str) -> Actions | None:
    """Stands in where integrations are not available: their types are not checked."""
    return None


FindAgent = Callable[[TenantScope, str], Mapping[str, Any] | None]


def load_dependencies(scope: TenantScope, find_actions: FindActions, find_agent: FindAgent, references: References) -> Dependencies:
    """Load the referenced items of a tenant; integrations and collections that do not exist are left out."""
    integrations = {slug: actions for slug in references.integrations if (actions := find_actions(scope, slug)) is not None}
    collections = {name: fields for name in references.collections if (fields := _fields(scope, name)) is not None}
    return Dependencies(integrations, collections, {name: find_agent(scope, name) for name in references.agents})


def _fields(scope: TenantScope, name: str) -> Fields | None:
    try:
        return tuple(datapool.get_collection(scope, name)["fields"])
    except NotFound:
        return None
