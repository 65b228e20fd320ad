"""The slow checks of a solution: code and expressions in the sandbox, settings against their connector's schema."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from appliance.connectors.registry import Installed, Registry
from appliance.core.errors import ValidationFailed
from appliance.integrations import Sealed, extract_secrets, open_settings
from appliance.processes.definitions import Dependencies, LoadDependencies, References, agents_used, load_nothing, versions
from appliance.sandbox import Pool
from appliance.solutions.definition import PROCESS_FILE, Problem, Solution, SolutionIntegration, SolutionProcess
from appliance.solutions.planning import find_markers


@dataclass(frozen=True)
class Checks:
    """What the checks use: the installed connectors, and the sandbox; without a pool code is not checked.

    `look` loads what the tenant has in addition to the solution's own integrations and collections.
    """

    registry: Registry
    pool: Pool | None
    load_dependencies: LoadDependencies = load_nothing


def find_problems(tenant_id: str, checks: Checks, solution: Solution, processes: Iterable[str]) -> list[Problem]:
    """The problems of the integrations and these processes.  Slow: must not be called inside a write."""
    problems: list[Problem] = []
    for slug, integration in sorted(solution.integrations.items()):
        problems += _integration(checks.registry, slug, integration)
    if checks.pool is not None:
        for process_id in processes:
            context = versions.CheckContext(checks.pool, _dependency_loader(checks, solution))
            problems += _process(tenant_id, context, solution, process_id)
    return problems


def _dependency_loader(checks: Checks, solution: Solution) -> LoadDependencies:
    """Loads what a process depends on as it will be once the solution has been applied."""

    def load(references: References) -> Dependencies:
        return solution_dependencies(checks.registry, solution).merged_over(checks.load_dependencies(references))

    return load


def solution_dependencies(registry: Registry, solution: Solution) -> Dependencies:
    """The integrations, collections and agents of a solution, for type-checking its processes.

    Integrations whose actions must be discovered are left out: their actions are only known in the tenant.
    """
    installed = {slug: registry.find(each.spec.connector) for slug, each in solution.integrations.items()}
    actions = {slug: each.actions for slug, each in installed.items() if each is not None and not each.discovers}
    collections = {name: tuple(each["fields"]) for name, each in solution.collections.items() if each}
    return Dependencies(actions, collections, {name: agent.output or {} for name, agent in solution.agents.items()})


def _process(tenant_id: str, context: versions.CheckContext, solution: Solution, process_id: str) -> Iterator[Problem]:
    process = solution.processes[process_id]
    folder = f"processes/{process_id}"
    yield from _external_agents(context.load_dependencies, process, f"{folder}/{PROCESS_FILE}")
    for problem in versions.find_problems(context, tenant_id, process.draft):
        if problem.file is not None:
            file = f"{folder}/{problem.file}"
            yield Problem(file, problem.code, problem.message, problem.line, problem.severity, problem.column)
        else:
            line = versions.line_of(problem.pointer, process.lines) or 1
            message = f"{problem.pointer or '/'} {problem.message}"
            yield Problem(f"{folder}/{PROCESS_FILE}", problem.code, message, line, problem.severity)


def _external_agents(load: LoadDependencies, process: SolutionProcess, file: str) -> Iterator[Problem]:
    """A warning for every agent that is neither in the solution nor known to exist in the tenant."""
    used = agents_used(process.definition)
    agents = load(References(agents=used)).agents if used else {}
    for step in process.definition.all_steps():
        if step.kind == "agent" and (name := step.settings["use"]) not in agents:
            pointer = f"{step.pointer}/agent/use"
            message = f"{pointer} the solution has no agents/{name}.yaml; create the agent {name} in the tenant before applying it"
            yield Problem(file, "agent_unknown", message, versions.line_of(pointer, process.lines), "warning")


def _integration(registry: Registry, slug: str, integration: SolutionIntegration) -> Iterator[Problem]:
    file = f"integrations/{slug}.yaml"
    installed = registry.find(integration.spec.connector)
    if installed is None:
        return  # the plan reports it as missing
    try:
        for pointer in _literal_secrets(installed, integration):
            line = versions.line_of(f"/settings{pointer}", integration.lines)
            message = f"{pointer} is a secret; write `= secrets.<name>` here and set the secret in the tenant"
            yield Problem(file, "secret_in_file", message, line)
    except ValidationFailed as error:
        yield Problem(file, error.code, error.message)
        return
    opened = open_settings(integration.spec.settings, {}, lambda name: None)
    left_out = {*opened.unresolved, *find_markers(integration.spec.settings)}
    for detail in installed.settings.problems(opened.settings, under="/settings"):
        if detail.pointer.removeprefix("/settings") not in left_out:
            line = versions.line_of(detail.pointer, integration.lines)
            yield Problem(file, detail.code, f"{detail.pointer} {detail.message}", line)


def _literal_secrets(installed: Installed, integration: SolutionIntegration) -> list[str]:
    settings = integration.spec.settings
    sealed = {pointer: Sealed("", 0) for pointer in find_markers(settings)}
    secrets = extract_secrets(installed.connector.settings_schema, settings, sealed, 0).secrets
    return sorted(set(secrets) - set(sealed))
