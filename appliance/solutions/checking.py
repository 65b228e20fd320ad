"""The slow checks of a solution: code and expressions in the sandbox, settings against their connector."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from appliance.connectors.registry import Installed, Registry
from appliance.core.errors import ValidationFailed
from appliance.integrations.settings import Sealed, open_settings, take_secrets
from appliance.processes import versions
from appliance.sandbox import Pool
from appliance.solutions.definition import PROCESS_FILE, Problem, Solution, SolutionIntegration
from appliance.solutions.planning import markers_of


@dataclass(frozen=True)
class Checks:
    """What the checks ask: the installed connectors, and the sandbox; without a pool code counts as checked."""

    registry: Registry
    pool: Pool | None


def find_problems(tenant_id: str, checks: Checks, solution: Solution, processes: Iterable[str]) -> list[Problem]:
    """What is wrong with the integrations and these processes; never call it inside a write."""
    found: list[Problem] = []
    for slug, integration in sorted(solution.integrations.items()):
        found += _integration(checks.registry, slug, integration)
    if checks.pool is not None:
        for process_id in processes:
            found += _process(tenant_id, checks.pool, solution, process_id)
    return found


def _process(tenant_id: str, pool: Pool, solution: Solution, process_id: str) -> Iterator[Problem]:
    process = solution.processes[process_id]
    folder = f"processes/{process_id}"
    for problem in versions.problems_of(pool, tenant_id, process.draft)[1]:
        if problem.file is not None:
            yield Problem(f"{folder}/{problem.file}", problem.code, problem.message, problem.line)
        else:
            line = versions.line_of(problem.pointer, process.lines)
            yield Problem(f"{folder}/{PROCESS_FILE}", problem.code, f"{problem.pointer or '/'} {problem.message}", line)


def _integration(registry: Registry, slug: str, integration: SolutionIntegration) -> Iterator[Problem]:
    file = f"integrations/{slug}.yaml"
    installed = registry.find(integration.spec.connector)
    if installed is None:
        return  # the plan names it as missing
    try:
        for pointer in _literal_secrets(installed, integration):
            line = versions.line_of(f"/settings{pointer}", integration.lines)
            message = f"{pointer} is a secret: write `= secrets.<name>` here and set the secret in the tenant"
            yield Problem(file, "secret_in_file", message, line)
    except ValidationFailed as error:
        yield Problem(file, error.code, error.message)
        return
    opened = open_settings(integration.spec.settings, {}, lambda name: None)
    left_out = {*opened.unresolved, *markers_of(integration.spec.settings)}
    for detail in installed.settings.problems(opened.settings, under="/settings"):
        if detail.pointer.removeprefix("/settings") not in left_out:
            line = versions.line_of(detail.pointer, integration.lines)
            yield Problem(file, detail.code, f"{detail.pointer} {detail.message}", line)


def _literal_secrets(installed: Installed, integration: SolutionIntegration) -> list[str]:
    settings = integration.spec.settings
    kept = {pointer: Sealed("", 0) for pointer in markers_of(settings)}
    taken = take_secrets(installed.connector.settings_schema, settings, kept, 0).secrets
    return sorted(set(taken) - set(kept))
