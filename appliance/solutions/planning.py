"""Plans what an apply would change in a tenant, item by item, and what blocks it; only reads."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from appliance.agents import find_output
from appliance.agents.skills import Skills
from appliance.core.errors import NotFound, ValidationFailed
from appliance.core.patches import make_patch
from appliance.core.scope import TenantScope
from appliance.datapool import service as datapool
from appliance.integrations import Integrations, is_marker, secret_targets, value_at
from appliance.processes.definitions import versions
from appliance.sandbox import Pool
from appliance.solutions.definition import Solution, SolutionIntegration, SolutionProcess
from appliance.solutions.kinds.agents import plan_agent
from appliance.solutions.kinds.changes import Change
from appliance.solutions.kinds.policies import plan_policy
from appliance.solutions.kinds.skills import plan_skill
from appliance.solutions.kinds.webapp_deployment import plan_app
from appliance.solutions.pruning import CreationTimes, PruneOptions, find_leftovers
from appliance.solutions.references import list_references
from appliance.tenants import service as tenants
from appliance.webapps import WebApps
from appliance.webapps.publishing import Publisher

NO_TENANT = "@nothing"  # no tenant can have this id
META = ("created_at", "updated_at", "_version")


@dataclass(frozen=True)
class SolutionServices:
    """What planning and applying use: the integrations, and the sandbox; without a pool code is not checked.

    A solution with WebApps needs both `webapps` and `publishing`, one with skills needs `skills`.
    """

    pool: Pool | None
    integrations: Integrations
    webapps: WebApps | None = None
    publishing: Publisher | None = None
    skills: Skills | None = None


def make_plan(
    scope: TenantScope, tools: SolutionServices, solution: Solution, *, allow_loss: bool = False, prune: bool = False
) -> list[Change]:
    """A change for every item of the solution, in the order of applying; fast enough to run inside a write."""
    return [*_needs(scope, tools, solution), *_plan_items(scope, tools, solution, PruneOptions(prune, allow_loss))]


def plan_emptied(scope: TenantScope, tools: SolutionServices, solution: Solution) -> list[Change]:
    """The plan as it will be once the tenant has nothing but its secrets."""
    return [*_needs(scope, tools, solution), *_plan_items(nothing_of(scope), tools, solution, PruneOptions(False, False))]


def nothing_of(scope: TenantScope) -> TenantScope:
    """The same actor in a tenant that does not exist, so that nothing is there."""
    return replace(scope, tenant_id=NO_TENANT)


def _plan_items(scope: TenantScope, tools: SolutionServices, solution: Solution, options: PruneOptions) -> list[Change]:
    return [
        *(_collection(scope, solution, name, options.allow_loss) for name in order_collections(solution)),
        *(_integration(scope, tools, slug, solution.integrations[slug]) for slug in sorted(solution.integrations)),
        *(_process(scope, tools, solution, process_id) for process_id in sorted(solution.processes)),
        *(plan_app(scope, tools.webapps, tools.integrations, solution, app_id) for app_id in sorted(solution.webapps)),
        *(plan_skill(scope, tools.skills, solution.skills[name]) for name in sorted(solution.skills)),
        *(plan_agent(scope, tools.integrations, solution, agent_id) for agent_id in sorted(solution.agents)),
        *(plan_policy(scope, solution.policies[name]) for name in sorted(solution.policies)),
        *find_leftovers(scope, creation_times(scope, tools), solution, options),
    ]


def creation_times(scope: TenantScope, tools: SolutionServices) -> CreationTimes:
    """Looks up when the tenant's items were created."""
    return CreationTimes(scope, tools.integrations, tools.webapps, tools.skills)


def _needs(scope: TenantScope, tools: SolutionServices, solution: Solution) -> Iterator[Change]:
    for name in solution.needed_connectors():
        if tools.integrations.find_connector(name) is None:
            yield Change("connector", name, "missing", "not installed", f"install the connector {name} on the appliance")
    present = {secret.name for secret in tenants.list_secrets(scope)}
    for name in solution.needed_secrets():
        if name not in present:
            yield Change("secret", name, "missing", "not set", f"set it with PUT /api/v1/secrets/{name} or gos secret set {name}")


# -- collections


