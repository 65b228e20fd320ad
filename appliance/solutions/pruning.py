"""What a solution brought once and holds no more: found in the tenant, with what stands in the way of deleting it."""

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
from appliance.solutions.uses import Name, names_used
from appliance.webapps import WebApps
from appliance.webapps.domains import service as domains
from appliance.webapps.routes import Route, parse_routes

# What uses comes before what it uses.
_ORDER: Mapping[Kind, int] = {
    "webapp": 0, "agent": 1, "skill": 2, "process": 3, "integration": 4, "collection": 5, "policy": 6,
}  # fmt: skip


@dataclass(frozen=True)
class PruneOptions:
    """`prune`: leftovers are deleted; `allow_loss`: with the entities they hold."""

    prune: bool = False
    allow_loss: bool = False


def note_items(scope: TenantScope, births: "Births", solution: Solution, deleted: Iterable[Change]) -> None:
    """Inside the write that applies: remember what the solution holds, and forget what it holds no more."""
    for change in deleted:
        rows = scope.delete(SolutionItem)
        rows.where((SolutionItem.kind == change.kind) & (SolutionItem.item_id == change.id)).execute()
    known = {(row.kind, row.item_id): row.born_at for row in _rows(scope, solution)}
    for kind, name in _held(solution):
        born_at = births.of(kind, name)
        if born_at is None or known.get((kind, name)) == born_at:
            continue
        if (kind, name) in known:
            change_row = scope.update(SolutionItem, born_at=born_at)
            change_row.where(
                (SolutionItem.solution == solution.name) & (SolutionItem.kind == kind) & (SolutionItem.item_id == name)
            ).execute()
        else:
            scope.insert(SolutionItem, solution=solution.name, kind=kind, item_id=name, born_at=born_at)


def find_leftover(scope: TenantScope, births: "Births", solution: Solution, options: PruneOptions) -> list[Change]:
    """A change for everything that this solution alone brought and holds no more, in the order in which it can be deleted."""
    held = set(_held(solution))
    foreign = {(row.kind, row.item_id) for row in scope.select(SolutionItem).where(SolutionItem.solution != solution.name)}
    names = [
        (row.kind, row.item_id)
        for row in _rows(scope, solution)
        if (row.kind, row.item_id) not in held | foreign and births.of(row.kind, row.item_id) == row.born_at
    ]
    if not names:
        return []
    obstacles = _Obstacles(scope, solution, frozenset(names), options, births.webapps)
    ordered = sorted(names, key=lambda each: (_ORDER[each[0]], each[1]))
    return [obstacles.change(kind, name) for kind, name in obstacles.by_relations(ordered)]


def _rows(scope: TenantScope, solution: Solution) -> Iterator[Any]:
    yield from scope.select(SolutionItem).where(SolutionItem.solution == solution.name)


def _held(solution: Solution) -> Iterator[tuple[Kind, str]]:
    yield from (("collection", name) for name in solution.collections)
    yield from (("integration", slug) for slug in solution.integrations)
    yield from (("process", process_id) for process_id in solution.processes)
    yield from (("webapp", app_id) for app_id in solution.webapps)
    yield from (("agent", agent_id) for agent_id in solution.agents)
    yield from (("skill", name) for name in solution.skills)
    yield from (("policy", name) for name in solution.policies)


class Births:
    """When an item of the tenant was made: an item that was deleted and made anew is another one."""

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
        """None when it is not there."""
        if kind not in self._find:
            return None
        try:
            return str(self._find[kind](name))
        except NotFound:
            return None


