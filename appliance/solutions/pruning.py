"""Finds items in a tenant that a solution created and no longer contains, and what blocks their deletion."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from appliance.agents import versions as agents
from appliance.agents.skills import Skills
from appliance.core.errors import NotFound
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.datapool import service as datapool
from appliance.integrations import Integrations
from appliance.processes.definitions import DefinitionProblems, parse_definition, versions
from appliance.processes.engine import OPEN
from appliance.processes.executions import ExecutionFilter
from appliance.processes.executions import service as executions
from appliance.solutions.definition import Solution
from appliance.solutions.kinds.changes import Change, Kind, read_all
from appliance.solutions.kinds.policies import find_policy
from appliance.solutions.models import SolutionItem
from appliance.solutions.references import Name, list_references
from appliance.webapps import WebApps
from appliance.webapps.domains import service as domains
from appliance.webapps.routes import Route, parse_routes

# The order of deletion: users before what they use.
_ORDER: Mapping[Kind, int] = {
    "webapp": 0, "agent": 1, "skill": 2, "process": 3, "integration": 4, "collection": 5, "policy": 6,
}  # fmt: skip


@dataclass(frozen=True)
class PruneOptions:
    """`prune`: delete leftovers; `allow_loss`: even collections with entities and WebApps with domains."""

    prune: bool = False
    allow_loss: bool = False


def record_items(scope: TenantScope, creation_times: "CreationTimes", solution: Solution, deleted: Iterable[Change]) -> None:
    """Inside the write that applies: record the items of the solution, and remove the records of deleted ones."""
    for change in deleted:
        rows = scope.delete(SolutionItem)
        rows.where((SolutionItem.kind == change.kind) & (SolutionItem.item_id == change.id)).execute()
    recorded = {(row.kind, row.item_id): row.born_at for row in _rows(scope, solution)}
    for kind, name in _contents(solution):
        born_at = creation_times.of(kind, name)
        if born_at is None or recorded.get((kind, name)) == born_at:
            continue
        if (kind, name) in recorded:
            change_row = scope.update(SolutionItem, born_at=born_at)
            change_row.where(
                (SolutionItem.solution == solution.name) & (SolutionItem.kind == kind) & (SolutionItem.item_id == name)
            ).execute()
        else:
            scope.insert(SolutionItem, solution=solution.name, kind=kind, item_id=name, born_at=born_at)


def find_leftovers(scope: TenantScope, creation_times: "CreationTimes", solution: Solution, options: PruneOptions) -> list[Change]:
    """A change for every item that only this solution created and no longer contains, in order of deletion."""
    contained = set(_contents(solution))
    of_others = {(row.kind, row.item_id) for row in scope.select(SolutionItem).where(SolutionItem.solution != solution.name)}
    names = [
        (row.kind, row.item_id)
        for row in _rows(scope, solution)
        if (row.kind, row.item_id) not in contained | of_others and creation_times.of(row.kind, row.item_id) == row.born_at
    ]
    if not names:
        return []
    obstacles = _Obstacles(scope, solution, frozenset(names), options, creation_times.webapps)
    ordered = sorted(names, key=lambda each: (_ORDER[each[0]], each[1]))
    return [obstacles.to_change(kind, name) for kind, name in obstacles.sort_collections(ordered)]


def _rows(scope: TenantScope, solution: Solution) -> Iterator[Any]:
    yield from scope.select(SolutionItem).where(SolutionItem.solution == solution.name)


def _contents(solution: Solution) -> Iterator[tuple[Kind, str]]:
    yield from (("collection", name) for name in solution.collections)
    yield from (("integration", slug) for slug in solution.integrations)
    yield from (("process", process_id) for process_id in solution.processes)
    yield from (("webapp", app_id) for app_id in solution.webapps)
    yield from (("agent", agent_id) for agent_id in solution.agents)
    yield from (("skill", name) for name in solution.skills)
    yield from (("policy", name) for name in solution.policies)


class CreationTimes:
    """Looks up when an item of the tenant was created, which tells it from a later item with the same name."""

    def __init__(
        self, scope: TenantScope, integrations: Integrations, webapps: WebApps | None, skills: Skills | None = None
    ) -> None:
        self.webapps = webapps
        self._find: Mapping[Kind, Callable[[str], Any]] = {
            "collection": lambda name: datapool.get_collection(scope, name)["created_at"],
            "integration": lambda slug: integrations.get_integration(scope, slug).created_at,
            "process": lambda process_id: versions.get_process(scope, process_id).created_at,
            "agent": lambda agent_id: agents.get_agent(scope, agent_id).created_at,
            "policy": lambda name: find_policy(scope, name).created_at,
            **({"webapp": lambda app_id: webapps.get_app(scope, app_id).created_at} if webapps is not None else {}),
            **({"skill": lambda name: skills.get_skill(scope, name).created_at} if skills is not None else {}),
        }

    def of(self, kind: Kind, name: str) -> str | None:
        """The creation time of an item; None if it does not exist."""
        if kind not in self._find:
            return None
        try:
            return str(self._find[kind](name))
        except NotFound:
            return None


class _Obstacles:
    """What blocks the deletion of items: users that remain in the tenant, and contents of the items themselves."""

    def __init__(
        self, scope: TenantScope, solution: Solution, removed: frozenset[Name], options: PruneOptions, webapps: WebApps | None
    ) -> None:
        self._scope, self._options, self._removed = scope, options, removed
        self._relations = dict(_relations(scope, solution))
        self._users: dict[Name, str] = {}
        for process_id, definition in _remaining_processes(scope, solution, removed):
            for used in list_references(definition):
                self._users.setdefault(used, f"the process {process_id} uses it")
        for agent_id, skill in _skills_used(scope, solution, removed):
            self._users.setdefault(("skill", skill), f"the agent {agent_id} uses it")
        for app_id, route in _routes(scope, solution, removed, webapps):
            used = ("process", route.process) if route.process else ("collection", route.entities)
            self._users.setdefault(used, f"the route {route.path} of the WebApp {app_id} uses it")

    def sort_collections(self, names: list[tuple[Kind, str]]) -> list[tuple[Kind, str]]:
        """The names with collections last, and those with relations before the targets of these."""
        collections = [name for kind, name in names if kind == "collection"]
        ordered: list[str] = []
        while collections:
            free = [n for n in collections if not any(n in self._relations.get(o, ()) for o in collections if o != n)]
            ordered += free or collections  # in a cycle, deleting the first one reports the problem
            collections = [name for name in collections if name not in ordered]
        return [(kind, name) for kind, name in names if kind != "collection"] + [("collection", name) for name in ordered]

    def to_change(self, kind: Kind, name: str) -> Change:
        if not self._options.prune:
            return Change(kind, name, "leftover", "no longer in the folder; a prune deletes it")
        return Change(kind, name, "delete", "no longer in the folder", self._find_obstacle(kind, name))

    def _find_obstacle(self, kind: Kind, name: str) -> str | None:
        if user := self._users.get((kind, name)):
            return f"{user}; change that first, or remove it as well"
        if kind == "process":
            for status in OPEN:
                for execution in executions.list_executions(self._scope, ExecutionFilter(name, status), PageRequest(1)).items:
                    return f"its execution {execution.id} is {status}; cancel it, or wait until it has finished"
        if kind == "agent" and (run := agents.find_open_run(self._scope, name)) is not None:
            return f"its run {run} has not finished; cancel it, or wait until it has"
        if kind == "collection":
            return self._collection(name)
        if kind == "webapp" and not self._options.allow_loss and (hosts := domains.hosts_of(self._scope, name)):
            return f"it is served at {hosts[0]}; release that domain, or use allow_loss=true to release it too"
        return None

    def _collection(self, name: str) -> str | None:
        for other, targets in sorted(self._relations.items()):
            if other != name and name in targets and ("collection", other) not in self._removed:
                return f"the collection {other} refers to it; change that first"
        if not self._options.allow_loss and datapool.query_entities(self._scope, name, {"limit": 1}).items:
            return "it contains entities; use allow_loss=true to delete them too"
        return None


def _relations(scope: TenantScope, solution: Solution) -> Iterator[tuple[str, set[str]]]:
    """The collections of the tenant once the solution is applied, with the targets of their relations."""
    existing = {each["name"]: each for each in read_all(lambda page: datapool.list_collections(scope, page))}
    for name, document in {**existing, **solution.collections}.items():
        yield name, {str(each["collection"]) for each in document.get("fields", []) if each.get("type") == "relation"}


def _skills_used(scope: TenantScope, solution: Solution, removed: frozenset[Name]) -> Iterator[Name]:
    """(agent, skill) for every skill of the agents that exist once the solution is applied."""
    definitions = dict(solution.agents)
    for agent in read_all(lambda page: agents.list_agents(scope, page)):
        if agent.id not in definitions and ("agent", agent.id) not in removed:
            definitions[agent.id] = agents.get_version(scope, agent.id).definition
    yield from ((agent_id, skill) for agent_id, definition in definitions.items() for skill in definition.skills)


def _routes(
    scope: TenantScope, solution: Solution, removed: frozenset[Name], webapps: WebApps | None
) -> Iterator[tuple[str, Route]]:
    """The routes that are served once the solution is applied."""
    for app_id, target in solution.webapps.items():
        yield from ((app_id, route) for route in target.routes)
    if webapps is None:
        return
    for app in read_all(partial(webapps.list_apps, scope)):
        if app.published_version is not None and app.id not in solution.webapps and ("webapp", app.id) not in removed:
            settings = webapps.get_version(scope, app.id, app.published_version).settings
            yield from ((app.id, route) for route in parse_routes(settings.routes))


def _remaining_processes(scope: TenantScope, solution: Solution, removed: frozenset[Name]) -> Iterator[tuple[str, Any]]:
    """The definitions of the processes that exist once the solution is applied."""
    for process_id, process in solution.processes.items():
        yield process_id, process.definition
    for row in read_all(lambda page: versions.list_processes(scope, page)):
        if row.id in solution.processes or ("process", row.id) in removed:
            continue
        source = row if row.published_version is None else versions.get_version(scope, row.id, row.published_version)
        try:
            yield row.id, parse_definition(source.definition, source.files)
        except DefinitionProblems as error:  # of an unfinished draft, what can be parsed counts
            if error.partial is not None:
                yield row.id, error.partial