def order_collections(solution: Solution) -> list[str]:
    """Collection names in an order in which the targets of relations come first, except in a cycle."""
    ordered: list[str] = []

    def visit(name: str, above: tuple[str, ...]) -> None:
        for target in sorted(_targets(solution, name)):
            if target in solution.collections and target not in ordered and target not in above:
                visit(target, (*above, target))
        if name not in ordered:
            ordered.append(name)

    for name in sorted(solution.collections):
        visit(name, (name,))
    return ordered


def _targets(solution: Solution, name: str) -> set[str]:
    fields = solution.collections[name].get("fields", [])
    return {str(each["collection"]) for each in fields if each.get("type") == "relation"}


def find_collection(scope: TenantScope, name: str) -> dict[str, Any] | None:
    """The tenant's collection in the form of a solution file; None if it does not exist."""
    try:
        document = datapool.get_collection(scope, name)
    except NotFound:
        return None
    return {member: value for member, value in document.items() if member not in META}


def _collection(scope: TenantScope, solution: Solution, name: str, allow_loss: bool) -> Change:
    document = solution.collections[name]
    missing = sorted(target for target in _targets(solution, name) - {name} if find_collection(scope, target) is None)
    foreign = [target for target in missing if target not in solution.collections]
    circle = [target for target in missing if target in solution.collections and name in _targets(solution, target)]
    blocked = None
    if foreign:
        blocked = f"it refers to the collection {foreign[0]}, which is in neither the tenant nor the solution; add it"
    elif circle:
        blocked = f"{name} and {circle[0]} refer to each other; apply one of them without its relation first"
    current = find_collection(scope, name)
    if current is None:
        summary = "; ".join([f"{len(document['fields'])} fields", *_describe_access(document)])
        return Change("collection", name, "create", summary, blocked)
    patch = make_patch(_comparable(current), _comparable(document, current))
    if not patch:
        return Change("collection", name, "unchanged", "")
    if blocked or missing:
        return Change("collection", name, "update", ", ".join(sorted(patch)), blocked, patch)
    return _plan_update(scope, name, patch, allow_loss)


def _describe_access(document: Mapping[str, Any]) -> Iterator[str]:
    """The access that a new collection allows, one text per verb."""
    access = document.get("access")
    for verb, rule in access.items() if isinstance(access, Mapping) else ():
        if rule != "deny":
            yield f"access: {verb} is {rule if isinstance(rule, str) else json.dumps(rule, ensure_ascii=False)[:500]}"


def _plan_update(scope: TenantScope, name: str, patch: Mapping[str, Any], allow_loss: bool) -> Change:
    try:
        steps = datapool.change_collection(scope, name, patch, dry_run=True)["steps"]
    except ValidationFailed as error:
        return Change("collection", name, "update", ", ".join(sorted(patch)), error.message, patch)
    summary = "; ".join(f"{step['field']}: {step['message']}" for step in steps) or ", ".join(sorted(patch))
    blocking = [step for step in steps if step["blocked"]]
    lost = [step for step in steps if step["lost"] and not allow_loss]
    blocked = f"{blocking[0]['field']}: {blocking[0]['message']}" if blocking else None
    if blocked is None and lost:
        blocked = f"{lost[0]['field']}: {lost[0]['message']}; use allow_loss=true to accept the loss"
    return Change("collection", name, "update", summary, blocked, patch)


