"""Operations on solutions: check, plan, and apply them as a whole or not at all."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from appliance.agents import find_output
from appliance.agents import versions as agents
from appliance.blobs import lend_contents
from appliance.core.database import db
from appliance.core.errors import Conflict, Detail
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.datapool import service as datapool
from appliance.monitor import audit
from appliance.processes.definitions import load_dependencies, versions
from appliance.processes.host import required_access_of_draft, subject_of
from appliance.solutions.checks import Checks, find_problems
from appliance.solutions.definition import Problem, Solution, raise_problems
from appliance.solutions.kinds.changes import Change
from appliance.solutions.kinds.policies import apply_policy, delete_policy
from appliance.solutions.kinds.skills import PreparedSkills, is_written
from appliance.solutions.kinds.webapp_deployment import deploy_app, is_deployed, prepare_apps, publish_apps
from appliance.solutions.planning import SolutionServices, creation_times, make_plan, nothing_of, plan_emptied
from appliance.solutions.pruning import record_items
from appliance.tenants import service as tenants
from appliance.tenants.grants import require_grants
from appliance.webapps.routes import required_access as required_access_of_routes
from appliance.webapps.routes import subject_of as subject_of_app

__all__ = [
    "ApplyOptions",
    "Change",
    "Checks",
    "SolutionServices",
    "apply_solution",
    "check_solution",
    "plan_solution",
    "required_scopes",
]

_SCOPES = {
    "collection": ("datapool.admin",), "integration": ("integrations.write",), "process": ("processflow.write",),
    "webapp": ("webapps.write", "webapps.publish"), "agent": ("agents.write",), "skill": ("skills.write",),
    "policy": ("policies.write",),
}  # fmt: skip


@dataclass(frozen=True)
class ApplyOptions:
    """`allow_loss` permits losing values of a changed collection or entities of a deleted one; `message` is stored with the
    published versions; `prune` deletes items that this solution created and no longer contains."""

    allow_loss: bool = False
    message: str = ""
    prune: bool = False


def required_scopes(solution: Solution) -> list[str]:
    """The scopes that a key needs, besides solutions.apply, for the kinds of items in this solution; those for WebApps and
    policies are only required for changes."""
    items_by_kind = {"collection": solution.collections, "integration": solution.integrations, "process": solution.processes,
            "agent": solution.agents, "skill": solution.skills}  # fmt: skip
    return sorted(name for kind, items in items_by_kind.items() if items for name in _SCOPES[kind])


def check_solution(checks: Checks, solution: Solution) -> list[Problem]:
    """Every problem of the solution itself, independent of a tenant."""
    return find_problems("", checks, solution, sorted(solution.processes))


def plan_solution(
    scope: TenantScope, tools: SolutionServices, solution: Solution, options: ApplyOptions = ApplyOptions()
) -> list[Change]:
    """What an apply would do; ScopeMissing, DefinitionInvalid with every problem of the changed items."""
    _require(scope, solution)
    with db.snapshot():
        changes = make_plan(scope, tools, solution, allow_loss=options.allow_loss, prune=options.prune)
    return _checked(scope, scope, tools, solution, changes)


def plan_for_emptied(scope: TenantScope, tools: SolutionServices, solution: Solution) -> list[Change]:
    """What an apply would do to the tenant if it had nothing but its secrets; as `plan_solution`."""
    _require(scope, solution)
    with db.snapshot():
        changes = plan_emptied(scope, tools, solution)
    return _checked(scope, nothing_of(scope), tools, solution, changes)


def _checked(
    scope: TenantScope, place: TenantScope, tools: SolutionServices, solution: Solution, changes: list[Change]
) -> list[Change]:
    """The changes, after the changed items were checked with what they depend on at the place."""
    _require_changes(scope, changes)
    look = partial(load_dependencies, place, tools.integrations.find_actions, find_output)
    checks = Checks(tools.integrations.registry, tools.pool, look)
    raise_problems(find_problems(scope.tenant_id, checks, solution, _changing(changes)))
    return changes


def apply_solution(
    scope: TenantScope, tools: SolutionServices, solution: Solution, options: ApplyOptions = ApplyOptions()
) -> list[Change]:
    """Plan and apply a solution in one transaction; unchanged items are not touched.

    ScopeMissing, DefinitionInvalid; Conflict names everything that blocks it.  A WebApp version with checks is written in the
    transaction and published after it; if its checks fail, `failed` of its change says why.  Changed skills become untrusted.
    """
    planned = plan_solution(scope, tools, solution, options)
    refuse_blocked(planned)
    application = Application(scope, tools, solution, options)
    application.prepare(planned)
    return application.publish(db.write(application.write))


class Application:
    """The phases of an apply: contents are stored beforehand, everything is written in one transaction, and WebApps with checks
    are published after it."""

    def __init__(
        self, scope: TenantScope, tools: SolutionServices, solution: Solution, options: ApplyOptions = ApplyOptions()
    ) -> None:
        self._scope, self._tools, self._solution, self._options = scope, tools, solution, options
        self._to_check: dict[str, int] = {}

    @property
    def to_check(self) -> dict[str, int]:
        """After `write`: the versions by app that are published only after their checks."""
        return dict(self._to_check)

    def prepare(self, planned: Sequence[Change]) -> None:
        """Store the contents that the planned changes need; nothing is visible yet."""
        scope, tools, solution = self._scope, self._tools, self._solution
        self._checked = set(_changing(planned))
        self._apps = prepare_apps(scope, tools.webapps, solution, planned, self._options.message)
        self._skills = PreparedSkills(scope, tools.skills, solution.skills, planned)

    def check_emptied(self) -> None:
        """Inside a write: whatever `write` refuses in the tenant once it has nothing but its secrets and refusals of grants; the
        grants are deleted already.  It is applied to a tenant with nothing, and undone."""
        scope, solution = self._scope, self._solution
        changes = plan_emptied(scope, self._tools, solution)
        _require_changes(scope, changes)
        refuse_blocked(changes)
        _refuse_ungranted(scope, solution, changes)
        apps = {each.id: solution.webapps[each.id] for each in changes if is_deployed(each)}
        published = {app_id: app for app_id, app in apps.items() if not app.settings.smoke}  # the others after their checks
        require_grants(scope, {subject_of_app(app_id): required_access_of_routes(app.routes) for app_id, app in published.items()})
        self._rehearse(changes)

    def _rehearse(self, changes: Sequence[Change]) -> None:
        """Inside a write: apply the changes to a tenant with nothing, and undo that.  Raises whatever applying them raises."""
        nothing = nothing_of(self._scope)
        forms = {form.sha256 for app in self._apps.values() for form in app.forms}
        with db.rehearsal():
            tenants.insert_temporary(nothing)
            lend_contents(self._scope, nothing, forms | self._skills.contents)
            self._apply(nothing, changes)

    def write(self) -> list[Change]:
        """Inside a write: plan again and apply.  Conflict if more has changed in the meantime than was prepared."""
        scope, tools, solution, options = self._scope, self._tools, self._solution, self._options
        changes = make_plan(scope, tools, solution, allow_loss=options.allow_loss, prune=options.prune)
        _require_changes(scope, changes)  # there may be more changes now than in the first plan
        refuse_blocked(changes)
        if set(_changing(changes)) - self._checked:
            raise Conflict("a process changed while the solution was being checked; apply it again")
        _refuse_ungranted(scope, solution, changes)
        self._apply(scope, changes)
        done = [change for change in changes if change.action in ("create", "update", "delete")]
        if done:
            fields = {"changes": [f"{change.action} {change.kind} {change.id}" for change in done]}
            audit.record(scope, "solution.apply", solution.name, fields)
        return changes

    def _apply(self, scope: TenantScope, changes: Sequence[Change]) -> None:
        tools, solution, options = self._tools, self._solution, self._options
        self._to_check.clear()
        for change in changes:
            _apply_change(scope, tools, solution, change, options)
            if is_deployed(change) and tools.webapps is not None:
                number = deploy_app(scope, tools.webapps, change, solution.webapps[change.id], self._apps.get(change.id))
                self._to_check.update({} if number is None else {change.id: number})
            if is_written(change):
                self._skills.write(scope, change.id)
            if change.action == "delete":
                _delete(scope, tools, change, options)
        record_items(scope, creation_times(scope, tools), solution, [change for change in changes if change.action == "delete"])

    def publish(self, changes: Sequence[Change]) -> list[Change]:
        """After the write: publish WebApps with checks; answers every change with its result."""
        publishing = self._tools.publishing
        failures = publish_apps(self._scope, publishing, self._to_check) if publishing is not None else {}
        return [replace(each, failed=failures.get(each.id)) if each.kind == "webapp" else each for each in changes]


def refuse_blocked(changes: Iterable[Change]) -> None:
    """Raise Conflict with everything that blocks the changes, if anything does."""
    blocked = [change for change in changes if change.blocked]
    if not blocked:
        return
    details = [
        Detail(
            f"/{each.kind}/{each.id}",
            "blocked",
            Sentence("%(kind)s %(id)s: %(blocked)s", kind=each.kind, id=each.id, blocked=each.blocked),
        )
        for each in blocked
    ]
    more = Sentence(" (and %(blocked)s more, see details)", blocked=len(blocked) - 1) if len(blocked) > 1 else ""
    raise Conflict(
        Sentence("the solution cannot be applied yet: %(message)s%(more)s", message=details[0].message, more=more), details=details
    )


def _require(scope: TenantScope, solution: Solution) -> None:
    for name in ("solutions.apply", *required_scopes(solution)):
        scope.require(name)


def _require_changes(scope: TenantScope, changes: Iterable[Change]) -> None:
    """Require the scopes for deletions and for changed WebApps and policies; `_require` covers all other kinds."""
    for change in changes:
        is_policy = change.kind == "policy" and change.action in ("create", "update")
        if change.action == "delete" or is_deployed(change) or is_policy:
            for name in _SCOPES[change.kind]:
                scope.require(name)


def _changing(changes: Iterable[Change]) -> list[str]:
    return [change.id for change in changes if change.kind == "process" and change.action in ("create", "update")]


def _refuse_ungranted(scope: TenantScope, solution: Solution, changes: Iterable[Change]) -> None:
    """Inside the write: GrantRequired with every process of the solution that would access more than the caller may."""
    drafts = {name: solution.processes[name].draft for name in _changing(changes)}
    access = {subject_of(name): required_access_of_draft(draft.definition, draft.files) for name, draft in drafts.items()}
    require_grants(scope, access)


def _apply_change(scope: TenantScope, tools: SolutionServices, solution: Solution, change: Change, options: ApplyOptions) -> None:
    """Inside the write: apply one change."""
    if change.action not in ("create", "update"):
        return
    if change.kind == "collection" and change.action == "create":
        datapool.create_collection(scope, solution.collections[change.id])
    elif change.kind == "collection":
        datapool.change_collection(scope, change.id, change.patch, allow_loss=options.allow_loss)
    elif change.kind == "integration":
        tools.integrations.save_integration(scope, change.id, solution.integrations[change.id].spec)
    elif change.kind == "process":
        row, _ = versions.save_draft(scope, change.id, solution.processes[change.id].draft)
        versions.publish_checked(scope, change.id, row.draft_digest, versions.PublishRequest(options.message))
    elif change.kind == "agent":
        agents.save_agent(scope, solution.agents[change.id])
    elif change.kind == "policy":
        apply_policy(scope, solution.policies[change.id], options.message[:500])


def _delete(scope: TenantScope, tools: SolutionServices, change: Change, options: ApplyOptions) -> None:
    """Inside the write: delete an item that the solution no longer contains."""
    if change.kind == "collection":
        datapool.delete_collection(scope, change.id, allow_loss=options.allow_loss)
    elif change.kind == "integration":
        tools.integrations.delete_integration(scope, change.id)
    elif change.kind == "process":
        versions.delete_process(scope, change.id)
    elif change.kind == "webapp" and tools.webapps is not None:
        tools.webapps.delete_app(scope, change.id, force=True)
    elif change.kind == "agent":
        agents.delete_agent(scope, change.id)
    elif change.kind == "skill" and tools.skills is not None:
        tools.skills.delete_skill(scope, change.id)
    elif change.kind == "policy":
        delete_policy(scope, change.id)
