"""The WebApps of a solution in a tenant: compare them with what is served, create, publish and export them.

Contents are stored before the write of an apply.  The write creates the app and its version, and publishes a version without
checks; `Publisher` publishes one with checks after the commit, so that the checks see what the public will see.
"""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import wait

from appliance.blobs import Blobs
from appliance.core.errors import Conflict, NotFound
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.integrations import Integrations
from appliance.solutions.definition import Solution
from appliance.solutions.kinds.changes import Change, read_all
from appliance.solutions.kinds.webapps import SolutionApp, comparable
from appliance.solutions.route_targets import find_broken_routes
from appliance.webapps import NewApp, Version, WebApps
from appliance.webapps.files import Prepared
from appliance.webapps.publishing import Publisher

MAX_WAIT_S = 45.0  # for the checks of all WebApps of an apply, while its caller waits
MAX_EXPORT_BYTES = 12 << 20  # of WebApps in an export; they have to fit into a solution with everything else
MAX_EXPORT_FILES = 5_000


def plan_app(scope: TenantScope, webapps: WebApps | None, integrations: Integrations, solution: Solution, app_id: str) -> Change:
    """What an apply would do with this WebApp."""
    target = solution.webapps[app_id]
    if webapps is None:
        return Change("webapp", app_id, "create", _count(len(target.files)), "this appliance has no WebApps")
    blocked = _missing_part(scope, integrations, solution, target)
    try:
        app = webapps.get_app(scope, app_id)
    except NotFound:
        return Change("webapp", app_id, "create", _count(len(target.files)), blocked)
    same = find_same_version(scope, webapps, app_id, target)
    if same is not None and same == app.published_version:
        return Change("webapp", app_id, "unchanged", f"version {same}", blocked)
    if same is not None:
        return Change("webapp", app_id, "update", f"version {same} has the same content and is published", blocked)
    summary = "; ".join(_changed(scope, webapps, (app_id, app.published_version), target)) or _count(len(target.files))
    return Change("webapp", app_id, "update", f"{summary}; published as the next version", blocked)


def _count(files: int) -> str:
    return f"{files} file{'s' * (files != 1)}"


def find_same_version(scope: TenantScope, webapps: WebApps, app_id: str, target: SolutionApp) -> int | None:
    """The number of the version with the same content: the published one or else the latest; None if neither has it."""
    published = webapps.get_app(scope, app_id).published_version
    candidates = [webapps.get_version(scope, app_id, published)] if published is not None else []
    candidates += webapps.list_versions(scope, app_id, PageRequest(1)).items
    for version in candidates:
        if version.state not in ("uploading", "failed") and _is_same(scope, webapps, version, target):
            return version.number
    return None


def _is_same(scope: TenantScope, webapps: WebApps, version: Version, target: SolutionApp) -> bool:
    same = comparable(version.settings) == comparable(target.settings)
    return same and webapps.list_files(scope, version.app, version.number) == target.specs


def _changed(scope: TenantScope, webapps: WebApps, published: tuple[str, int | None], target: SolutionApp) -> Iterator[str]:
    app_id, number = published
    if number is None:
        return
    before, after = webapps.list_files(scope, app_id, number), target.specs
    counts = (
        ("added", len(after.keys() - before.keys())),
        ("changed", sum(before[path] != after[path] for path in before.keys() & after.keys())),
        ("removed", len(before.keys() - after.keys())),
    )
    yield from (f"{_count(count)} {what}" for what, count in counts if count)
    if comparable(webapps.get_version(scope, app_id, number).settings) != comparable(target.settings):
        yield "app.yaml changed"


def _missing_part(scope: TenantScope, integrations: Integrations, solution: Solution, target: SolutionApp) -> str | None:
    """Why the WebApp is blocked: the first target of a route, or integration for access, that exists nowhere."""
    for route in target.routes:
        if (
            route.process not in solution.processes
            and route.entities not in solution.collections
            and find_broken_routes(scope, [route])
        ):
            folder = f"processes/{route.process}/" if route.process else f"collections/{route.entities}.yaml"
            return f"its route {route.path} uses the {route.target}, which is in neither the tenant nor the solution; add {folder}"
    slug = target.access.integration
    if slug and slug not in solution.integrations:
        try:
            integrations.get_integration(scope, slug)
        except NotFound:
            return f"its access uses the integration {slug}, which is in neither the tenant nor the solution"
    return None