class _Obstacles:
    """What of the tenant that stays needs an item, and what the item itself still holds."""

    def __init__(
        self, scope: TenantScope, solution: Solution, leaving: frozenset[Name], options: PruneOptions, webapps: WebApps | None
    ) -> None:
        self._scope, self._options, self._leaving = scope, options, leaving
        self._relations = dict(_relations(scope, solution))
        self._users: dict[Name, str] = {}
        for process_id, definition in _staying(scope, solution, leaving):
            for used in names_used(definition):
                self._users.setdefault(used, f"the process {process_id} uses it")
        for agent_id, skill in _skills_used(scope, solution, leaving):
            self._users.setdefault(("skill", skill), f"the agent {agent_id} uses it")
        for app_id, route in _routes(scope, solution, leaving, webapps):
            used = ("process", route.process) if route.process else ("collection", route.entities)
            self._users.setdefault(used, f"the route {route.path} of the WebApp {app_id} leads to it")

    def by_relations(self, names: list[tuple[Kind, str]]) -> list[tuple[Kind, str]]:
        """Collections whose relations lead to others of them before these."""
        collections = [name for kind, name in names if kind == "collection"]
        ordered: list[str] = []
        while collections:
            free = [n for n in collections if not any(n in self._relations.get(o, ()) for o in collections if o != n)]
            ordered += free or collections  # in a circle the first one says so when it is deleted
            collections = [name for name in collections if name not in ordered]
        return [(kind, name) for kind, name in names if kind != "collection"] + [("collection", name) for name in ordered]

    def change(self, kind: Kind, name: str) -> Change:
        if not self._options.prune:
            return Change(kind, name, "leftover", "the folder holds it no more; a prune deletes it")
        return Change(kind, name, "delete", "the folder holds it no more", self._stands(kind, name))

    def _stands(self, kind: Kind, name: str) -> str | None:
        if user := self._users.get((kind, name)):
            return f"{user}; change that first, or take it out as well"
        if kind == "process":
            for status in OPEN:
                for found in executions.list_executions(self._scope, ExecutionFilter(name, status), PageRequest(1)).items:
                    return f"the execution {found.id} of it is {status}; cancel it, or wait until it is finished"
        if kind == "agent" and (run := agents.find_open_run(self._scope, name)) is not None:
            return f"the run {run} of it is not finished; cancel it, or wait until it is"
        if kind == "collection":
            return self._collection(name)
        if kind == "webapp" and not self._options.allow_loss and (hosts := domains.hosts_of(self._scope, name)):
            return f"it is served at {hosts[0]}; release that domain, or allow_loss=true releases it with it"
        return None

    def _collection(self, name: str) -> str | None:
        for other, targets in sorted(self._relations.items()):
            if other != name and name in targets and ("collection", other) not in self._leaving:
                return f"the collection {other} leads to it; change that first"
        if not self._options.allow_loss and datapool.query_entities(self._scope, name, {"limit": 1}).items:
            return "it holds entities; allow_loss=true deletes them with it"
        return None


def _relations(scope: TenantScope, solution: Solution) -> Iterator[tuple[str, set[str]]]:
    """The collections of the tenant once the solution is applied, and where their relations lead."""
    there = {each["name"]: each for each in read_all(lambda page: datapool.list_collections(scope, page))}
    for name, document in {**there, **solution.collections}.items():
        yield name, {str(each["collection"]) for each in document.get("fields", []) if each.get("type") == "relation"}


def _skills_used(scope: TenantScope, solution: Solution, leaving: frozenset[Name]) -> Iterator[Name]:
    """The agents there are once the solution is applied, with each of their skills."""
    wanted = dict(solution.agents)
    for agent in read_all(lambda page: agents.list_agents(scope, page)):
        if agent.id not in wanted and ("agent", agent.id) not in leaving:
            wanted[agent.id] = agents.get_version(scope, agent.id).definition
    yield from ((agent_id, skill) for agent_id, definition in wanted.items() for skill in definition.skills)


def _routes(
    scope: TenantScope, solution: Solution, leaving: frozenset[Name], webapps: WebApps | None
) -> Iterator[tuple[str, Route]]:
    """The routes that are served once the solution is applied."""
    for app_id, wanted in solution.webapps.items():
        yield from ((app_id, route) for route in wanted.routes)
    if webapps is None:
        return
    for app in read_all(partial(webapps.list_apps, scope)):
        if app.published_version is not None and app.id not in solution.webapps and ("webapp", app.id) not in leaving:
            settings = webapps.get_version(scope, app.id, app.published_version).settings
            yield from ((app.id, route) for route in parse_routes(settings.routes))


def _staying(scope: TenantScope, solution: Solution, leaving: frozenset[Name]) -> Iterator[tuple[str, Any]]:
    """The definitions that execute once the solution is applied."""
    for process_id, process in solution.processes.items():
        yield process_id, process.definition
    for row in read_all(lambda page: versions.list_processes(scope, page)):
        if row.id in solution.processes or ("process", row.id) in leaving:
            continue
        source = row if row.published_version is None else versions.get_version(scope, row.id, row.published_version)
        try:
            yield row.id, parse_definition(source.definition, source.files)
        except DefinitionProblems as error:  # an unfinished draft uses what can be read of it
            if error.partial is not None:
                yield row.id, error.partial