def _comparable(document: Mapping[str, Any], current: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The document with every member filled in; a field without an id gets that of the tenant's field of the same name."""
    complete = {"description": "", **document}
    if current is None:
        return complete
    current_ids = {each["id"] for each in current["fields"]}
    by_name = {each["name"]: each["id"] for each in current["fields"]}
    claimed = {each["id"] for each in document["fields"]}
    fields = []
    for each in document["fields"]:
        current_id = by_name.get(each["name"])
        use_current = each["id"] not in current_ids and current_id is not None and current_id not in claimed
        fields.append({**each, "id": current_id} if use_current else each)
    return {**complete, "fields": fields}


# -- integrations


def strip_markers(value: Any) -> Any:
    """The settings with every sealed secret reduced to `{"sealed": true}`."""
    if is_marker(value):
        return {"sealed": True}
    if isinstance(value, Mapping):
        return {name: strip_markers(inner) for name, inner in value.items()}
    return [strip_markers(inner) for inner in value] if isinstance(value, list) else value


def find_markers(value: Any, pointer: str = "") -> Iterator[str]:
    """The pointers of sealed secrets that keep their stored value."""
    if is_marker(value):
        yield pointer
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from find_markers(inner, f"{pointer}/{name}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from find_markers(inner, f"{pointer}/{index}")


def _integration(scope: TenantScope, tools: SolutionServices, slug: str, integration: SolutionIntegration) -> Change:
    spec = integration.spec
    try:
        current = tools.integrations.get_integration(scope, slug)
    except NotFound:
        sealed = next(find_markers(spec.settings), None)
        return Change("integration", slug, "create", f"with the connector {spec.connector}", _missing_secret(sealed))
    changed = [
        name
        for name, before, after in (
            ("name", current.name, spec.name),
            ("connector", current.connector, spec.connector),
            ("concurrency", current.concurrency, spec.concurrency),
            ("settings", strip_markers(current.settings), strip_markers(spec.settings)),
        )
        if before != after
    ]
    if not changed:
        return Change("integration", slug, "unchanged", "")
    unchanged_secrets = set(find_markers(current.settings)) if current.connector == spec.connector else set()
    installed = tools.integrations.find_connector(spec.connector)
    targets = secret_targets(installed.connector.settings_schema) if installed else []
    if any(value_at(current.settings, path) != value_at(spec.settings, path) for path in targets):
        unchanged_secrets = set()
    sealed = next((pointer for pointer in find_markers(spec.settings) if pointer not in unchanged_secrets), None)
    return Change("integration", slug, "update", f"{', '.join(changed)} changed", _missing_secret(sealed))


def _missing_secret(pointer: str | None) -> str | None:
    if pointer is None:
        return None
    return f"no secret is sealed at {pointer}, or its destination changes; write `= secrets.<name>` there and set that secret"


# -- processes


def _process(scope: TenantScope, tools: SolutionServices, solution: Solution, process_id: str) -> Change:
    process = solution.processes[process_id]
    blocked = _missing_part(scope, tools, solution, process)
    try:
        row = versions.get_process(scope, process_id)
    except NotFound:
        return Change("process", process_id, "create", "published as version 1", blocked)
    digest = process.draft.digest()
    if row.published_version is None:
        return Change("process", process_id, "update", "the draft is replaced and published", blocked)
    published = versions.get_version(scope, process_id, row.published_version)
    if row.draft_digest == digest and published.draft_digest == digest:
        return Change("process", process_id, "unchanged", f"version {row.published_version}", blocked)
    changed = _changed_files(versions.Draft(published.definition, published.files), process)
    reason = f"{', '.join(changed)} changed" if changed else "its draft differs from the published version"
    return Change("process", process_id, "update", f"{reason}; published as the next version", blocked)


def _changed_files(before: versions.Draft, process: SolutionProcess) -> list[str]:
    after = process.draft
    changed = ["process.yaml"] if dict(before.definition) != dict(after.definition) else []
    names = sorted({*before.files, *after.files})
    return changed + [name for name in names if before.files.get(name) != after.files.get(name)]


def _missing_part(scope: TenantScope, tools: SolutionServices, solution: Solution, process: SolutionProcess) -> str | None:
    """Why the process is blocked: the first integration, collection or agent it uses that exists nowhere; None if all exist."""
    used = list_references(process.definition)
    integrations = {name for kind, name in used if kind == "integration"}
    collections = {name for kind, name in used if kind == "collection"}
    for slug in sorted(integrations - set(solution.integrations)):
        try:
            tools.integrations.get_integration(scope, slug)
        except NotFound:
            return f"it uses the integration {slug}, which is in neither the tenant nor the solution; add integrations/{slug}.yaml"
    for name in sorted(collections - set(solution.collections)):
        if find_collection(scope, name) is None:
            return f"it uses the collection {name}, which is in neither the tenant nor the solution; add collections/{name}.yaml"
    for name in sorted({name for kind, name in used if kind == "agent"} - set(solution.agents)):
        if find_output(scope, name) is None:
            return f"it uses the agent {name}, which is in neither the tenant nor the solution; add agents/{name}.yaml"
    return None