# -- applying


def prepare_apps(
    scope: TenantScope, webapps: WebApps | None, solution: Solution, changes: Iterable[Change], message: str
) -> dict[str, Prepared]:
    """Before the write: store the contents of every WebApp that an apply changes; ApiKeyLeaked, PayloadTooLarge."""
    if webapps is None:
        return {}
    prepared = {}
    for change in changes:
        if is_deployed(change):
            app = solution.webapps[change.id]
            prepared[change.id] = webapps.prepare_version(scope, app.files, app.settings, message)
    return prepared


def is_deployed(change: Change) -> bool:
    """Whether an apply creates or publishes a version of a WebApp."""
    return change.kind == "webapp" and change.action in ("create", "update")


def deploy_app(scope: TenantScope, webapps: WebApps, change: Change, target: SolutionApp, prepared: Prepared | None) -> int | None:
    """Inside the write: create the app and its version, and publish it unless it has checks; then answers its number."""
    if change.action == "create":
        webapps.create_app(scope, NewApp(change.id))
    number = find_same_version(scope, webapps, change.id, target)
    if number is None:
        if prepared is None:
            raise Conflict(Sentence("the WebApp %(id)s changed while the solution was applied; apply it again", id=change.id))
        number = webapps.add_version(scope, change.id, prepared).number
    if target.settings.smoke:
        return number
    webapps.publish_version(scope, change.id, number)
    return None


def publish_apps(scope: TenantScope, publishing: Publisher, numbers: Mapping[str, int]) -> dict[str, str]:
    """After the commit: publish versions with checks; answers by app why a version is not published (yet)."""
    failures: dict[str, str] = {}
    running = []
    for app_id, number in numbers.items():
        try:
            started = publishing.publish_version(scope, app_id, number)
        except Conflict as error:
            failures[app_id] = error.message
            continue
        running += [started.future] if started.future is not None else []
    wait(running, MAX_WAIT_S)
    for app_id, number in numbers.items():
        if app_id not in failures and (reason := _failure_reason(scope, publishing, app_id, number)):
            failures[app_id] = reason
    return failures


def _failure_reason(scope: TenantScope, publishing: Publisher, app_id: str, number: int) -> str | None:
    try:
        publication = publishing.get_publication(scope, app_id, number)
    except NotFound:
        return None  # it was already published
    if publication.is_running:
        return f"version {number} is still being checked; see GET /api/v1/webapps/{app_id}/versions/{number}/publication"
    if publication.state == "published":
        return None
    response = next((str(check["seen"]) for check in publication.checks if check["outcome"] == "failed"), "")
    return f"{publication.reason}{f'; it answered: {response}' if response else ''}"


# -- exporting


def load_published(scope: TenantScope, webapps: WebApps, blobs: Blobs) -> tuple[dict[str, SolutionApp], list[str]]:
    """The published WebApps, and the ids of those that are too large for a solution.  ScopeMissing."""
    published = [app for app in read_all(lambda page: webapps.list_apps(scope, page)) if app.published_version is not None]
    if published:
        scope.require("webapps.read")
    apps: dict[str, SolutionApp] = {}
    left_out: list[str] = []
    size = count = 0
    for app in published:
        version = webapps.get_version(scope, app.id, app.published_version or 0)
        if size + version.bytes > MAX_EXPORT_BYTES or count + version.files > MAX_EXPORT_FILES:
            left_out.append(app.id)
            continue
        size, count = size + version.bytes, count + version.files
        specs = webapps.list_files(scope, app.id, version.number)
        files = {path: blobs.read_whole(scope, spec.sha256, MAX_EXPORT_BYTES) for path, spec in specs.items()}
        apps[app.id] = SolutionApp(version.settings, files)
    return apps, left_out
